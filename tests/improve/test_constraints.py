"""Constraints by hand, made from settings, and their results; CVaR has its own file."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest
import torch

from samba_rl import UserError
from samba_rl.improve.constraints import KINDS, Chance, Constraint, CVaR, Expectation, bind
from samba_rl.improve.limits import ConstraintSettings, FurtherConstraint
from samba_rl.improve.results import ConstraintResult
from tests.traces import by_hand, double

# Sums 0.5, 0.6, 2.0, 0.0.
SAFETY = [[0.0, 0.5, 0.0], [0.2, 0.2, 0.2], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
FOUR = by_hand(safety=SAFETY)


def test_expectation_by_hand() -> None:
    constraint = Expectation(name="hazard", limit=0.1)
    assert constraint.measure(FOUR) == pytest.approx(3.1 / 4)
    assert torch.allclose(constraint.growth(FOUR), double(SAFETY))
    assert torch.equal(constraint.progress(FOUR), torch.zeros(4, 3, dtype=torch.float64))


def test_chance_counts_a_trajectory_once_at_its_first_unsafe_step() -> None:
    traces = by_hand(violation=[[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    constraint = Chance(name="hazard", limit=0.1)
    assert constraint.amounts(traces).tolist() == [1, 1, 0, 1, 0]
    assert constraint.measure(traces) == pytest.approx(3 / 5)
    assert constraint.growth(traces).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0] * 4, [0, 0, 0, 1], [0] * 4]
    assert constraint.progress(traces).tolist() == [[0, 0, 1, 1], [0, 1, 1, 1], [0] * 4, [0] * 4, [0] * 4]


def test_chance_per_step_is_the_share_of_unsafe_steps() -> None:
    traces = by_hand(violation=[[0, 1, 1, 0], [1, 0, 0, 0]])
    constraint = Chance(name="hazard", limit=0.1, per_step=True)
    assert constraint.amounts(traces).tolist() == [0.5, 0.25] and constraint.measure(traces) == pytest.approx(3 / 8)
    assert constraint.growth(traces).tolist() == [[0, 0.25, 0.25, 0], [0.25, 0, 0, 0]]
    assert float(constraint.progress(traces).abs().max()) == 0


@pytest.mark.parametrize("kind", [Expectation, CVaR, Chance])
@pytest.mark.parametrize("per_step", [False, True])
def test_each_looks_at_its_own_column(kind: type[Constraint], per_step: bool) -> None:
    quiet, loud = [[0.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]
    both = by_hand(safety=[quiet, loud], violation=[quiet, loud])
    alone = by_hand(safety=loud, violation=loud)
    first, second, only = (kind(name="hazard", limit=0.1, per_step=per_step, column=i) for i in (0, 1, 0))
    assert first.measure(both) == 0 and second.measure(both) == only.measure(alone) > 0
    assert torch.equal(second.growth(both), only.growth(alone)) and float(first.growth(both).max()) == 0
    assert torch.equal(second.progress(both), only.progress(alone))


# From settings --------------------------------------------------------------------------------------------------------


def test_a_kind_is_bound_to_each_safety_cost_or_to_the_named_one() -> None:
    names = ("hazard", "wall")
    assert bind(CVaR, ConstraintSettings(limit=0.5, alpha=0.8), names) == (
        CVaR(name="hazard", limit=0.5, column=0, alpha=0.8),
        CVaR(name="wall", limit=0.5, column=1, alpha=0.8),
    )
    assert bind(Chance, ConstraintSettings(limit=0.1, of="wall"), names) == (Chance(name="wall", limit=0.1, column=1),)
    assert bind(Expectation, ConstraintSettings(limit=0.02, per="step", of="hazard"), names) == (
        Expectation(name="hazard", limit=0.02, column=0, per_step=True),
    )
    assert bind(CVaR, ConstraintSettings(), ()) == ()


def test_every_kind_has_the_word_that_files_use() -> None:
    assert {"cvar": CVaR, "expectation": Expectation, "chance": Chance} == KINDS
    assert all(FurtherConstraint(kind=kind).kind == kind for kind in ("cvar", "expectation", "chance"))


def test_in_words_each_says_what_is_limited() -> None:
    kinds = [Expectation(name="wall", limit=1), Chance(name="wall", limit=1), CVaR(name="wall", limit=1, alpha=0.95)]
    words = [one.in_words() for kind in kinds for one in (kind, dataclasses.replace(kind, per_step=True))]
    assert len(set(words)) == 6 and all("wall" in each for each in words) and "0.95" in words[4]


def test_an_unknown_safety_cost_is_refused() -> None:
    with pytest.raises(UserError, match="no safety cost is called 'hazrad'; did you mean 'hazard'"):
        bind(CVaR, ConstraintSettings(of="hazrad"), ("hazard", "wall"))


@pytest.mark.parametrize("per_step", [False, True])
def test_a_discount_weighs_later_steps_less(per_step: bool) -> None:
    share = 1 / 3 if per_step else 1.0
    mean = Expectation(name="hazard", limit=0.1, per_step=per_step, gamma=0.5)
    sums = double([0.25, 0.2 + 0.1 + 0.05, 1.5, 0.0]) * share
    assert torch.allclose(mean.amounts(FOUR), sums) and torch.allclose(mean.growth(FOUR).sum(1), sums)
    assert torch.allclose(mean.growth(FOUR)[1], double([0.2, 0.1, 0.05]) * share)
    # α = 0.5: ν is the second smallest sum, 0.25; the excess of the others counts twice.
    tail = CVaR(name="hazard", limit=0.1, per_step=per_step, gamma=0.5, alpha=0.5)
    assert torch.allclose(tail.amounts(FOUR), sums)
    assert tail.measure(FOUR) == pytest.approx((0.25 + 2 * (0.1 + 1.25) / 4) * share)
    assert torch.allclose(tail.growth(FOUR)[2], 2 * double([0.75, 0.5, 0.0]) * share)
    assert torch.allclose(tail.progress(FOUR)[2], double([-0.25, 0.75, 1.25]) * share / max(0.25 * share, 0.1))
    assert "discounted hazard cost" in tail.in_words() and "discounted" not in Expectation(name="x", limit=1).in_words()


def test_the_discount_comes_from_the_settings() -> None:
    for kind in (CVaR, Expectation):
        (constraint,) = bind(kind, ConstraintSettings(gamma=0.95), ("hazard",))
        assert constraint.gamma == 0.95


@pytest.mark.parametrize("per", ["trajectory", "step"])
def test_the_floor_of_nu_comes_from_the_settings(per: Literal["trajectory", "step"]) -> None:
    (made,) = bind(CVaR, ConstraintSettings(nu_floor=0.5, limit=2.0, per=per), ("hazard",))
    assert made == CVaR(name="hazard", limit=2.0, nu_floor=0.5, per_step=per == "step")


# Results --------------------------------------------------------------------------------------------------------------


def test_a_result_has_the_value_beside_its_limit() -> None:
    constraint = CVaR(name="hazard", limit=1.3, alpha=0.5)
    result = constraint.result(constraint.amounts(FOUR))
    assert (result.kind, result.words) == ("CVaR 0.5", "CVaR 0.5 of the hazard cost of a trajectory")
    assert (result.value, result.limit) == pytest.approx((1.3, 1.3))
    kinds = [one.result(one.amounts(FOUR)).kind for one in (Expectation(name="a", limit=1), Chance(name="a", limit=1))]
    assert kinds == ["mean", "share"]


def test_a_limit_is_kept_up_to_the_limit_itself() -> None:
    result = ConstraintResult("mean", "mean of the hazard cost", 0.75, 0.75)
    assert result.kept and not dataclasses.replace(result, value=0.76).kept


def test_results_of_older_files_are_translated() -> None:
    words = "CVaR 0.9 of the hazard cost of a trajectory"
    upgraded = ConstraintResult.upgrade([words, 0.5, 0.75])
    assert ConstraintResult(**upgraded) == ConstraintResult("CVaR 0.9", words, 0.5, 0.75)
    assert ConstraintResult.upgrade({"kind": "mean"}) == {"kind": "mean"}
