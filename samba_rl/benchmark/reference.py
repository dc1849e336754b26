"""What the paper reports: its Tables 1 and 2, to stand beside our own."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

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
SYSTEM_NAMES = {
    "safe-pendulum": "Safe Pendulum",
    "safe-cart-pole-double-pendulum": "Safe Cart-Pole Double Pendulum",
    "safe-fetch-reach": "Safe Fetch Reach",
}
PAPER_LIMITS = {"safe-cart-pole-double-pendulum": 0.25, "safe-fetch-reach": 0.75}
"""ξ of Table 2 by system. The paper names two limits and two systems without saying which belongs to which. Only so do
its verdicts fit its quartiles: of SPPILCO, a median of 0.28 breaks the limit on one system and 0.77 keeps it on the
other."""


class LearningRow(NamedTuple):
    """A row of Table 1, for one system."""

    learning_samples: float
    """Real steps."""
    learning_TC: float  # noqa: N815
    """Safety cost of all of them."""
    evaluation_TV: float  # noqa: N815
    """Steps inside the unsafe region, of 10,000."""
    evaluation_TC: float  # noqa: N815
    """Safety cost of 10,000 steps."""


class SafetyRow(NamedTuple):
    """A row of Table 2, for one system."""

    q25: float
    """Quartiles of the safety cost of an episode."""
    q50: float
    q75: float
    expectation_satisfied: bool
    cvar_satisfied: bool
    expected_return: float
    """Of an episode: negative cost."""


@cache
def _tables() -> dict[str, Any]:
    text = files("samba_rl.benchmark").joinpath("reference.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables


def _row(table: str, task: str, learner: str) -> list[Any] | None:
    row: list[Any] | None = _tables()[table].get(task, {}).get(learner)
    return row


def learning_row(task: str, learner: str) -> LearningRow | None:
    """Table 1 for a learner on a system, in plain numbers; None where it diverged or there is no such row."""
    row = _row("table1", task, learner)
    # The paper prints thousands. Rounding takes away what the product of two floats adds: 0.054 · 1000 is 54.
    return None if row is None else LearningRow(*(round(1000 * value, 6) for value in row))


def safety_row(task: str, learner: str) -> SafetyRow | None:
    """Table 2 for a learner on a system; None where it diverged or there is no such row."""
    row = _row("table2", task, learner)
    return None if row is None else SafetyRow(*row)


def learner_order(table: int) -> tuple[str, ...]:
    """The learners as the paper's Table 1 or 2 lists them."""
    return tuple(_tables()[f"table{table}"]["safe-fetch-reach"])
