"""Graphs without a GPU: a recording is called again, and its effects while it is recorded are undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Generator, Tensor

from samba_rl.capture.recorder import _shape

T = TypeVar("T")


class FakeGraphs:
    def __init__(self, changed: Callable[[], list[Tensor]] = list, problem: str = "", *, broken: bool = False) -> None:
        """Take what returns the tensors that calls change, and what is wrong with them."""
        self._changed, self._problem, self._broken = changed, problem, broken
        self.watched, self.recorded, self.replayed = 0, 0, 0

    def watch(self, call: Callable[[], T]) -> tuple[T, str]:
        self.watched += 1
        return call(), self._problem

    def record(self, call: Callable[[], T], generator: Generator | None) -> tuple[Callable[[], None], T]:
        if self._broken:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recorded += 1
        before = [tensor.clone() for tensor in self._changed()]
        random = None if generator is None else generator.get_state()
        mode = torch.is_grad_enabled()
        result = call()
        with torch.no_grad():
            for tensor, value in zip(self._changed(), before, strict=True):
                tensor.copy_(value)
        if generator is not None and random is not None:
            generator.set_state(random)
        outputs: list[Tensor] = []
        _shape(result, outputs)

        def replay() -> None:
            self.replayed += 1
            again: list[Tensor] = []
            with torch.set_grad_enabled(mode):
                _shape(call(), again)
            with torch.no_grad():
                for old, new in zip(outputs, again, strict=True):
                    old.copy_(new)

        places = {tensor.data_ptr() for tensor in self._changed()}
        with torch.no_grad():
            for old in (each for each in outputs if each.data_ptr() not in places):
                old.copy_(torch.full_like(old, 7 if old.dtype != torch.bool else 1))  # nothing is computed yet
        return replay, result
