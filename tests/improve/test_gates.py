"""Gates: which policy is handed over, and when a policy is stranded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from samba_rl.improve.constraints import Constraint, CVaR
from samba_rl.improve.gates import JUDGED_TRAJECTORIES, STRANDED, choose, is_stranded
from samba_rl.improve.multipliers import Multipliers, MultiplierSettings
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.tasks.rollout import RealSource, rollout
from samba_rl.types import Policy, Traces
from tests.line import Line
from tests.traces import by_hand, double, last_layer, seeded, simple_policy

TASK = Line(goal=1.0)

# Choosing -------------------------------------------------------------------------------------------------------------


def steadily(speed: float) -> Traces:
    """Return real episodes at a constant speed."""
    return rollout(TASK.world(), lambda o, _: torch.full_like(o, speed), 1000, generator=seeded(0))


def tail(speed: float) -> float:
    """Return the CVaR of an episode's safety cost at this speed."""
    return CVaR(name="edge", limit=1.0).measure(steadily(speed))


def going(speed: float) -> GaussianPolicy:
    """Return a policy that goes at this speed, almost without noise."""
    policy = simple_policy(std=1e-3)
    with torch.no_grad():
        last_layer(policy).weight.zero_()
        last_layer(policy).bias.fill_(speed)
    return policy


def chosen(
    speeds: tuple[float, ...], constraints: tuple[Constraint, ...], *, margin: float = 0.0, least: float | None = None
) -> float:
    """Return the speed of the chosen policy, on a model that is the truth."""
    multipliers = Multipliers(MultiplierSettings(margin=margin), constraints)
    for multiplier in multipliers.each:
        multiplier.least = least
    policy = going(0.0)
    choose(policy, [going(speed).state_dict() for speed in speeds], RealSource(TASK.world()), constraints, multipliers)
    return round(float(policy.mean_action(double([[0.0]]))), 6)


def under(limit: float) -> tuple[Constraint, ...]:
    return (CVaR(name="edge", limit=limit),)


def test_faster_is_cheaper_and_less_safe_as_the_tests_below_need_it() -> None:
    returns = [float(steadily(speed).returns.mean()) for speed in (0.1, 0.2, 0.3, 0.35, 0.4)]
    assert returns == sorted(returns)
    assert tail(0.1) == 0 == tail(0.2) < 0.05 < tail(0.3) < tail(0.35) < tail(0.4) < tail(0.9)


@pytest.mark.parametrize(
    ("speeds", "limit", "expected"),
    [
        ((0.1, 0.3, 0.4), 0.05, 0.1),  # the only one within the limit
        ((0.1, 0.2, 0.4), 0.05, 0.2),  # the cheaper of two within it
        ((0.4, 0.2, 0.1), 0.05, 0.2),  # wherever it stands
        ((0.1, 0.3, 0.4), 50.0, 0.4),  # all are within it
        ((0.4, 0.35, 0.9), 0.01, 0.35),  # none is: the least excess
    ],
)
def test_the_cheapest_within_the_limit_is_chosen_or_else_the_safest(
    speeds: tuple[float, ...], limit: float, expected: float
) -> None:
    assert chosen(speeds, under(limit)) == pytest.approx(expected)


@pytest.mark.parametrize(("margin", "expected"), [(0.0, 0.35), (0.15, 0.3)])
def test_candidates_are_held_to_the_target_below_the_limit(margin: float, expected: float) -> None:
    assert chosen((0.3, 0.35, 0.4), under(1.08 * tail(0.35)), margin=margin) == pytest.approx(expected)


def test_candidates_are_held_to_the_relaxed_target_of_a_limit_out_of_reach() -> None:
    assert chosen((0.1, 0.3, 0.4), under(0.01)) == pytest.approx(0.1)
    assert chosen((0.1, 0.3, 0.4), under(0.01), least=tail(0.3)) == pytest.approx(0.3)


def test_without_constraints_the_cheapest_is_chosen() -> None:
    assert chosen((0.1, 0.4, 0.2), ()) == pytest.approx(0.4)


def test_of_several_constraints_the_worst_kept_one_counts() -> None:
    two = (CVaR(name="edge", limit=50.0), CVaR(name="edge", limit=0.05))
    assert chosen((0.1, 0.2, 0.4), two) == pytest.approx(0.2)


@pytest.mark.parametrize("count", [0, 1])
def test_with_fewer_than_two_candidates_nothing_is_judged(count: int) -> None:
    def refuse(policy: Policy, n: int, generator: torch.Generator) -> Traces:
        pytest.fail("there is nothing to choose from")

    policy = going(0.3)
    choose(policy, [going(0.9).state_dict()] * count, refuse, (), Multipliers(MultiplierSettings(), ()))
    assert float(policy.mean_action(double([[0.0]]))) == pytest.approx(0.3)


def test_all_candidates_are_judged_on_the_same_episodes() -> None:
    starts: list[Tensor] = []

    def watched(policy: Policy, n: int, generator: torch.Generator) -> Traces:
        assert n == JUDGED_TRAJECTORIES
        traces = RealSource(TASK.world())(policy, n, generator)
        starts.append(traces.x[:, 0])
        return traces

    candidates = [going(speed).state_dict() for speed in (0.1, 0.2, 0.3)]
    choose(going(0.0), candidates, watched, (), Multipliers(MultiplierSettings(), ()))
    assert len(starts) == 3 and torch.equal(starts[0], starts[1]) and torch.equal(starts[0], starts[2])


# Stranded -------------------------------------------------------------------------------------------------------------


def test_a_policy_is_stranded_where_all_trajectories_cost_the_same() -> None:
    traces = by_hand([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]])
    assert is_stranded(traces, step_cost=1.0)
    assert not is_stranded(replace(traces, cost=traces.cost + double([[0.0, 0.1], [0.0, 0.0], [0.0, 0.0]])), 1.0)


def test_the_threshold_is_a_share_of_a_typical_trajectorys_cost() -> None:
    """Returns ±d have the standard deviation d; the horizon is 2."""
    for factor, stranded in ((0.99, True), (1.01, False)):
        d = factor * STRANDED * 5.0 * 2
        assert is_stranded(by_hand([[1.0, 1.0 + d], [1.0, 1.0 - d]]), step_cost=5.0) is stranded
