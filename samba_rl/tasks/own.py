"""Systems by the name that a user gives them."""

from __future__ import annotations

from samba_rl.errors import UserError, did_you_mean
from samba_rl.own import called, found_at, home_of, importable
from samba_rl.tasks import TASKS, make_task
from samba_rl.tasks.task import Task


def load_task(where: str) -> Task:
    """Return the paper's system of that name, or the one that 'module:function' or 'file.py:function' returns."""
    if ":" not in where:
        if where not in TASKS:
            raise UserError(
                f"no system is called '{where}'; {did_you_mean(where, TASKS)} (for your own, give file.py:function)"
            )
        return make_task(where)
    with importable(home_of(where)):
        task = called(where, found_at(where))
    if not isinstance(task, Task):
        raise UserError(f"{where} returned a {type(task).__name__}; it must return a Task, such as GymTask(...)")
    return task
