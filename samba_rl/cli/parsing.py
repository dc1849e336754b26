"""Parsing of arguments: complaints in one line, and the functions, systems and runs that arguments name."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import tyro

from samba_rl.cli.siblings import importable
from samba_rl.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.tasks.gym.adapters import Source
    from samba_rl.tasks.task import Task


def parsed(command: Callable[..., int], prog: str, arguments: list[str]) -> Callable[[], int]:
    """Parse the arguments of a command and return the call that they ask for."""

    @functools.wraps(command)
    def later(*args: Any, **kwargs: Any) -> Callable[[], int]:
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
    with importable(_home(where)):
        return _found(where)


def _home(where: str) -> Path:
    """Return the folder in which the modules beside a function lie: that of its file, or else the current one."""
    file = where.rpartition(":")[0]
    return Path(file).parent if file.endswith(".py") else Path()


def _found(where: str) -> Callable[..., Any]:
    home, _, name = where.rpartition(":")
    if not home:
        raise UserError(f"'{where}' does not name a function; write module:function or file.py:function")
    if home.endswith(".py"):
        path = Path(home)
        if not path.is_file():
            raise UserError(f"there is no file {path} (for the function {name})")
        module = _load_file(path)
    else:
        try:
            module = importlib.import_module(home)
        except ImportError as error:
            raise UserError(f"the module '{home}' (for the function {name}) cannot be imported: {error}") from error
    function: Callable[..., Any] | None = getattr(module, name, None)
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
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be loaded: {_at(error, path)}{type(error).__name__}: {error}") from error
    finally:
        del sys.modules[spec.name]
    return module


def _at(error: Exception, path: Path) -> str:
    """Return the last line of the file that an error passed through, as "line N: "; empty if it did not run."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    return f"line {lines[-1]}: " if lines else ""


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
    with importable(_home(where)):
        task = _called(where, _found(where))
    if not isinstance(task, Task):
        raise UserError(f"{where} returned a {type(task).__name__}; it must return a Task, such as GymTask(...)")
    return task


def load_system(where: str) -> Task | Source:
    """Return the task or the environment that a name, a Gymnasium id, or the function of a user's own stands for."""
    import gymnasium

    from samba_rl.tasks import TASKS, make_task
    from samba_rl.tasks.task import Task

    if where in TASKS:
        return make_task(where)
    home, _, name = where.rpartition(":")
    if not home or not name.isidentifier() or name in gymnasium.registry:
        return where
    with importable(_home(where)):
        function = _found(where)
        if isinstance(function, type) and issubclass(function, gymnasium.Env):
            return function
        made = _called(where, function)
    if isinstance(made, gymnasium.Env):
        made.close()
        return function
    if isinstance(made, Task):
        return made
    raise UserError(
        f"{where} returned a {type(made).__name__}; it must return a Task, such as GymTask(...), or an environment"
    )


def _called(where: str, function: Callable[[], object]) -> object:
    """Return what a user's function returns."""
    try:
        return function()
    except UserError:
        raise
    except Exception as error:
        at = _at(error, Path(where.rpartition(":")[0]))
        raise UserError(f"{where} cannot be called: {at}{type(error).__name__}: {error}") from error


def load_finished(folder: Path, task: str | None) -> Run:
    """Load a finished run; `task` names the system if it is not one of the paper's."""
    from samba_rl.runs import load_run

    return load_run(folder, None if task is None else load_task(task))


def asked(task: Task, episodes: int | None, usual: int) -> int:
    """Return the number of real episodes to run: a rig, which runs them one by one, runs none unasked."""
    if episodes is None and not task.parallel:
        raise UserError(f"{task.name} runs one episode at a time; say how many it may run with --episodes N")
    return usual if episodes is None else episodes
