"""Parsing of arguments: complaints in one line, and the functions, systems and runs that arguments name."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import tyro

from samba_rl.errors import UserError
from samba_rl.own import called, found_at, home_of, importable, load_function as load_function
from samba_rl.ranges import check_value

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.tasks.gym.adapters import Source
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


def load_task(where: str) -> Task:
    """Return the paper's system of that name, or the one that 'module:function' or 'file.py:function' returns."""
    from samba_rl.tasks.own import load_task as load

    return load(where)


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
    with importable(home_of(where)):
        function = found_at(where)
        if isinstance(function, type) and issubclass(function, gymnasium.Env):
            return function
        made = called(where, function)
    if isinstance(made, gymnasium.Env):
        made.close()
        return function
    if isinstance(made, Task):
        return made
    raise UserError(
        f"{where} returned a {type(made).__name__}; it must return a Task, such as GymTask(...), or an environment"
    )


def load_finished(folder: Path, task: str | None) -> Run:
    """Load a finished run; `task` names the system if it is not one of the paper's."""
    from samba_rl.runs import load_run

    return load_run(folder, None if task is None else load_task(task))


def asked(task: Task, episodes: int | None, usual: int) -> int:
    """Return the number of real episodes to run: a rig, which runs them one by one, runs none unasked."""
    from samba_rl.tasks.rig import RigTask

    if isinstance(task, RigTask):
        raise task.outside()
    if episodes is None and not task.parallel:
        raise UserError(f"{task.name} runs one episode at a time; say how many it may run with --episodes N")
    return usual if episodes is None else episodes
