"""The shield: which policy acts or is handed over, and what past trials teach about predictions."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from samba_rl.improve.constraints import Constraint, CVaR
from samba_rl.improve.multipliers import Multipliers, MultiplierSettings
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.shield import LAST_TOLERANCE, MORE_TRAJECTORIES, TRAJECTORIES, Candidate, Shield, copied
from samba_rl.tasks.rollout import RealSource
from samba_rl.types import Policy, Traces
from tests.line import Line
from tests.traces import double, last_layer, simple_policy

TASK = Line(goal=1.0)
SOURCE = RealSource(TASK.world())


def going(speed: float) -> GaussianPolicy:
    """Return a policy that goes at this speed, almost without noise: faster is cheaper and less safe."""
    policy = simple_policy(std=1e-3)
    with torch.no_grad():
        last_layer(policy).weight.zero_()
        last_layer(policy).bias.fill_(speed)
    return policy


def candidate(speed: float) -> Candidate:
    return Candidate(f"speed {speed}", copied(going(speed)))


def shield(*limits: float) -> Shield:
    constraints: tuple[Constraint, ...] = tuple(CVaR(name="edge", limit=limit) for limit in limits)
    return Shield(constraints, Multipliers(MultiplierSettings(margin=0.0), constraints))


def chosen(speeds: tuple[float, ...], *limits: float) -> tuple[str, bool]:
    one, verdict = shield(*limits).best(going(0.0), [candidate(s) for s in speeds], (SOURCE,), 0, last=True)
    return one.name, verdict.passes


@pytest.mark.parametrize(
    ("speeds", "limits", "expected", "passes"),
    [
        ((0.1, 0.35, 0.4), (0.05,), 0.1, True),  # the only one within the limit
        ((0.1, 0.2, 0.4), (0.05,), 0.2, True),  # the cheaper of two within it
        ((0.4, 0.2, 0.1), (0.05,), 0.2, True),  # wherever it stands
        ((0.1, 0.3, 0.4), (50.0,), 0.4, True),  # all are within it
        ((0.4, 0.35, 0.9), (0.01,), 0.35, False),  # none is: the least excess
        ((0.1, 0.4, 0.2), (), 0.4, True),  # without a limit
        ((0.1, 0.2, 0.4), (50.0, 0.05), 0.2, True),  # of several limits the worst kept one counts
    ],
)
def test_the_cheapest_within_the_limit_is_chosen_or_else_the_safest(
    speeds: tuple[float, ...], limits: tuple[float, ...], expected: float, passes: bool
) -> None:
    assert chosen(speeds, *limits) == (f"speed {expected}", passes)


def test_the_policy_that_judges_is_not_changed() -> None:
    policy = going(0.3)
    shield(0.05).best(policy, [candidate(0.1), candidate(0.9)], (SOURCE,), 0, last=True)
    assert float(policy.mean_action(double([[0.0]]))) == pytest.approx(0.3)


def test_a_bound_lies_above_the_value_and_the_ceiling_above_the_target() -> None:
    judge = shield(1.0)
    verdict = judge.judge(going(0.0), candidate(0.4), (SOURCE,), 0, last=True)
    exact = CVaR(name="edge", limit=1.0).measure(SOURCE(going(0.4), 20_000, Generator().manual_seed(3)))
    assert exact < verdict.bounds[0] < 1.2 * exact
    assert verdict.ceilings == pytest.approx((1 + LAST_TOLERANCE,))


def test_more_trajectories_are_imagined_while_only_the_sampling_error_decides() -> None:
    asked: list[int] = []

    def counted(policy: Policy, n: int, generator: Generator) -> Traces:
        asked.append(n)
        return SOURCE(policy, n, generator)

    value = CVaR(name="edge", limit=1.0).measure(SOURCE(going(0.4), 1000, Generator().manual_seed(0)))
    for limit, expected in ((50.0, [TRAJECTORIES]), (1.001 * value / (1 + LAST_TOLERANCE), None)):
        asked.clear()
        shield(limit).judge(going(0.0), candidate(0.4), (counted,), 0, last=True)
        assert asked == (expected or [TRAJECTORIES, MORE_TRAJECTORIES])


def test_underestimated_trials_raise_the_bounds_and_rightly_predicted_ones_do_not() -> None:
    trusting, burnt = shield(1.0), shield(1.0)
    slow, fast = (SOURCE(going(speed), 5, Generator().manual_seed(1)) for speed in (0.0, 1.0))
    for _ in range(3):
        trusting.note(candidate(0.0), going(0.0), SOURCE, 0, slow)
        burnt.note(candidate(0.0), going(0.0), SOURCE, 0, fast)  # expected to stand still, it went
    assert trusting.factors() == (1.0,) and 1.5 < burnt.factors()[0] <= 3.0
    plain, raised = (one.judge(going(0.0), candidate(0.4), (SOURCE,), 0, last=True) for one in (trusting, burnt))
    assert raised.bounds[0] == pytest.approx(burnt.factors()[0] * plain.bounds[0])


def test_a_policy_that_did_badly_loses_to_one_that_did_well() -> None:
    judge = shield(50.0)
    model = judge.judge(going(0.0), candidate(0.4), (SOURCE,), 0, last=True)
    poor = Candidate("poor", copied(going(0.4)), 5, model.cost + 10, (0.0,))
    good = Candidate("good", copied(going(0.35)), 5, model.cost - 1, (0.0,))
    assert judge.best(going(0.0), [poor, good], (SOURCE,), 0, last=True)[0] is good
    unsafe = Candidate("unsafe", copied(going(0.4)), 5, model.cost, (40.0,))
    assert judge.judge(going(0.0), unsafe, (SOURCE,), 0, last=True).bounds[0] > 2 * model.bounds[0]


def test_its_memory_is_kept() -> None:
    one, other = shield(1.0), shield(1.0)
    for _ in range(7):
        one.note(candidate(0.2), going(0.0), SOURCE, 0, SOURCE(going(1.0), 2, Generator().manual_seed(1)))
    other.load_state_dict(one.state_dict())
    assert other.factors() == one.factors() > (1.0,) and len(other.tried) == 5
    assert other.tried[-1].amounts == one.tried[-1].amounts and other.tried[-1].episodes == 2
