"""Parsing of arguments: complaints in one line, and the functions, systems and runs that arguments name."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import io
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_type_hints

import tyro

from samba_rl.errors import UserError, did_you_mean
from samba_rl.ranges import check_value

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.tasks.task import Task


def parsed(command: Callable[..., int], prog: str, arguments: list[str]) -> Callable[[], int]:
    """Parse the arguments of a command, check their ranges, and return the call that they ask for."""

    @functools.wraps(command)
    def later(*args: Any, **kwargs: Any) -> Callable[[], int]:
        given = inspect.signature(command).bind(*args, **kwargs).arguments
        for name, hint in get_type_hints(command, include_extras=True).items():
            if name in given:
                check_value(hint, given[name], name)
        return functools.partial(command, *args, **kwargs)

    with one_line(prog):
        call: Callable[[], int] = tyro.cli(later, prog=prog, args=arguments)
    return call


@contextlib.contextmanager
def one_line(prog: str) -> Iterator[None]:
    """Turn the box that the parser draws around a complaint into a `UserError` of one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as exit_:
        if exit_.code != 2:
            raise
        raise UserError(f"{_in_one_line(said.getvalue())}; see {prog} --help") from exit_
    sys.stderr.write(said.getvalue())


def _in_one_line(box: str) -> str:
    """Return the first section of a box, and the options that the parser suggests."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    # The title is part of the frame; on a terminal without box characters it stands above a rule of its own.
    framed = "╭" in plain
    rows = [row.strip("│ ") for row in plain.splitlines() if not row.startswith(("╭", "╰"))]
    sections: list[list[str]] = [[]]
    for row in filter(None, rows):
        if row.strip("─-"):
            sections[-1].append(row)
        else:
            sections.append([])
    message, *others = sections if framed else sections[1:] or sections
    meant = [re.split("[ ,]", row)[0] for part in others for row in part if row.startswith("--")]
    hint = any(part and part[0].startswith("Perhaps you meant") for part in others)
    words = " ".join(message).rstrip(".")
    return words + (f"; perhaps you meant {' or '.join(dict.fromkeys(meant))}" if hint and meant else "")


def load_function(where: str) -> Callable[..., Any]:
    """Load the function that 'module:function' or 'file.py:function' names."""
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
        # Modules in the current folder can be named, as with `python -m`.
        sys.path.insert(0, "")
        try:
            with _explained(f"the module '{home}' (for the function {name}) cannot be imported"):
                module = importlib.import_module(home)
        finally:
            sys.path.remove("")
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{home} has no function '{name}'")
    return function


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
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in inside]
        if not isinstance(error, ImportError | SyntaxError) and frames:
            place = f" ({frames[-1].filename}, line {frames[-1].lineno})"
        raise UserError(f"{problem}: {what.splitlines()[0]}{place}") from error


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


def load_task(where: str) -> Task:
    """Return the paper's system of that name, or the one that 'module:function' or 'file.py:function' returns."""
    from samba_rl.tasks import TASKS, make_task
    from samba_rl.tasks.task import Task

    if ":" not in where:
        if where not in TASKS:
            raise UserError(
                f"no system is called '{where}'; {did_you_mean(where, TASKS)} (for your own, give file.py:function)"
            )
        return make_task(where)
    function = load_function(where)
    with _explained(f"{where}, called without arguments, returned no Task"):
        task = function()
    if not isinstance(task, Task):
        raise UserError(f"{where} returned a {type(task).__name__}; it must return a Task, such as GymTask(...)")
    return task


def load_finished(folder: Path, task: str | None) -> Run:
    """Load a finished run; `task` names the system if it is not one of the paper's."""
    from samba_rl.runs import load_run

    return load_run(folder, None if task is None else load_task(task))
