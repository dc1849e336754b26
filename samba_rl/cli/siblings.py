"""Modules beside a user's file: importable while the file is loaded, and unknown to everybody else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import final


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let modules and packages in a folder be imported inside the context, as `python FILE` would.

    They leave `sys.modules` at the end, so that two users' `helpers.py` cannot be mistaken for each other, and so that
    their functions are sent to other processes by value. A folder that is on `sys.path` anyway needs no help.
    """
    home = folder.resolve()
    if any(Path(place).resolve() == home for place in sys.path):
        yield
        return
    finder = _Beside(home)
    before = set(sys.modules)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in finder.found:
                del sys.modules[name]


@final
class _Beside:
    """Finds modules in one folder; those of the standard library, and installed ones before bare folders, win."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self.found: set[str] = set()
        """Names that were found here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a top-level module is, if it is in the folder."""
        if path is not None or name in sys.stdlib_module_names:
            return None
        spec = PathFinder.find_spec(name, [self._home])
        # Any folder would do as a package without __init__.py, so `data/` must not hide an installed package `data`.
        if spec is None or (spec.loader is None and PathFinder.find_spec(name) is not None):
            return None
        self.found.add(name)
        return spec
