"""What a file of settings says about a run: the values of flags, and the numbers of the learner."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final, get_args

from samba_rl.agents.settings import Settings
from samba_rl.cli.settings_file import NONE, SettingsFile, flat, read_settings_file
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.improve.limits import FurtherConstraint
from samba_rl.runs.checks import changed, nested

if TYPE_CHECKING:
    pass

SYSTEM = "system"
"""Name of the system in a file; on the command line it has no name."""
LIMITS = "more_constraints"
"""Name of the list of further limits."""


@final
@dataclass(frozen=True)
class FromFile:
    """The values of a file, or of none."""

    file: SettingsFile | None = None

    @staticmethod
    def of(arguments: list[str]) -> FromFile:
        """Read the file that --config names, if it is given."""
        for i, argument in enumerate(arguments):
            name, joined, value = argument.partition("=")
            if name == "--config":
                path = value if joined else "".join(arguments[i + 1 : i + 2])
                if not path or path.startswith("-"):
                    raise UserError("--config: name a TOML file")
                return FromFile(read_settings_file(Path(path)))
        return FromFile()

    def text(self, name: str, default: str) -> str:
        """Return a value that must be text, such as the learner."""
        if self.file is None or name not in self.file.values:
            return default
        found: str = from_plain(str, self.file.values[name], self._where(name))
        return found

    def options(self, kinds: Mapping[str, object]) -> dict[str, object]:
        """Return the values of flags that are no settings, by name; `kinds` are their types."""
        found: dict[str, object] = {}
        for name, value in ({} if self.file is None else self.file.values).items():
            if name in kinds:
                kind = kinds[name]
                if kind == Path | None:
                    path = from_plain(str, value, self._where(name))
                    found[name] = None if path == NONE else Path(path)
                else:
                    plain = None if value == NONE and type(None) in get_args(kind) else value
                    found[name] = from_plain(kind, plain, self._where(name))
        return found

    def settings(self, usual: Settings, options: Mapping[str, object]) -> Settings:
        """Return settings with the values of the file; raise a `UserError` for names that are not known."""
        if self.file is None:
            return usual
        plain = dict(flat(to_plain(usual)))
        limits = {
            f"{LIMITS}.{i}.{key}": value for i in range(100) for key, value in to_plain(FurtherConstraint()).items()
        }
        self.file.check({**plain, **(limits if LIMITS in to_plain(usual) else {}), **options, SYSTEM: ""})
        own = {
            name: None if value == NONE and not isinstance(plain.get(name), str) else value
            for name, value in self.file.values.items()
            if name not in options and name != SYSTEM
        }
        groups = nested(own)
        if LIMITS in groups and isinstance(groups[LIMITS], dict):
            groups[LIMITS] = list(groups[LIMITS].values())
        try:
            return changed(usual, groups)
        except UserError as error:
            raise self._placed(error) from error

    def _where(self, name: str) -> str:
        assert self.file is not None
        return f"{self.file.where(name)}: {name}"

    def _placed(self, error: UserError) -> UserError:
        """Return an error about a setting with the line that it comes from."""
        assert self.file is not None
        found = re.match(r"settings\.([\w.\[\]]+) ", str(error))
        if found is None:
            return UserError(f"{self.file.path}: {error}")
        name = re.sub(r"\[(\d+)\]", r".\1", found[1])
        return UserError(f"{self._where(name)}{str(error).removeprefix(f'settings.{found[1]}')}")
