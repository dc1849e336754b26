"""Errors that a user can act on, and helpers that word them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in what was asked for; the message names the thing, the value and the way out."""


class Stopped(Exception):  # noqa: N818 - nothing is wrong: the run ends here on purpose
    """A run ends here before its time; everything is on the disk, and it can be resumed."""


class Paused(Stopped):
    """The same because of the system: it should be looked at before the run goes on."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest ones, or all there are if they are few."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=3)
    if near:
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    return f"there are: {', '.join(names)}" if len(names) <= 20 else f"none of the {len(names)} known names is near"


def printable(words: str) -> str:
    """The text with control characters spelt out: nothing in it can move a terminal's cursor or change its colours."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in words)
