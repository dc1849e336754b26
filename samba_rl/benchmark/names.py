"""Names and order of systems and learners in tables and figures."""

from __future__ import annotations

from collections.abc import Collection

from samba_rl.tasks import TASKS, make_task

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


def place(name: str, known: Collection[str]) -> tuple[int, str]:
    """Return a sort key that puts the known names first, in their order, and then all others by name."""
    return (list(known).index(name) if name in known else len(known), name)
