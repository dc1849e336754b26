"""The real systems: the three of the paper, and any Gymnasium environment."""

from __future__ import annotations

import dataclasses

from samba_rl.errors import UserError, did_you_mean
from samba_rl.tasks.cart_double_pendulum import SafeCartPoleDoublePendulum
from samba_rl.tasks.fetch_reach import SafeFetchReach
from samba_rl.tasks.pendulum import SafePendulum
from samba_rl.tasks.task import Task

__all__ = ["TASKS", "SafeCartPoleDoublePendulum", "SafeFetchReach", "SafePendulum", "make_task"]

TASKS: dict[str, type[SafePendulum] | type[SafeCartPoleDoublePendulum] | type[SafeFetchReach]] = {
    "safe-pendulum": SafePendulum,
    "safe-cart-pole-double-pendulum": SafeCartPoleDoublePendulum,
    "safe-fetch-reach": SafeFetchReach,
}
"""The systems of the paper, by name."""


def make_task(name: str, **settings: object) -> Task:
    """Make the system called `name`; `settings` replace fields such as `horizon` or `hazard`."""
    if name not in TASKS:
        raise UserError(f"no system is called '{name}'; {did_you_mean(name, TASKS)}")
    cls = TASKS[name]
    known = {field.name for field in dataclasses.fields(cls)}
    for setting in settings:
        if setting not in known:
            raise UserError(f"{name} has no setting '{setting}'; {did_you_mean(setting, known)}")
    return cls(**settings)  # type: ignore[arg-type]  # the names are checked above
