"""Ctrl-C and SIGTERM: the first one asks a run to stop, the second one stops it immediately."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO, final

MESSAGE = b"\nStopping after the current trial or iteration; press Ctrl-C again to stop immediately.\n"


@contextmanager
def polite_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether the first signal came; a second one raises KeyboardInterrupt."""
    asked = False

    def heard(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        # Not print(): the signal may have come in the middle of one.
        os.write(2, MESSAGE)

    if threading.current_thread() is not threading.main_thread():
        # Only the main thread can handle signals.
        yield lambda: False
        return
    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@final
class Patient:
    """A stream whose reader may leave, such as `head`; what is written after that is lost, and nothing else happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        with self._patience():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        with self._patience():
            self._stream.flush()

    @contextmanager
    def _patience(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # What is still buffered goes there too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt as Ctrl-C does, so that the program can clean up."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
