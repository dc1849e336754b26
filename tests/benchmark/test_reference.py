"""The paper's tables as data."""

from __future__ import annotations

import pytest

from samba_rl.benchmark.names import LEARNER_NAMES
from samba_rl.benchmark.reference import (
    PAPER_LIMITS,
    LearningRow,
    SafetyRow,
    learner_order,
    learning_row,
    safety_row,
)
from samba_rl.learners import LEARNERS

DOUBLE, FETCH = "safe-cart-pole-double-pendulum", "safe-fetch-reach"


def test_thousands_become_plain_numbers() -> None:
    assert learning_row("safe-pendulum", "samba") == LearningRow(1600, 10, 1500, 2000)
    assert learning_row(DOUBLE, "samba") == LearningRow(5000, 54, 850, 1400)
    assert learning_row(FETCH, "trpo") == LearningRow(1_000_000, 790_000, 1800, 2700)


def test_rows_of_constraint_satisfaction() -> None:
    assert safety_row(DOUBLE, "sppo") == SafetyRow(0.19, 0.24, 0.29, True, False, -27)
    assert safety_row(FETCH, "samba") == SafetyRow(0.0, 0.05, 0.19, True, True, -2.27)


@pytest.mark.parametrize(("task", "learner"), [(FETCH, "planet-rs"), (FETCH, "mine"), ("mine", "samba"), ("", "")])
def test_rows_that_the_paper_does_not_have_are_none(task: str, learner: str) -> None:
    assert learning_row(task, learner) is None
    assert safety_row(task, learner) is None


def test_the_paper_has_no_constraint_satisfaction_of_the_pendulum() -> None:
    assert safety_row("safe-pendulum", "samba") is None


def test_every_learner_has_a_name_and_a_place() -> None:
    assert set(LEARNER_NAMES) == set(LEARNERS) == set(learner_order(1)) == set(learner_order(2))
    assert learner_order(1)[:3] == ("trpo", "ppo", "planet") and learner_order(1)[-1] == "samba"
    assert learner_order(2)[:3] == ("ppo", "ppilco", "planet") and learner_order(2)[-1] == "samba"


@pytest.mark.parametrize("learner", [name for name in LEARNERS if name != "planet-rs"])
@pytest.mark.parametrize("task", list(PAPER_LIMITS))
def test_rows_are_complete_and_consistent(task: str, learner: str) -> None:
    row, learning = safety_row(task, learner), learning_row(task, learner)
    assert row is not None and learning is not None
    assert row.q25 <= row.q50 <= row.q75 and row.expected_return < 0
    # CVaR is at least the expectation.
    assert row.expectation_satisfied or not row.cvar_satisfied
    assert min(learning) > 0


@pytest.mark.parametrize(("task", "limit"), list(PAPER_LIMITS.items()))
def test_the_verdicts_fit_our_assignment_of_the_limits(task: str, limit: float) -> None:
    """If CVaR is within the limit, so is the upper quartile; if the expectation is not, neither is the quartile."""
    rows = {name: safety_row(task, name) for name in LEARNERS}
    assert all(row.q75 <= limit for row in rows.values() if row is not None and row.cvar_satisfied)
    assert not any(row.q75 <= limit for row in rows.values() if row is not None and not row.expectation_satisfied)
