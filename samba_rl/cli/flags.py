"""Flags of settings: their ranges in the help, and their errors as they are."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

from samba_rl.errors import UserError
from samba_rl.ranges import hints_of, range_in


class _Refused(Exception):  # noqa: N818 - carries a `UserError` past the parser
    """Raised instead of a `UserError` while the parser makes settings: it would word a `ValueError` in its own way."""


@contextlib.contextmanager
def settings_flags() -> Iterator[ConstructorRegistry]:
    """Provide the parser's rules for settings: their help states the ranges, their errors name the setting alone."""
    registry, inner = ConstructorRegistry(), False

    def with_ranges(info: StructTypeInfo) -> StructConstructorSpec | None:
        nonlocal inner
        if inner or not (isinstance(info.type, type) and dataclasses.is_dataclass(info.type)):
            return None
        inner = True  # the parser's own rule is asked next
        try:
            found = ConstructorRegistry.get_struct_spec(info)
        finally:
            inner = False
        if not isinstance(found, StructConstructorSpec):
            return None
        hints = hints_of(info.type)
        fields = [
            dataclasses.replace(part, helptext=partial(_help, part.helptext, range_in(hints[part.name])))
            if range_in(hints.get(part.name))
            else part
            for part in found.fields
        ]
        return dataclasses.replace(found, fields=tuple(fields), instantiate=_past_the_parser(found.instantiate))

    registry.struct_rule(with_ranges)
    try:
        with registry:
            yield registry
    except _Refused as refused:
        raise UserError(str(refused)) from refused


def given_paths(arguments: list[str]) -> Iterator[str]:
    """Yield the paths of the settings whose flags are given: "multiplier.slack" for --multiplier.slack."""
    for argument in arguments:
        if argument.startswith("--"):
            group, dot, name = argument[2:].partition("=")[0].replace("-", "_").rpartition(".")
            yield f"{group}{dot}{name.removeprefix('no_')}"


def _help(text: str | Callable[[], str | None] | None, interval: str) -> str:
    """Return the help of a setting with its range."""
    words = text() if callable(text) else text
    return f"{words or ''} (in {interval})".strip()


def _past_the_parser(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes settings of this kind from the values of their flags."""

    @functools.wraps(kind, updated=())
    def made(**values: Any) -> Any:
        try:
            return kind(**values)
        except UserError as error:
            raise _Refused(str(error)) from error

    return made
