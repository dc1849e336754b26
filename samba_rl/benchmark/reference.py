"""The paper's Tables 1 and 2, for comparison with our own results."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

PAPER_LIMITS = {"safe-cart-pole-double-pendulum": 0.25, "safe-fetch-reach": 0.75}
"""ξ of Table 2 by system. The paper names two limits and two systems without saying which belongs to which; only this
assignment fits its verdicts and its quartiles. SPPILCO, for example, violates the limit on one system with a median of
0.28 and keeps it on the other with a median of 0.77."""


class LearningRow(NamedTuple):
    """A row of Table 1, for one system."""

    learning_samples: float
    """Number of real steps during learning."""
    learning_TC: float  # noqa: N815
    """Total safety cost during learning."""
    evaluation_TV: float  # noqa: N815
    """Number of steps inside the unsafe region, out of 10,000 evaluation steps."""
    evaluation_TC: float  # noqa: N815
    """Total safety cost of 10,000 evaluation steps."""


class SafetyRow(NamedTuple):
    """A row of Table 2, for one system."""

    q25: float
    """Lower quartile of the safety cost of an episode."""
    q50: float
    """Median of the safety cost of an episode."""
    q75: float
    """Upper quartile of the safety cost of an episode."""
    expectation_satisfied: bool
    """Whether the expected safety cost of an episode is within the limit."""
    cvar_satisfied: bool
    """Whether CVaR of the safety cost of an episode is within the limit."""
    expected_return: float
    """Expected return (negative cost) of an episode."""


@cache
def _tables() -> dict[str, Any]:
    text = files("samba_rl.benchmark").joinpath("reference.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables


def _row(table: str, task: str, learner: str) -> list[Any] | None:
    row: list[Any] | None = _tables()[table].get(task, {}).get(learner)
    return row


def learning_row(task: str, learner: str) -> LearningRow | None:
    """Return the row of Table 1 for a learner on a system, or None if it diverged or the paper has no such row."""
    row = _row("table1", task, learner)
    # The paper prints thousands. Rounding removes floating-point noise: 0.054 · 1000 should be exactly 54.
    return None if row is None else LearningRow(*(round(1000 * value, 6) for value in row))


def safety_row(task: str, learner: str) -> SafetyRow | None:
    """Return the row of Table 2 for a learner on a system, or None if it diverged or the paper has no such row."""
    row = _row("table2", task, learner)
    return None if row is None else SafetyRow(*row)


def learner_order(table: int) -> tuple[str, ...]:
    """Return the learners in the order of the paper's Table 1 or 2."""
    return tuple(_tables()[f"table{table}"]["safe-fetch-reach"])
