"""Trees of settings: the value of one of their fields, and copies with another one."""

from __future__ import annotations

import dataclasses
from typing import Any


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """The values of a tree of dataclasses and tuples, by their paths."""
    parts: dict[str, Any] = {}
    if dataclasses.is_dataclass(value):
        parts = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    elif isinstance(value, tuple):
        parts = {str(i): part for i, part in enumerate(value)}
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        found |= leaves(part, f"{path}.{name}" if path else name)
    return found


def changed(value: Any, path: str, new: Any) -> Any:
    """A copy of a tree with another value at a path."""
    name, _, rest = path.partition(".")
    if isinstance(value, tuple):
        i = int(name)
        return (*value[:i], changed(value[i], rest, new) if rest else new, *value[i + 1 :])
    return dataclasses.replace(value, **{name: changed(getattr(value, name), rest, new) if rest else new})
