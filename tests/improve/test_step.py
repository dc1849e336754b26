"""The parts of a control iteration: advantages by hand, weights of the objectives, and states."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.improve.constraints import Chance, Constraint
from samba_rl.improve.step import WeightSettings
from samba_rl.improve.updates.min_norm import min_norm_weights, policy_gradients
from samba_rl.types import Traces
from tests.improve.improvers import (
    COST,
    INFORMATION,
    PLAIN,
    SAFE,
    TAIL,
    batch_of,
    improver_of,
    iterate,
    numbers,
    some_traces,
)
from tests.traces import by_hand, double, seeded

# Batches of the update ----------------------------------------------------------------------------------------------


def test_one_objective_by_hand() -> None:
    traces = by_hand([[1.0, 2.0, 4.0], [8.0, 6.0, 0.0]])
    batch, weights = batch_of(improver_of(advantage=dataclasses.replace(PLAIN, gamma=0.5)), traces)
    assert batch.targets.tolist() == [[3, 4, 4, 11, 6, 0]]
    assert batch.objective.tolist() == [3, 4, 4, 11, 6, 0] and weights == (1.0,)
    # A critic that predicts 5 everywhere, and one-step estimates: c + 0.5·5 - 5, and c - 5 at the end.
    short = dataclasses.replace(PLAIN, gamma=0.5, lam=0.0)
    batch, _ = batch_of(improver_of(advantage=short, expects=5.0), traces)
    assert batch.targets.tolist() == [[3, 4, 4, 11, 6, 0]]
    assert batch.objective.tolist() == [-1.5, -0.5, -1, 5.5, 3.5, -5]


def test_constraints_are_weighed_by_their_multipliers_and_never_discounted() -> None:
    traces = by_hand([[1.0, 2.0]], safety=[[0.25, 0.5]], violation=[[0.0, 1.0]])
    risky = Chance(name="hazard", limit=0.1)
    improver = improver_of((COST,), (SAFE, risky), dataclasses.replace(PLAIN, gamma=0.5))
    batch, weights = batch_of(improver, traces, multipliers=(3.0, 0.5), units=(10.0, 10.0))
    assert batch.targets.tolist() == [[2, 2], [0.75, 0.5], [1, 1]] and weights == (1.0,)
    # The objective is the same for both steps, so it has no say.
    expected = [(3 * 0.75 + 0.5 * 1) / 10 / 4.5, (3 * 0.5 + 0.5 * 1) / 10 / 4.5]
    assert batch.lagrangian.tolist() == pytest.approx(expected)


def test_the_tail_is_weighed_by_its_growth_with_or_without_a_critic() -> None:
    # Sums 1.0 and 3.0, so ν = 1.0: the steps of the second trajectory exceed it by 0, 1 and 1, twice each as α = 0.5.
    traces = by_hand(safety=[[0.5, 0.5, 0.0], [1.0, 1.0, 1.0]])
    for tail_critic in (True, False):
        choices = dataclasses.replace(PLAIN, lam=0.0, tail_critic=tail_critic)
        batch, _ = batch_of(improver_of((), (TAIL,), choices, expects=1.0), traces, multipliers=(1.0,))
        assert batch.targets.tolist() == [[0, 0, 0, 4, 4, 2]]
        with_critic = [0, 0, -1, 0, 2, 1]  # one step: growth + 1 - 1, at the end growth - 1
        whole = [0, 0, 0, 4, 4, 2]  # without a critic: everything that follows, whatever λ
        expected = [number / 2 for number in (with_critic if tail_critic else whole)]
        assert batch.lagrangian.tolist() == pytest.approx(expected)


def test_without_a_tail_critic_the_objectives_keep_theirs() -> None:
    traces = by_hand([[1.0, 2.0, 4.0]], safety=[[0.0, 0.0, 0.0]])
    choices = dataclasses.replace(PLAIN, lam=0.0, tail_critic=False)
    batch, _ = batch_of(improver_of((COST,), (SAFE,), choices, expects=5.0), traces, multipliers=(0.0,))
    assert batch.objective.tolist() == [1, 2, -1]


def test_critics_see_the_observation_the_time_and_what_was_incurred() -> None:
    seen = torch.arange(6, dtype=torch.float64).reshape(2, 3, 1)
    traces = by_hand(safety=[[0.5, 0.5, 0.0], [1.0, 1.0, 1.0]], observation=seen)
    for time in (True, False):
        improver = improver_of((COST,), (TAIL,), dataclasses.replace(PLAIN, time=time))
        inputs = batch_of(improver, traces, multipliers=(1.0,))[0].critic_inputs
        assert inputs.shape == (2, 6, 3)
        clock = [-1, 0, 1, -1, 0, 1] if time else [0] * 6
        for k in range(2):
            assert inputs[k, :, 0].tolist() == [0, 1, 2, 3, 4, 5] and inputs[k, :, 1].tolist() == clock
        assert inputs[0, :, 2].tolist() == [0] * 6
        assert torch.allclose(inputs[1, :, 2].double(), TAIL.progress(traces).flatten())
        assert inputs[1, :, 2].tolist() == [-1, -0.5, 0, -1, 0, 1]


def test_the_policy_answers_for_what_it_wanted_not_for_what_was_applied() -> None:
    wanted = double([[[0.5], [3.0]]])
    batch, _ = batch_of(improver_of(), by_hand([[1.0, 2.0]], wanted=wanted))
    assert batch.raw.tolist() == [[0.5], [3.0]] and batch.inputs.dtype == batch.raw.dtype == torch.float32


@pytest.mark.parametrize("constraint", [SAFE, TAIL, Chance(name="hazard", limit=0.1)], ids=lambda c: type(c).__name__)
def test_steps_after_an_episodes_end_contribute_nothing(constraint: Constraint) -> None:
    """Observations and actions after the end change neither the batch nor the outcome."""
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
        objectives = (COST, INFORMATION)
        batch, _ = batch_of(improver_of(objectives, (constraint,), expects=2.0), one, multipliers=(1.0,))
        assert len(batch.inputs) == len(batch.lagrangian) == traces.steps and batch.targets.shape == (3, traces.steps)
        improver = improver_of(objectives, (constraint,), expects=2.0)
        iterate(improver, one, (1.0,), seeded(0))
        learned.append(numbers(improver))
    assert torch.equal(*learned)


def test_an_episodes_end_is_as_good_as_the_horizon() -> None:
    """Nothing follows it: the advantage of the last step is its cost minus the value before it."""
    ended = by_hand([[1.0, 2.0, 9.0, 9.0]], lengths=[2])
    short = by_hand([[1.0, 2.0]])
    for lam in (0.0, 0.5, 1.0):
        choices = dataclasses.replace(PLAIN, gamma=0.9, lam=lam, time=False)
        one, other = (batch_of(improver_of(advantage=choices, expects=5.0), traces)[0] for traces in (ended, short))
        for a, b in zip(one[:6], other[:6], strict=True):
            assert torch.equal(a, b)
        assert float(one.objective[-1]) == pytest.approx(2 - 5)


# Weights of the objectives --------------------------------------------------------------------------------------------


def test_the_weights_lead_along_the_bisector_of_the_gradients_of_spread_advantages() -> None:
    traces = some_traces()
    improver = improver_of((COST, INFORMATION))
    batch, weights = batch_of(improver, traces)
    assert traces.zeta is not None
    advantages = torch.stack([traces.cost, -traces.zeta]).float().flip(-1).cumsum(-1).flip(-1).flatten(1)
    spread = advantages.std(1, correction=0)
    alike = advantages * (spread[0] / spread)[:, None]
    first, second = policy_gradients(improver.policy.actor, batch.inputs, batch.raw, alike)
    expected = float(second.norm() / (first.norm() + second.norm()))
    assert 0.01 < expected < 0.99 and weights == pytest.approx((expected, 1 - expected), rel=1e-3)
    assert torch.allclose(batch.objective, expected * alike[0] + (1 - expected) * alike[1], atol=1e-3)


def test_without_spreading_the_units_decide() -> None:
    traces = some_traces()
    assert traces.zeta is not None
    larger = dataclasses.replace(traces, zeta=1000 * traces.zeta)
    (one, weights), (other, same) = (batch_of(improver_of((COST, INFORMATION)), t) for t in (traces, larger))
    assert same == pytest.approx(weights, rel=1e-3) and torch.allclose(one.lagrangian, other.lagrangian, atol=1e-3)
    (_, weights), (_, others) = (batch_of(improver_of((COST, INFORMATION), spread=False), t) for t in (traces, larger))
    assert abs(weights[0] - others[0]) > 0.05


class Speed:
    """The square of the chosen action."""

    label: ClassVar[str] = "speed"

    def __call__(self, traces: Traces) -> Tensor:
        return traces.wanted[..., 0].square()


class FirstHalf:
    """The cost of the first three of six steps."""

    label: ClassVar[str] = "first half"

    def __call__(self, traces: Traces) -> Tensor:
        return traces.cost * (torch.arange(6) < 3)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 1), st.integers(2, 3))
def test_weights_sum_to_one_and_the_cost_has_at_least_its_share(seed: int, least: float, count: int) -> None:
    traces = some_traces(seed)
    objectives = (COST, INFORMATION, Speed())[:count]
    batch, weights = batch_of(improver_of(objectives, seed=seed), traces, least=least)
    free = batch_of(improver_of(objectives, seed=seed), traces)[1]
    assert len(weights) == count and sum(weights) == pytest.approx(1) and min(weights) >= 0
    assert weights[0] == pytest.approx(max(least, free[0]))
    # The others keep their proportions.
    for mine, theirs in zip(weights[1:], free[1:], strict=True):
        assert mine * (1 - free[0]) == pytest.approx(theirs * (1 - weights[0]), abs=1e-9)
    assert bool(torch.isfinite(batch.lagrangian).all())


def test_at_the_end_of_a_run_the_cost_is_all() -> None:
    traces = some_traces()
    batch, weights = batch_of(improver_of((COST, INFORMATION)), traces, least=1.0)
    alone, _ = batch_of(improver_of((COST,)), traces)
    assert weights == (1.0, 0.0) and torch.allclose(batch.lagrangian, alone.lagrangian)


def test_three_objectives_are_weighed_as_well() -> None:
    traces, improver = some_traces(), improver_of((COST, FirstHalf(), INFORMATION), spread=False)
    batch, weights = batch_of(improver, traces)
    steps = torch.stack([traces.cost, FirstHalf()(traces), INFORMATION(traces)]).float()
    advantages = steps.flip(-1).cumsum(-1).flip(-1).flatten(1)
    expected = min_norm_weights(policy_gradients(improver.policy.actor, batch.inputs, batch.raw, advantages))
    assert weights == pytest.approx(expected.tolist(), abs=1e-3)


# States ---------------------------------------------------------------------------------------------------------------


def test_an_improver_continues_from_its_state() -> None:
    one, other = (improver_of((COST, INFORMATION), (TAIL,), seed=seed) for seed in (0, 1))
    iterate(one, some_traces(), (1.0,), seeded(0))
    state = one.state_dict()
    other.load_state_dict(state)
    for improver in (one, other):
        iterate(improver, some_traces(1), (1.0,), seeded(1))
    assert torch.equal(numbers(one), numbers(other))
    # The state is a copy: learning further has left it alone.
    third = improver_of((COST, INFORMATION), (TAIL,), seed=2)
    third.load_state_dict(state)
    assert not torch.equal(numbers(third), numbers(one))


@pytest.mark.parametrize("where", ["policy", "critics", "scale", "moments"])
def test_a_number_that_is_not_finite_is_found_wherever_it_is(where: str) -> None:
    improver = improver_of((COST,), (TAIL,))
    iterate(improver, some_traces(), (1.0,), seeded(0))
    assert improver.finite
    moments = improver.update.optimisers[-1].state[improver.critics.biases[0]]
    victims = {
        "policy": improver.policy.log_std,
        "critics": improver.critics.weights[0],
        "scale": improver.critics.std,
        "moments": moments["exp_avg_sq"],
    }
    victims[where].data.view(-1)[-1] = float("nan")
    assert not improver.finite


def test_the_least_weight_of_the_cost_rises_to_one() -> None:
    settings = WeightSettings(least_cost_weight=0.6)
    assert [settings.least_at(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.6, 0.8, 1.0])


def test_without_a_least_weight_of_the_cost_the_gradients_decide() -> None:
    settings = WeightSettings(least_cost_weight=None)
    assert [settings.least_at(progress) for progress in (0.0, 0.5, 1.0)] == [0, 0, 0]
