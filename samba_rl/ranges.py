"""Ranges of settings: stated in the type of each field, shown in the help, and checked here for whole trees."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Literal,
    Protocol,
    TypeAlias,
    Union,
    final,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable as checkable,
)

from samba_rl.errors import UserError, did_you_mean

SHOWN = 80
"""Largest number of characters of a wrong value that an error repeats."""


@final
@dataclasses.dataclass(frozen=True)
class In:
    """The numbers that a setting may have, as an interval: "(0, 1]" is above 0 and at most 1. NaN is in none."""

    interval: str
    """The interval; inf is allowed only where it ends with "inf]"."""

    def __contains__(self, value: float) -> bool:
        low, high = self._ends
        return (low < value or (low == value and self.interval[0] == "[")) and (
            value < high or (value == high and self.interval[-1] == "]")
        )

    @property
    def in_words(self) -> str:
        """Return the interval in words, such as "at least 0 and finite"."""
        low, high = (end.strip() for end in self.interval[1:-1].split(","))
        below = f"{'at least' if self.interval[0] == '[' else 'above'} {low}"
        if high == "inf":
            return below + (" (or inf)" if self.interval[-1] == "]" else " and finite")
        return f"{below} and {'at most' if self.interval[-1] == ']' else 'below'} {high}"

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = self.interval[1:-1].split(",")
        return float(low), float(high)


Count: TypeAlias = Annotated[int, In("[1, 1e9]")]
"""A number of things, of which there is at least one."""
Units: TypeAlias = Annotated[int, In("[1, 10000]")]
"""The size of a layer of a network."""
Hidden: TypeAlias = tuple[Units, ...]
"""The sizes of the hidden layers of a network."""
Rate: TypeAlias = Annotated[float, In("(0, 1]")]
"""A learning rate, or a share that is never nothing."""
Share: TypeAlias = Annotated[float, In("[0, 1]")]
"""A share, or a probability."""
Seed: TypeAlias = Annotated[int, In("[0, 9223372036854775808)")]
"""A seed: what 63 bits hold."""
Workers: TypeAlias = Annotated[int, In("[0, 1000]")]
"""A number of processes; 0 uses none."""


@checkable
class Related(Protocol):
    """Settings that must also fit each other."""

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each setting that does not fit the others, and what it must be."""
        ...


def check(settings: object, path: str = "") -> None:
    """Raise a `UserError` that names the first setting of a tree of dataclasses whose value is not allowed.

    Each value must have the type of its field and lie in its range, and related ones must fit each other. `path`
    is what the names begin with, such as "multiplier.".
    """
    if _UNCHECKED.get():
        return
    for name, hint in hints_of(type(settings)).items():
        check_value(hint, getattr(settings, name), f"{path}{name}")
    if isinstance(settings, Related):
        for name, must in settings.misfits():
            raise _wrong(f"{path}{name}", getattr(settings, name), must)


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Make settings whatever their values are: those of a finished run, which an earlier version may have allowed."""
    token = _UNCHECKED.set(True)
    try:
        yield
    finally:
        _UNCHECKED.reset(token)


_UNCHECKED = contextvars.ContextVar("unchecked", default=False)


def hints_of(kind: type) -> dict[str, object]:
    """Return the types of the fields of a dataclass, with their ranges."""
    if kind not in _HINTS:
        hints = get_type_hints(kind, include_extras=True)
        _HINTS[kind] = {part.name: hints[part.name] for part in dataclasses.fields(kind)}
    return _HINTS[kind]


_HINTS: dict[type, dict[str, object]] = {}
"""Types of fields that have been looked up, since looking them up takes longer than checking them."""


def range_in(hint: object) -> str:
    """Return the range that the type of a field states, for its help; empty if it states none."""
    if get_origin(hint) is Annotated:
        return next((one.interval for one in get_args(hint) if isinstance(one, In)), "")
    parts = [] if get_origin(hint) is Literal else [range_in(part) for part in get_args(hint)]
    return ", ".join(dict.fromkeys(filter(None, parts)))


def check_value(hint: object, value: object, path: str) -> None:
    """Raise a `UserError` if a value, named by its path, is not of this type or lies outside the range in it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        check_value(parts[0], value, path)
        for one in parts[1:]:
            if isinstance(one, In) and isinstance(value, int | float) and value not in one:
                raise _wrong(path, value, one.in_words)
    elif origin in (Union, UnionType):
        if value is not None or NoneType not in parts:
            check_value(next(part for part in parts if part is not NoneType), value, path)
    elif origin is Literal:
        if not isinstance(value, str):
            raise _wrong(path, value, f"one of {', '.join(parts)}")
        if value not in parts:
            raise UserError(f"{path} = {shown(value)}: {did_you_mean(value, parts)}")
    elif origin is tuple:
        _check_tuple(parts, value, path)
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, hint):
            raise _wrong(path, value, f"{hint.__name__}(...)")
        check(value, f"{path}.")
    elif isinstance(value, Path):
        _check_path(value, path)
    elif hint in _IN_WORDS:
        _check_plain(hint, value, path)


def _check_tuple(kinds: tuple[object, ...], value: object, path: str) -> None:
    if not isinstance(value, tuple):
        raise _wrong(path, value, "a tuple")
    if kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise _wrong(path, value, f"a tuple of {len(kinds)}")
    for i, (kind, part) in enumerate(zip(kinds, value, strict=True)):
        check_value(kind, part, f"{path}.{i}")


_IN_WORDS: dict[object, str] = {float: "a number", int: "a whole number", bool: "True or False", str: "text"}


def _check_plain(hint: object, value: object, path: str) -> None:
    """Check the type of a number, a truth value or a text."""
    kinds = {float: (float, int), int: (int,), bool: (bool,), str: (str,)}[hint]  # type: ignore[index]
    # To Python a bool is an int, to people it is not.
    if not isinstance(value, kinds) or isinstance(value, bool) is not (hint is bool):
        raise _wrong(path, value, _IN_WORDS[hint])
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= c <= "\udfff" for c in value)):
        raise _wrong(path, value, "text without null characters and lone surrogates")


def _check_path(value: Path, path: str) -> None:
    try:
        written = os.fsencode(value)
    except UnicodeEncodeError:
        written = b"\0"
    if b"\0" in written:
        raise _wrong(path, str(value), "a name that a file can have")


def _wrong(path: str, value: object, must: str) -> UserError:
    return UserError(f"{path} = {shown(value)}: must be {must}")


def shown(value: object) -> str:
    """Return a value as an error repeats it."""
    if isinstance(value, int) and abs(value) >= 10**SHOWN:
        return f"about 10^{math.log10(abs(value)):.0f}"  # Python refuses to write numbers of thousands of digits
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
