"""Names and order of systems and learners in tables and figures."""

from __future__ import annotations

from collections.abc import Collection

from samba_rl.errors import UserError
from samba_rl.tasks import TASKS, make_task
from samba_rl.tasks.task import Task

LEARNER_NAMES = {
    "trpo": "TRPO",
    "ppo": "PPO",
    "planet": "PlaNet",
    "ppilco": "PPILCO",
    "planet-rs": "PlaNet w RS",
    "cpo": "CPO",
    "strpo": "STRPO",
    "sppo": "SPPO",
    "sppilco": "SPPILCO",
    "samba": "SAMBA",
}
"""The paper's names of the learners."""


def learner_name(learner: str) -> str:
    """Return the paper's name of a learner, or the name itself for a user's own learner."""
    return LEARNER_NAMES.get(learner, learner)


def system_name(task: str) -> str:
    """Return the title of a system, or the name itself for a user's own system."""
    return make_task(task).title if task in TASKS else task


def task_named(name: str) -> Task:
    """Make the system of that name: one of the paper's, or of the generality suite."""
    if name in TASKS:
        return make_task(name)
    # Imported here because it needs Gymnasium, which the paper's pendulums do without.
    try:
        from samba_rl.benchmark.systems import make_system
    except ImportError as error:
        raise UserError(f"no system is called '{name}'; the generality suite needs Gymnasium ({error})") from error
    return make_system(name)


def place(name: str, known: Collection[str]) -> tuple[int, str]:
    """Return a sort key that puts the known names first, in their order, and then all others by name."""
    return (list(known).index(name) if name in known else len(known), name)
