"""What the fuzzers share: numbered cases that can be repeated, a time limit for each, and failures in one line."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from samba_rl.errors import Stopped, UserError

HANG = 120.0
"""Seconds after which a case counts as hanging."""


class Hang(BaseException):
    """A case does not end."""


class Wrong(Exception):  # noqa: N818 - reads as what happened
    """A result that must not be."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Hang` inside the context after some seconds, in a program's main thread."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def end(*_: object) -> None:
        raise Hang(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Words:
    """What a case does, said before it is done."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, text: str) -> None:
        self.said.append(text)


def cases(seconds: float, seed: int, run: Callable[[random.Random, Words], None], *, least: int = 1) -> list[str]:
    """Run cases for some seconds, and at least a few; return the failures.

    A case draws what it does from the generator and says it before it is done. It may raise what users are told
    (`UserError`, `Stopped`), in one line; everything else is a failure. Case n of a seed is the same every time.
    """
    failures, number, begin = [], 0, time.monotonic()
    while number < least or time.monotonic() - begin < seconds:
        words = Words()
        try:
            with limited(HANG):
                told(run, random.Random(f"{seed}/{number}"), words)
        except (Hang, Exception) as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            failures.append(f"seed {seed}, case {number} ({'; '.join(words.said)}): {what}")
        number += 1
    return failures


def told(run: Callable[[random.Random, Words], None], draw: random.Random, words: Words) -> None:
    """Run a case; raise `Wrong` if a message for the user has several lines."""
    try:
        run(draw, words)
    except (UserError, Stopped) as error:
        if "\n" in str(error).strip() or not str(error):
            raise Wrong(f"the message has several lines: {error}") from error
