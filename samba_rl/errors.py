"""Errors that a user can act on, and helpers that word them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in a user's request; the message names the thing, the value and the way out."""


class Stopped(Exception):  # noqa: N818 - not an error: the run ends on purpose
    """Raised when a run ends early on purpose; everything is on disk, and the run can be resumed."""


class Paused(Stopped):
    """Raised when a run ends early because the system failed and should be inspected before the run continues."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the most similar known names, or all of them if they are few."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=3)
    if near:
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    return f"available: {', '.join(names)}" if len(names) <= 20 else f"none of the {len(names)} known names is similar"


def printable(words: str) -> str:
    """Return the text with control characters escaped, so that it cannot move a terminal's cursor or change colours."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in words)


def duration(seconds: float) -> str:
    """Format a duration, such as 42 s, 3 min 20 s or 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
