"""Names and units of an environment's observations and actions: given by the user, or else derived from its spaces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
from gymnasium.spaces.utils import flatdim

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.tasks.task import Quantity

AnySpace: TypeAlias = gymnasium.Space[Any]
Names: TypeAlias = Sequence[str] | Mapping[str, str]
"""Names such as "angle" or "angle [rad]", or units by name."""
SHOWN = 12
"""Largest number of quantities that are listed in a description."""
_WITH_UNIT = re.compile(r"\s*(?P<name>.*\S)\s*\[(?P<unit>[^\[\]]*)\]\s*")


def default_names(space: AnySpace, kind: str) -> list[str]:
    """Return names of the numbers of a flattened space, with the keys of dicts in them: "angle", "goal 0", "goal 1"."""
    names = _names(space, "")
    plain = [f"{kind} {i}" for i in range(flatdim(space))]
    # Keys may contain anything, so two paths may read alike.
    return (
        plain if names == [""] or len(set(names)) < len(names) else [name or plain[i] for i, name in enumerate(names)]
    )


def _names(space: AnySpace, path: str) -> list[str]:
    parts: list[tuple[object, AnySpace]] = []
    if isinstance(space, gymnasium.spaces.Dict):
        parts = [(key, part) for key, part in space.spaces.items()]
    elif isinstance(space, gymnasium.spaces.Tuple):
        parts = list(enumerate(space.spaces))
    if parts:
        return [name for key, part in parts for name in _names(part, f"{path}.{key}" if path else str(key))]
    size = flatdim(space)
    if not path or size == 1:
        return [path] * size
    return [f"{path} {i}" for i in range(size)]


def named(quantities: tuple[Quantity, ...], names: Names | None, argument: str, owner: str) -> tuple[Quantity, ...]:
    """Return quantities with the names and units that the user gave in their place; None keeps them as they are."""
    if names is None:
        return quantities
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{owner}: {argument} = {names!r}; give a list of names, such as ['angle [rad]', 'speed']")
    pairs = list(names.items()) if isinstance(names, Mapping) else [_split(name) for name in names]
    if len(pairs) != len(quantities):
        known = ", ".join(quantity.name for quantity in quantities)
        raise UserError(
            f"{owner}: {argument} has {len(pairs)} names for {len(quantities)} numbers; name, in this order: {known}"
        )
    given = [name for name, _ in pairs]
    for name in given:
        if not name.strip() or given.count(name) > 1:
            raise UserError(f"{owner}: {argument} has the name {name!r}, empty or twice; give each a name of its own")
    return tuple(
        replace(quantity, name=name, unit=unit) for quantity, (name, unit) in zip(quantities, pairs, strict=True)
    )


def _split(name: str) -> tuple[str, str]:
    """Return the name and the unit of "angle [rad]"."""
    found = _WITH_UNIT.fullmatch(name)
    return (name, "") if found is None else (found["name"], found["unit"])


def described(quantities: Sequence[Quantity]) -> str:
    """Return the number of quantities, and the first of them in their order, with units and ranges."""
    more = f", … and {len(quantities) - SHOWN} more" if len(quantities) > SHOWN else ""
    return f"{len(quantities)}: " + ", ".join(quantity.describe() for quantity in quantities[:SHOWN]) + more
