"""Dataclasses as plain JSON values and back, checked against their type hints, so that no file can run code."""

from __future__ import annotations

import dataclasses
import math
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from samba_rl.errors import UserError, did_you_mean
from samba_rl.ranges import shown

_INFINITE = {"inf": math.inf, "-inf": -math.inf}


def to_plain(value: Any) -> Any:
    """Convert dataclasses to dicts and tuples to lists; NaN becomes null and infinity "inf", since JSON has neither."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: to_plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def from_plain(kind: Any, value: Any, where: str) -> Any:
    """Restore a value of type `kind` from what `to_plain` returned; `where` names it in errors.

    Missing fields take their defaults, so that files from before a field existed can still be read. A class may have a
    static method `upgrade(value)` that translates values which an earlier version wrote.
    """
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(arguments, value, where)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise _wrong(where, value, "one of " + ", ".join(map(str, arguments)))
        return value
    if origin is tuple:
        return _tuple(arguments, value, where)
    if kind is float:
        return _number(value, where)
    # To Python a bool is an int, to people it is not.
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise _wrong(where, value, _IN_WORDS.get(kind, str(kind)))
    return value


_IN_WORDS = {int: "a whole number", bool: "true or false", str: "text", NoneType: "null"}


def _wrong(where: str, value: Any, wanted: str) -> UserError:
    return UserError(f"{where} is {shown(value)}; it must be {wanted}")


def _dataclass(kind: type, value: Any, where: str) -> Any:
    upgrade = getattr(kind, "upgrade", None)
    if upgrade is not None:
        value = upgrade(value)
    if not isinstance(value, dict):
        raise _wrong(where, value, "a group of named values")
    hints = get_type_hints(kind)
    known = {part.name: part for part in dataclasses.fields(kind)}
    for key in value:
        if key not in known:
            raise UserError(f"{where} has no '{key}'; {did_you_mean(str(key), known)}")
    for name, part in known.items():
        optional = part.default is not dataclasses.MISSING or part.default_factory is not dataclasses.MISSING
        if name not in value and not optional:
            raise UserError(f"{where} lacks '{name}'")
    return kind(**{key: from_plain(hints[key], part, f"{where}.{key}") for key, part in value.items()})


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and NoneType in kinds:
        return None
    rest = [one for one in kinds if one is not NoneType]
    choices = [choice for one in rest if get_origin(one) is Literal for choice in get_args(one)]
    for one in rest:
        try:
            return from_plain(one, value, where)
        except UserError:
            # With only one kind, its own message is the clearest.
            if len(rest) == 1:
                raise
    raise _wrong(where, value, "one of " + ", ".join(map(str, choices or rest)))


def _tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(where, value, "a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise _wrong(where, value, f"a list of {len(kinds)}")
    return tuple(
        from_plain(kind, part, f"{where}[{i}]") for i, (kind, part) in enumerate(zip(kinds, value, strict=True))
    )


def _number(value: Any, where: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, str) and value in _INFINITE:
        return _INFINITE[value]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(where, value, "a number")
    try:
        return float(value)
    except OverflowError as error:
        raise UserError(f"{where} has too many digits; it must be a number of at most 1e308") from error
