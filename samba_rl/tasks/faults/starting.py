"""Starting processes: they do not run the user's script again, and Ctrl-C is left to the program."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from types import ModuleType

_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Start a process inside this context. Give it only what can be unpickled without the user's script."""
    with _ONE_AT_A_TIME, _script_hidden(), _interrupts_held():
        yield


@contextlib.contextmanager
def _script_hidden() -> Iterator[None]:
    """Hide the main module from `multiprocessing`.

    A spawned process would run that file from the top to find functions and classes in it, so a script without
    `if __name__ == "__main__":` would start its run, or its rig, again in every process. Send them by value instead.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block Ctrl-C, so that a process started now cannot receive it before it has set itself to ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Starting the tracker unblocks signals, so it must not happen inside the block.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
