"""Functions of a user's own, named as module:function or file.py:function, with the modules beside them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, final

from samba_rl.errors import UserError, did_you_mean


def load_function(where: str) -> Callable[..., Any]:
    """Load the function that 'module:function' or 'file.py:function' names."""
    with importable(home_of(where)):
        return found_at(where)


def home_of(where: str) -> Path:
    """Return the folder in which the modules beside a function lie: that of its file, or else the current one."""
    file = where.rpartition(":")[0]
    return Path(file).parent if file.endswith(".py") else Path()


def found_at(where: str) -> Callable[..., object]:
    """Load a function inside the context of `importable`."""
    home, _, name = where.rpartition(":")
    if not home or not name:
        raise UserError(f"'{where}' does not name a function; write module:function or file.py:function")
    if home.endswith(".py"):
        path = Path(home)
        if not path.is_file():
            raise UserError(f"there is no file {path} (for the function {name})")
        with _explained(f"{path} (for the function {name}) cannot be loaded"):
            module = _load_file(path)
    else:
        with _explained(f"the module '{home}' (for the function {name}) cannot be imported"):
            module = importlib.import_module(home)
    function: Callable[..., object] | None = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{home} has no function '{name}'; {did_you_mean(name, _functions(module))}")
    return function


def _functions(module: ModuleType) -> list[str]:
    """Return the names of the functions and classes that a module defines itself."""
    return [
        name for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]  # fmt: skip


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"samba_rl file {path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module while they are made. It is removed again, because functions of a module that
    # cannot be imported are sent to other processes by value.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


@contextlib.contextmanager
def _explained(problem: str) -> Iterator[None]:
    """Turn what a user's code raises, or its end of the program, into a `UserError` that says where it happened."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{problem}: {error}") from error
    except (Exception, SystemExit) as error:
        what = "it ends the program" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        place = ""
        inside = (__file__, importlib.__file__)
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename not in inside and not frame.filename.startswith("<")
        ]
        if not isinstance(error, SyntaxError) and frames:
            place = f" ({frames[-1].filename}, line {frames[-1].lineno})"
        raise UserError(f"{problem}: {what.splitlines()[0]}{place}") from error


def called(where: str, function: Callable[[], object]) -> object:
    """Return what a user's function returns."""
    with _explained(f"{where} cannot be called without arguments"):
        return function()


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
