"""Ctrl-C and SIGTERM: the first asks a run to stop, the second stops it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

MESSAGE = b"\nStopping as soon as the running trial is done and saved; Ctrl-C again stops at once.\n"


@contextmanager
def polite_stop() -> Iterator[Callable[[], bool]]:
    """While it lasts, the first signal only sets what the function that it gives says; the second interrupts."""
    asked = False

    def heard(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        # Not print: the signal may have come in the middle of one.
        os.write(2, MESSAGE)

    if threading.current_thread() is not threading.main_thread():
        # Signals are the main thread's business.
        yield lambda: False
        return
    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """While it lasts, SIGTERM does what Ctrl-C does: what was begun is ended before the program is."""

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
