"""CUDA graphs: what the recorder needs of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar, final

import torch
from torch import Generator

T = TypeVar("T")
Pool: TypeAlias = "torch.cuda._POOL_HANDLE"


class Graphs(Protocol):
    """Makes graphs of what calls launch."""

    def watch(self, call: Callable[[], T]) -> tuple[T, str]:
        """Make a call as usual; return its result, and why it cannot be recorded (empty if nothing is known)."""
        ...

    def record(self, call: Callable[[], T], generator: Generator | None) -> tuple[Callable[[], None], T]:
        """Record a call without effect; return what repeats it, and the result that each repetition overwrites."""
        ...


@final
class CudaGraphs:
    """Graphs on one GPU, which share their memory: no two of them run at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool: Pool | None = None

    def watch(self, call: Callable[[], T]) -> tuple[T, str]:
        """Make a call as usual; a graph cannot hold one during which the host waits for the device."""
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = call()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        waits = [each for each in caught if "called a synchronizing" in str(each.message)]
        for other in (each for each in caught if each not in waits):
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        return result, f"the host waits in {waits[0].filename}:{waits[0].lineno}" if waits else ""

    def record(self, call: Callable[[], T], generator: Generator | None) -> tuple[Callable[[], None], T]:
        """Record a call without effect; return what repeats it, and the result that each repetition overwrites."""
        torch.cuda.synchronize(self._device)
        # After a failure the memory is left alone: another graph takes other memory.
        pool, self._pool = self._pool, None
        try:
            graph, result = self._capture(call, generator, pool)
        except Exception:
            # A capture that ends well tells PyTorch's own generator, too, that nothing is captured any more.
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._capture(lambda: torch.zeros((), device=self._device), None, None)
            raise
        self._pool = graph.pool()
        return graph.replay, result

    def _capture(
        self, call: Callable[[], T], generator: Generator | None, pool: Pool | None
    ) -> tuple[torch.cuda.CUDAGraph, T]:
        graph = torch.cuda.CUDAGraph()
        if generator is not None:
            graph.register_generator_state(generator)
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                result = call()
            finally:
                graph.capture_end()
        return graph, result


def side_by_side(*calls: Callable[[], T]) -> list[T]:
    """Make calls that do not depend on each other: in a graph side by side, otherwise one after the other."""
    initialised: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not (initialised and torch.cuda.is_current_stream_capturing()):
        return [call() for call in calls]
    here = torch.cuda.current_stream()
    others = [torch.cuda.Stream() for _ in calls[1:]]  # type: ignore[no-untyped-call]
    for stream in others:
        stream.wait_stream(here)
    made = [calls[0]()]
    for stream, call in zip(others, calls[1:], strict=True):
        with torch.cuda.stream(stream):
            made.append(call())
        here.wait_stream(stream)
    return made
