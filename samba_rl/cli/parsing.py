"""Arguments: what they say, in one line what is wrong with them, and the functions and systems that they name."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import tyro

from samba_rl.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from samba_rl.tasks.task import Task


def parsed(command: Callable[..., int], prog: str, arguments: list[str]) -> Callable[[], int]:
    """The command with its arguments, ready to be called."""

    @functools.wraps(command)
    def later(*args: Any, **kwargs: Any) -> Callable[[], int]:
        return functools.partial(command, *args, **kwargs)

    with one_line(prog):
        call: Callable[[], int] = tyro.cli(later, prog=prog, args=arguments)
    return call


@contextlib.contextmanager
def one_line(prog: str) -> Iterator[None]:
    """Turn the box that the parser draws around a complaint into a `UserError`, which takes one line."""
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
    """What a box says: its first section, and which options the parser thinks were meant."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    # The title stands in the frame, or, where the terminal has no such signs, above a rule of its own.
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


def load_function(where: str) -> Any:
    """The function that 'module:function' or 'file.py:function' names."""
    home, _, name = where.rpartition(":")
    if not home:
        raise UserError(f"'{where}' names no function; write module:function or file.py:function")
    if home.endswith(".py"):
        path = Path(home)
        if not path.is_file():
            raise UserError(f"there is no file {path} (for the function {name})")
        module = _load_file(path)
    else:
        # As `python -m` does: modules beside the caller can be named.
        sys.path.insert(0, "")
        try:
            module = importlib.import_module(home)
        except ImportError as error:
            raise UserError(f"the module '{home}' (for the function {name}) cannot be imported: {error}") from error
        finally:
            sys.path.remove("")
    function = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{home} has no function '{name}'")
    return function


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"samba_rl file {path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up while they are made. It does not stay: what belongs to no importable module is
    # sent to other processes whole.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def load_task(where: str) -> Task:
    """One of the paper's systems by its name, or what 'module:function' or 'file.py:function' gives."""
    from samba_rl.tasks import TASKS, make_task
    from samba_rl.tasks.task import Task

    if ":" not in where:
        if where not in TASKS:
            raise UserError(
                f"no system is called '{where}'; {did_you_mean(where, TASKS)} (one of your own: file.py:function)"
            )
        return make_task(where)
    task = load_function(where)()
    if not isinstance(task, Task):
        raise UserError(f"{where} gave a {type(task).__name__}; it must give a Task, such as GymTask(...)")
    return task
