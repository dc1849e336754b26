"""Certificates: bounds on the real value of each constraint."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.improve.constraints import Chance, Constraint, CVaR, Expectation
from samba_rl.improve.policies import UniformPolicy
from samba_rl.runs.bounds import upper_bound
from samba_rl.runs.certify import Certificate, CertifiedLimit, certify
from samba_rl.tasks.rollout import RealSource
from tests.line import Line

TASK = Line(horizon=4)
PUSHED = UniformPolicy((-0.5,), (1.0,))


def still(observation: Tensor, generator: Generator) -> Tensor:
    return torch.zeros_like(observation)


def found(*constraints: Constraint, task: Line = TASK, episodes: int = 200, **more: float) -> Certificate:
    return certify(task, PUSHED, constraints, episodes=episodes, seed=5, **more)  # type: ignore[arg-type]


def test_each_bound_is_that_of_its_amounts_and_shares_the_confidence() -> None:
    task = dataclasses.replace(TASK, horizon=10)
    constraints = (
        CVaR(name="edge", limit=5.0, alpha=0.8),
        Expectation(name="edge", limit=0.5, per_step=True),
        Chance(name="edge", limit=0.9),
    )
    result = found(*constraints, task=task, step_bound=2.0, confidence=0.94)
    traces = RealSource(task.world())(PUSHED, 200, Generator().manual_seed(5))
    # δ = 0.06 in three parts; a trajectory costs at most 2 · 10, a step at most 2.
    for one, constraint, high, alpha in zip(
        result.limits, constraints, (20.0, 2.0, 1.0), (0.8, 0.0, 0.0), strict=True
    ):  # fmt: skip
        amounts = constraint.amounts(traces)
        assert one.value == pytest.approx(float(constraint.value(amounts))) and one.value > 0
        assert one.bound == pytest.approx(upper_bound(amounts.numpy(), high, 0.98, alpha=alpha))
        assert one.bound > one.value and one.limit == constraint.limit and one.words == constraint.in_words()
    assert (result.episodes, result.seed, result.confidence, result.step_bound) == (200, 5, 0.94, 2.0)


def test_a_policy_that_stays_away_is_certified_with_enough_episodes() -> None:
    limits = (CVaR(name="edge", limit=0.5, alpha=0.9),)
    few, enough = (certify(TASK, still, limits, episodes=n, seed=0) for n in (100, 600))
    assert not few.certified and enough.certified
    (one,) = few.limits
    assert one.value == 0 and one.needed == one.least and one.needed is not None and 100 < one.needed <= 600
    again = certify(TASK, still, limits, episodes=one.needed, seed=1)
    assert again.certified and again.limits[0].bound > 0.49
    assert few.verdicts() == [
        f"With 95 % confidence CVaR 0.9 of the edge cost of a trajectory is at most {one.shown_bound:g} (limit 0.5): "
        f"not certified; about {one.needed:,} episodes would be needed, if the policy behaves as in these."
    ]
    (words,) = enough.verdicts()
    assert words.endswith("(limit 0.5): certified.")


def test_the_bound_is_never_below_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the first fifth of the episodes only chooses ν: here these few are the ones that cost something."""
    amounts = torch.zeros(2000, dtype=torch.float64)
    amounts[:100] = 4.0
    monkeypatch.setattr(CVaR, "amounts", lambda self, traces: amounts)
    monkeypatch.setattr("samba_rl.runs.evaluation.BATCH", 2000)
    assert (
        upper_bound(amounts.numpy(), 4.0, 0.95, alpha=0.2) < 0.02
    )  # ν is 0, and none of the other 1600 costs anything
    (one,) = certify(TASK, still, (CVaR(name="edge", limit=0.1, alpha=0.2),), episodes=2000, seed=0).limits
    # The worst 1600 are 100 times 4, and zeros.
    assert one.value == pytest.approx(0.25) and one.bound == one.value and not one.certified


def test_costs_in_single_precision_may_exceed_the_bound_by_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "safety", lambda self, x, u=None: 1 + 1e-7 + 0 * x)
    (one,) = found(Expectation(name="edge", limit=4.0)).limits
    assert one.bound == pytest.approx(4.0) and one.value == pytest.approx(4.0)
    monkeypatch.setattr(Line, "safety", lambda self, x, u=None: 1 + 1e-5 + 0 * x)
    with pytest.raises(UserError, match=r"the edge cost of a step is 1.00001, outside \[0, 1\]"):
        found(Expectation(name="edge", limit=4.0))


def limit(bound: float, value: float = 0.1, xi: float = 0.75, needed: int | None = 5000) -> CertifiedLimit:
    return CertifiedLimit("mean of the edge cost", xi, value, bound, needed, 900)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (limit(0.70001), "is at most 0.701 (limit 0.75): certified."),
        (limit(0.7), "is at most 0.7 (limit 0.75): certified."),
        (limit(0.75049, xi=0.7505), "is at most 0.7505 (limit 0.7505): certified."),
        (limit(0.0), "is at most 0 (limit 0.75): certified."),
        (limit(0.75001), "is at most 0.751 (limit 0.75): not certified; about 5,000 episodes would be needed, if"),
        (limit(123.4), "is at most 124 (limit 0.75): not certified"),
        (limit(1.0, needed=None), "not certified; more than 10,000,000 episodes would be needed"),
        (limit(1.0, 0.8, needed=None), "not certified; the measured value, 0.8, is itself above the limit."),
    ],
)
def test_the_verdict_rounds_up_and_never_contradicts_itself(one: CertifiedLimit, words: str) -> None:
    assert one.verdict(0.95).startswith("With 95 % confidence mean of the edge cost is at most ")
    assert words in one.verdict(0.95)


def test_all_limits_must_be_certified() -> None:
    both = Certificate((limit(0.5), limit(0.9)), 0.95, "betting", 10, 1.0, 0, deterministic=False)
    assert not both.certified and dataclasses.replace(both, limits=both.limits[:1]).certified
    plain = json.loads(json.dumps(both.to_json()))
    assert plain["certified"] is False and [one["certified"] for one in plain["limits"]] == [True, False]
    assert [one["verdict"] for one in plain["limits"]] == both.verdicts() and plain["episodes"] == 10


def test_the_dkw_bound_is_there_for_comparison() -> None:
    limits = (Expectation(name="edge", limit=0.5),)
    betting, dkw = (
        certify(TASK, still, limits, episodes=300, seed=0, method=method) for method in ("betting", "dkw")
    )  # fmt: skip
    assert betting.limits[0].bound < dkw.limits[0].bound and (betting.method, dkw.method) == ("betting", "dkw")


def test_a_step_above_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "safety", lambda self, x, u=None: 3 + 0 * x)
    message = r"the edge cost of a step is 3, outside \[0, 1\]; give the largest safety cost .* as --step-bound"
    for constraint in (CVaR(name="edge", limit=1.0), Expectation(name="edge", limit=1.0, per_step=True)):
        with pytest.raises(UserError, match=message):
            found(constraint)
        assert found(constraint, step_bound=3.0).limits[0].value > 1
    # Whether a trajectory is unsafe does not depend on what a step costs.
    assert found(Chance(name="edge", limit=0.1)).limits[0].value == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"confidence": 1.0}, "confidence = 1.0"),
        ({"confidence": 0.2}, "confidence = 0.2"),
        ({"step_bound": 0.0}, "step_bound = 0.0"),
        ({"episodes": 0}, "cannot evaluate 0 episodes"),
    ],
)
def test_mistakes_are_named(more: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        found(Chance(name="edge", limit=0.1), **more)  # type: ignore[arg-type]


def test_progress_is_told_and_a_rig_runs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samba_rl.runs.evaluation.BATCH", 40)
    told: list[int] = []
    limits = (Chance(name="edge", limit=0.1),)
    certify(TASK, still, limits, episodes=100, seed=0, tell=told.append)
    assert told == [40, 80, 100]
    told.clear()
    certify(dataclasses.replace(TASK, parallel=False), still, limits, episodes=3, seed=0, tell=told.append)
    assert told == [1, 2, 3]
