"""Settings in TOML files: read with the line of every mistake, and written with the help of every setting."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from samba_rl.data.files import TEXT_LIMIT, check_regular
from samba_rl.errors import UserError, did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NONE = "none"
"""Stands for None, which TOML does not have."""

_TABLE = re.compile(r"\s*\[{1,2}\s*(?P<path>[^\[\]]+?)\s*\]{1,2}\s*(#.*)?")
_KEY = re.compile(r"\s*(?P<path>[\w.\-\"' ]+?)\s*=")


@final
@dataclass(frozen=True)
class SettingsFile:
    """The values of a TOML file, by their names on the command line."""

    path: Path
    """The file."""
    values: Mapping[str, object]
    """Values by name, such as constraint.limit; tables in lists have numbers, as in more_constraints.0.kind."""
    lines: Mapping[str, int]
    """Line of each name, as far as it was found."""

    def where(self, name: str) -> str:
        """Return the file and the line of a name, for messages."""
        found = self.lines.get(name) or self.lines.get(re.sub(r"\.\d+(?=\.|$)", "", name))
        return f"{self.path}, line {found}" if found else str(self.path)

    def check(self, known: Mapping[str, object]) -> None:
        """Raise a `UserError` for the first name that is not known."""
        for name in self.values:
            if name not in known:
                raise UserError(f"{self.where(name)}: there is no setting '{name}'; {did_you_mean(name, known)}")


def read_settings_file(path: Path) -> SettingsFile:
    """Read a TOML file."""
    try:
        check_regular(path)
        if path.stat().st_size > TEXT_LIMIT:
            raise UserError(f"{path} is too large for a file of settings")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}; give a TOML file of settings") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a TOML file: {error}") from error
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not a TOML file: {error}") from error
    return SettingsFile(path, dict(flat(content)), _lines(text))


def flat(values: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of nested groups by their names; dashes in names count as underscores, as in flags."""
    for key, value in values.items():
        name = f"{path}{key.replace('-', '_')}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
            for i, part in enumerate(value):
                yield from flat(part, f"{name}.{i}.")
        else:
            yield name, value


def _lines(text: str) -> dict[str, int]:
    """Return the line of each name in a TOML file; a parser would be exact, but only messages depend on it."""
    table, found = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.fullmatch(line):
            table = _plain(match["path"]) + "."
        elif match := _KEY.match(line):
            found.setdefault(table + _plain(match["path"]), number)
    return found


def _plain(path: str) -> str:
    return re.sub(r"[\s\"']", "", path).replace("-", "_")


# Writing --------------------------------------------------------------------------------------------------------------


def toml_of(head: str, settings: DataclassInstance) -> str:
    """Return settings as TOML below a head, with a table for each group and the help of each value above it."""
    tables: list[tuple[str, DataclassInstance]] = []
    lines = [head, *_assignments(settings, "", tables)]
    while tables:
        name, group = tables.pop(0)
        inner: list[tuple[str, DataclassInstance]] = []
        path = name.removesuffix("[]")
        lines += ["", f"[{path}]" if path == name else f"[[{path}]]"]
        lines += _assignments(group, f"{path}.", inner)
        tables = [*inner, *tables]
    return "\n".join(lines) + "\n"


def _assignments(group: DataclassInstance, path: str, tables: list[tuple[str, DataclassInstance]]) -> list[str]:
    """Return the lines of a group's own values; groups in it are added to `tables`."""
    lines: list[str] = []
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            tables.append((f"{path}{field.name}", value))
        elif isinstance(value, tuple) and any(is_dataclass(part) for part in value):
            tables += [(f"{path}{field.name}[]", part) for part in value]
        else:
            lines += assignment(field.name, value, help_of(type(group)).get(field.name, ""))
    return lines


def assignment(name: str, value: object, text: str) -> list[str]:
    """Return the lines of a value below its help."""
    return ["", *(f"# {line}" for line in textwrap.wrap(text, 110)), f"{name} = {toml_value(value)}"]


def toml_value(value: object) -> str:
    """Return a value as TOML has it."""
    if value is None:
        return json.dumps(NONE)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False)


def help_of(kind: type) -> dict[str, str]:
    """Return the sentence below each field of a dataclass, by name; those of its bases included."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base is object or not is_dataclass(base):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError, SyntaxError):
            # Without its source a file has no comments, which is all that is missing.
            continue
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                texts[field.target.id] = " ".join(text.value.value.split())
    return texts
