from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import Chance, Constraint, CVaR, Expectation
from samba_rl.improve.objectives import Objective, cost, information
from samba_rl.improve.step import Control, ControlReport
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.multi_gradient import min_norm_weight, min_norm_weights, policy_gradients
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.types import Traces
from tests.traces import by_hand, double, on_a_line, seeded, simple_policy

SAFE = Expectation(name="hazard", limit=0.1)
TAIL = CVaR(name="hazard", limit=0.1, alpha=0.5)
PLAIN = AdvantageSettings(gamma=1.0, lam=1.0, hidden=(8,), time=True, tail_critic=True)
UPDATE = ProximalSettings(epochs=5, minibatch=10**6, policy_rate=0.01, kl_target=None, critic_rate=0.01)
FAST = ProximalSettings(epochs=10, minibatch=10**6, policy_rate=0.02, kl_target=None, kl_stop=0.03, critic_rate=0.02)


def control_of(
    objectives: tuple[Objective, ...] = (cost,),
    constraints: tuple[Constraint, ...] = (),
    advantage: AdvantageSettings = PLAIN,
    update: ProximalSettings = UPDATE,
    *,
    spread: bool = True,
    expects: float = 0.0,
    seed: int = 0,
) -> Control:
    """A control whose critics all expect the same at first, whatever they see."""
    policy = simple_policy(hidden=(8,), mean_bound=1.1, seed=seed)
    control = Control(policy, objectives, constraints, advantage, update, seeded(seed), spread=spread)
    with torch.no_grad():
        control.critics.weights[-1].zero_()
        control.critics.biases[-1].fill_(expects)
    return control


def batch_of(
    control: Control,
    traces: Traces,
    multipliers: tuple[float, ...] = (),
    cost_scale: float = 1.0,
    least_weight: float = 0.0,
) -> tuple[Batch, tuple[float, ...]]:
    """What the update would be given, and the objectives' weights."""
    given_batches: list[Batch] = []

    def record(batch: Batch, generator: object) -> UpdateReport:
        given_batches.append(batch)
        return UpdateReport(0.0, 0.0, 0, ())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "update", record)
        report = control(traces, multipliers, cost_scale, least_weight, seeded(0))
    return given_batches[0], report.weights


def some_traces(seed: int = 0, stop_within: float = 0.0) -> Traces:
    return on_a_line(simple_policy(seed=seed), 20, 6, seed, stop_within=stop_within)


def numbers(control: Control) -> Tensor:
    """All parameters of the policy and the critics [P]."""
    parameters = [*control.policy.parameters(), *control.critics.parameters()]
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


# What the update is given ---------------------------------------------------------------------------------------------


def test_one_objective_by_hand() -> None:
    traces = by_hand([[1.0, 2.0, 4.0], [8.0, 6.0, 0.0]])
    batch, weights = batch_of(control_of(advantage=dataclasses.replace(PLAIN, gamma=0.5)), traces)
    assert batch.targets.tolist() == [[3, 4, 4, 11, 6, 0]]
    assert batch.advantage.tolist() == [3, 4, 4, 11, 6, 0] and weights == (1.0,)
    # A critic that expects 5 everywhere, and a look of one step only: c + 0.5·5 - 5, and c - 5 at the end.
    short = dataclasses.replace(PLAIN, gamma=0.5, lam=0.0)
    batch, _ = batch_of(control_of(advantage=short, expects=5.0), traces)
    assert batch.targets.tolist() == [[3, 4, 4, 11, 6, 0]]
    assert batch.advantage.tolist() == [-1.5, -0.5, -1, 5.5, 3.5, -5]


def test_constraints_are_weighed_by_their_multipliers_and_never_discounted() -> None:
    traces = by_hand([[1.0, 2.0]], safety=[[0.25, 0.5]], violation=[[0.0, 1.0]])
    risky = Chance(name="hazard", limit=0.1)
    control = control_of((cost,), (SAFE, risky), dataclasses.replace(PLAIN, gamma=0.5))
    batch, weights = batch_of(control, traces, multipliers=(3.0, 0.5), cost_scale=10.0)
    assert batch.targets.tolist() == [[2, 2], [0.75, 0.5], [1, 1]] and weights == (1.0,)
    expected = [(2 + 10 * (3 * 0.75 + 0.5 * 1)) / 4.5, (2 + 10 * (3 * 0.5 + 0.5 * 1)) / 4.5]
    assert batch.advantage.tolist() == pytest.approx(expected)


def test_the_tail_is_weighed_by_its_growth_with_or_without_a_critic() -> None:
    # Sums 1.0 and 3.0: ν = 1.0, and of the second trajectory 0, 1 and 1 beyond it, twice each with α = 0.5.
    traces = by_hand(safety=[[0.5, 0.5, 0.0], [1.0, 1.0, 1.0]])
    for tail_critic in (True, False):
        choices = dataclasses.replace(PLAIN, lam=0.0, tail_critic=tail_critic)
        batch, _ = batch_of(control_of((), (TAIL,), choices, expects=1.0), traces, multipliers=(1.0,))
        assert batch.targets.tolist() == [[0, 0, 0, 4, 4, 2]]
        with_critic = [0, 0, -1, 0, 2, 1]  # one step: growth + 1 - 1, at the end growth - 1
        whole = [0, 0, 0, 4, 4, 2]  # without one λ of the estimate does not matter: all that is to come
        expected = [number / 2 for number in (with_critic if tail_critic else whole)]
        assert batch.advantage.tolist() == pytest.approx(expected)


def test_without_a_tail_critic_the_objectives_keep_theirs() -> None:
    traces = by_hand([[1.0, 2.0, 4.0]], safety=[[0.0, 0.0, 0.0]])
    choices = dataclasses.replace(PLAIN, lam=0.0, tail_critic=False)
    batch, _ = batch_of(control_of((cost,), (SAFE,), choices, expects=5.0), traces, multipliers=(0.0,))
    assert batch.advantage.tolist() == [1, 2, -1]


def test_critics_see_the_observation_the_time_and_what_was_incurred() -> None:
    seen = torch.arange(6, dtype=torch.float64).reshape(2, 3, 1)
    traces = by_hand(safety=[[0.5, 0.5, 0.0], [1.0, 1.0, 1.0]], observation=seen)
    for time in (True, False):
        control = control_of((cost,), (TAIL,), dataclasses.replace(PLAIN, time=time))
        inputs = batch_of(control, traces, multipliers=(1.0,))[0].critic_inputs
        assert inputs.shape == (2, 6, 3)
        clock = [-1, 0, 1, -1, 0, 1] if time else [0] * 6
        for k in range(2):
            assert inputs[k, :, 0].tolist() == [0, 1, 2, 3, 4, 5] and inputs[k, :, 1].tolist() == clock
        assert inputs[0, :, 2].tolist() == [0] * 6
        assert torch.allclose(inputs[1, :, 2].double(), TAIL.progress(traces).flatten())
        assert inputs[1, :, 2].tolist() == [-1, -0.5, 0, -1, 0, 1]


def test_the_policy_answers_for_what_it_wanted_not_for_what_was_applied() -> None:
    wanted = double([[[0.5], [3.0]]])
    batch, _ = batch_of(control_of(), by_hand([[1.0, 2.0]], wanted=wanted))
    assert batch.raw.tolist() == [[0.5], [3.0]] and batch.inputs.dtype == batch.raw.dtype == torch.float32


@pytest.mark.parametrize("constraint", [SAFE, TAIL, Chance(name="hazard", limit=0.1)], ids=lambda c: type(c).__name__)
def test_steps_after_an_episodes_end_contribute_nothing(constraint: Constraint) -> None:
    """Whatever stands there as observation and action, the batch and what is learned are the same."""
    traces = some_traces(stop_within=0.2)
    off = ~traces.active
    assert 0 < int(off.sum()) < off.numel()
    rubbish = dataclasses.replace(
        traces,
        observation=torch.where(off[..., None], 1e3, traces.observation),
        wanted=torch.where(off[..., None], -7.0, traces.wanted),
    )
    learned = []
    for one in (traces, rubbish):
        objectives = (cost, information)
        batch, _ = batch_of(control_of(objectives, (constraint,), expects=2.0), one, multipliers=(1.0,))
        assert len(batch.inputs) == len(batch.advantage) == traces.steps and batch.targets.shape == (3, traces.steps)
        control = control_of(objectives, (constraint,), expects=2.0)
        control(one, (1.0,), 1.0, 0.5, seeded(0))
        learned.append(numbers(control))
    assert torch.equal(*learned)


def test_an_episodes_end_is_as_good_as_the_horizon() -> None:
    """Nothing is expected after it: the last step's surprise is its cost less what was expected before it."""
    ended = by_hand([[1.0, 2.0, 9.0, 9.0]], lengths=[2])
    short = by_hand([[1.0, 2.0]])
    for lam in (0.0, 0.5, 1.0):
        choices = dataclasses.replace(PLAIN, gamma=0.9, lam=lam, time=False)
        one, other = (batch_of(control_of(advantage=choices, expects=5.0), traces)[0] for traces in (ended, short))
        for a, b in zip(one[:5], other[:5], strict=True):
            assert torch.equal(a, b)
        assert float(one.advantage[-1]) == pytest.approx(2 - 5)


# Weights of the objectives --------------------------------------------------------------------------------------------


def test_the_weights_are_those_of_the_shortest_combination_of_spread_gradients() -> None:
    traces = some_traces()
    control = control_of((cost, information))
    batch, weights = batch_of(control, traces)
    assert traces.zeta is not None
    advantages = torch.stack([traces.cost, -traces.zeta]).float().flip(-1).cumsum(-1).flip(-1).flatten(1)
    spread = advantages.std(1, correction=0)
    alike = advantages * (spread[0] / spread)[:, None]
    first, second = policy_gradients(control.policy, batch.inputs, batch.raw, alike)
    expected = min_norm_weight(first, second)
    assert 0.01 < expected < 0.99 and weights == pytest.approx((expected, 1 - expected), rel=1e-3)
    assert torch.allclose(batch.advantage, expected * alike[0] + (1 - expected) * alike[1], atol=1e-3)


def test_without_spreading_the_units_decide() -> None:
    traces = some_traces()
    assert traces.zeta is not None
    larger = dataclasses.replace(traces, zeta=1000 * traces.zeta)
    (one, weights), (other, same) = (batch_of(control_of((cost, information)), t) for t in (traces, larger))
    assert same == pytest.approx(weights, rel=1e-3) and torch.allclose(one.advantage, other.advantage, atol=1e-3)
    (_, weights), (_, others) = (batch_of(control_of((cost, information), spread=False), t) for t in (traces, larger))
    assert abs(weights[0] - others[0]) > 0.05


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 1), st.integers(2, 3))
def test_weights_sum_to_one_and_the_cost_has_at_least_its_share(seed: int, least: float, count: int) -> None:
    def speed(traces: Traces) -> Tensor:
        return traces.wanted[..., 0].square()

    traces = some_traces(seed)
    objectives = (cost, information, speed)[:count]
    batch, weights = batch_of(control_of(objectives, seed=seed), traces, least_weight=least)
    free = batch_of(control_of(objectives, seed=seed), traces)[1]
    assert len(weights) == count and sum(weights) == pytest.approx(1) and min(weights) >= 0
    assert weights[0] == pytest.approx(max(least, free[0]))
    # The others share what is left as they would have.
    for mine, theirs in zip(weights[1:], free[1:], strict=True):
        assert mine * (1 - free[0]) == pytest.approx(theirs * (1 - weights[0]), abs=1e-9)
    assert bool(torch.isfinite(batch.advantage).all())


def test_at_the_end_of_a_run_the_cost_is_all() -> None:
    traces = some_traces()
    batch, weights = batch_of(control_of((cost, information)), traces, least_weight=1.0)
    alone, _ = batch_of(control_of((cost,)), traces)
    assert weights == (1.0, 0.0) and torch.allclose(batch.advantage, alone.advantage)


def test_three_objectives_are_weighed_as_well() -> None:
    def first_half(traces: Traces) -> Tensor:
        return traces.cost * (torch.arange(6) < 3)

    traces, control = some_traces(), control_of((cost, first_half, information), spread=False)
    batch, weights = batch_of(control, traces)
    steps = torch.stack([traces.cost, first_half(traces), information(traces)]).float()
    advantages = steps.flip(-1).cumsum(-1).flip(-1).flatten(1)
    expected = min_norm_weights(policy_gradients(control.policy, batch.inputs, batch.raw, advantages))
    assert weights == pytest.approx(expected.tolist(), abs=1e-3)


# Learning -------------------------------------------------------------------------------------------------------------


def learn(
    control: Control, iterations: int, multipliers: tuple[float, ...] = (), least: float = 1.0, stop: float = 0.0
) -> tuple[Traces, Traces, list[ControlReport]]:
    """Traces before and after, of many other starts."""
    before = on_a_line(control.policy, 500, 8, 1000, stop_within=stop)
    reports = [
        control(on_a_line(control.policy, 100, 8, i, stop_within=stop), multipliers, 0.5, least, seeded(i))
        for i in range(iterations)
    ]
    return before, on_a_line(control.policy, 500, 8, 1000, stop_within=stop), reports


def returns(traces: Traces) -> float:
    return float(traces.returns.mean())


@pytest.mark.parametrize("stop", [0.0, 0.1])
def test_the_cost_falls(stop: float) -> None:
    control = control_of(advantage=AdvantageSettings(hidden=(16,)), update=FAST)
    before, after, reports = learn(control, 30, stop=stop)
    assert returns(after) > 0.1 * returns(before)  # returns are negative
    assert all(report.weights == (1.0,) for report in reports)


@pytest.mark.parametrize("constraint", [SAFE, TAIL, Chance(name="hazard", limit=0.1)], ids=lambda c: type(c).__name__)
def test_a_heavy_multiplier_makes_it_safer(constraint: Constraint) -> None:
    choices = AdvantageSettings(hidden=(16,))
    before, free, _ = learn(control_of((cost,), (constraint,), choices, FAST), 20, multipliers=(0.0,))
    _, safe, _ = learn(control_of((cost,), (constraint,), choices, FAST), 20, multipliers=(20.0,))
    assert constraint.measure(safe) < 0.6 * constraint.measure(before)
    assert constraint.measure(safe) < 0.8 * constraint.measure(free)
    assert returns(free) > returns(safe)  # safety has its price


def test_a_constraint_alone_is_minimised_without_any_objective() -> None:
    control = control_of((), (SAFE,), AdvantageSettings(hidden=(16,)), FAST)
    before, after, reports = learn(control, 20, multipliers=(1.0,))
    assert SAFE.measure(after) < 0.6 * SAFE.measure(before)
    assert all(report.weights == () for report in reports)


def test_information_draws_the_policy_to_where_it_is_found() -> None:
    """ζ is the distance from 0, where the cost is least."""
    choices = AdvantageSettings(hidden=(16,))
    _, dutiful, _ = learn(control_of((cost, information), (), choices, FAST), 20, least=1.0)
    _, curious, reports = learn(control_of((information,), (), choices, FAST), 20)
    assert dutiful.zeta is not None and curious.zeta is not None
    assert float(curious.zeta.sum(1).mean()) > 2 * float(dutiful.zeta.sum(1).mean())
    assert all(report.weights == (1.0,) for report in reports)


def test_same_seed_same_learning() -> None:
    choices = dataclasses.replace(UPDATE, minibatch=40)

    def learned(seed: int, own: int = 0) -> Tensor:
        control = Control(
            simple_policy(hidden=(8,)), (cost, information), (TAIL,), PLAIN, choices, seeded(own), spread=True
        )
        for i in range(2):
            control(some_traces(i), (1.0,), 1.0, 0.5, seeded(seed))
        return numbers(control)

    one, same, other, different = learned(0), learned(0), learned(1), learned(0, own=1)
    assert torch.equal(one, same) and not torch.equal(one, other) and not torch.equal(one, different)
