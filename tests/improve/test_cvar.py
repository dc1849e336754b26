"""CVaR by hand and against brute force, and the gradients of all constraints against finite differences."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.improve.advantages import to_go
from samba_rl.improve.constraints import (
    Chance,
    Constraint,
    CVaR,
    Expectation,
)
from samba_rl.improve.updates.min_norm import policy_gradients
from samba_rl.types import Traces
from tests.traces import by_hand, double, last_layer, seeded, simple_policy

# Sums 0.5, 0.6, 2.0, 0.0.
SAFETY = [[0.0, 0.5, 0.0], [0.2, 0.2, 0.2], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
FOUR = by_hand(safety=SAFETY)
AMOUNTS = st.lists(st.floats(0, 100), min_size=1, max_size=40)


def cvar(alpha: float, limit: float = 0.75, *, per_step: bool = False) -> CVaR:
    return CVaR(name="hazard", limit=limit, alpha=alpha, per_step=per_step)


def rockafellar_uryasev(amounts: list[float], alpha: float) -> float:
    """Minimise ν + E[(L - ν)⁺] / (1 - α) over the amounts: it is piecewise linear in ν, so one of them is a best ν."""
    sample = np.array(amounts)
    return min(float(nu + np.maximum(sample - nu, 0).mean() / (1 - alpha)) for nu in sample)


# CVaR -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "nu", "value"),
    [
        (0.0, 0.0, 3.1 / 4),  # the mean of all
        (0.25, 0.0, 3.1 / 3),  # of the worst three
        (0.5, 0.5, 1.3),  # of the worst two
        (0.6, 0.6, (2.0 + 0.6 * 0.6) / 1.6),  # the worst 1.6 trajectories: one whole, the next by 0.6
        (0.75, 0.6, 2.0),  # the worst one
        (0.9, 2.0, 2.0),
    ],
)
def test_cvar_by_hand(alpha: float, nu: float, value: float) -> None:
    constraint = cvar(alpha)
    assert constraint.amounts(FOUR).tolist() == pytest.approx([0.5, 0.6, 2.0, 0.0])
    assert float(constraint.nu(constraint.amounts(FOUR))) == pytest.approx(nu)
    assert constraint.measure(FOUR) == pytest.approx(value)


@settings(max_examples=60, deadline=None)
@given(AMOUNTS, st.data())
def test_cvar_is_the_mean_of_the_worst_share_where_that_is_a_whole_number(
    amounts: list[float], data: st.DataObject
) -> None:
    worst = data.draw(st.integers(1, len(amounts)))
    alpha = 1 - worst / len(amounts)
    expected = float(np.sort(amounts)[-worst:].mean())
    assert float(cvar(alpha).value(double([amounts])[0])) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(AMOUNTS, st.floats(0, 0.99))
def test_cvar_is_the_least_over_nu_for_any_number_of_trajectories(amounts: list[float], alpha: float) -> None:
    assert float(cvar(alpha).value(double([amounts])[0])) == pytest.approx(
        rockafellar_uryasev(amounts, alpha), rel=1e-9, abs=1e-9
    )


@settings(max_examples=60, deadline=None)
@given(AMOUNTS, st.integers(0, 99))
def test_nu_is_the_least_amount_that_a_share_alpha_does_not_exceed(amounts: list[float], percent: int) -> None:
    nu = float(cvar(percent / 100).nu(double([amounts])[0]))
    # Counted in whole numbers: no rounding can hide an index that is off by one.
    enough = [a for a in amounts if 100 * sum(b <= a for b in amounts) >= percent * len(amounts)]
    assert nu == min(enough)


@pytest.mark.parametrize(("percent", "count"), [(28, 25), (55, 100), (57, 100), (90, 1000)])
def test_nu_is_not_led_astray_by_rounding(percent: int, count: int) -> None:
    """In floating point 0.28 · 25 is 7.000000000000001, but the seventh of 25 is meant."""
    amounts = torch.randperm(count, generator=seeded(0)).double() + 1
    assert float(cvar(percent / 100).nu(amounts)) == percent * count // 100


def test_growth_by_hand() -> None:
    # α = 0.5, so ν = 0.5: only the last step of the second trajectory and the first two of the third count, twice each.
    expected = [[0, 0, 0], [0, 0, 0.2], [1, 2, 0], [0, 0, 0]]
    assert torch.allclose(cvar(0.5).growth(FOUR), double(expected))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 6), st.floats(0, 0.95), st.booleans(), st.integers(0, 10_000))
def test_growth_sums_to_the_excess_over_nu(n: int, horizon: int, alpha: float, per_step: bool, seed: int) -> None:
    safety = (2 * torch.rand(n, horizon, generator=seeded(seed), dtype=torch.float64) - 1).clamp(min=0)
    traces, constraint = by_hand(safety=safety), cvar(alpha, per_step=per_step)
    amounts = constraint.amounts(traces)
    growth = constraint.growth(traces)
    excess = (amounts - constraint.nu(amounts)).clamp(min=0) / (1 - alpha)
    assert growth.shape == (n, horizon) and float(growth.min()) >= 0
    assert torch.allclose(growth.sum(1), excess, rtol=1e-9, atol=1e-9)
    # So the value is ν plus the contributions of the steps.
    assert float(constraint.nu(amounts) + growth.sum(1).mean()) == pytest.approx(constraint.measure(traces))


def test_progress_of_cvar_is_the_distance_from_nu_before_the_step() -> None:
    # ν = 0.5, and the limit of 0.75 is the larger unit.
    expected = double([[0, 0, 0.5], [0, 0.2, 0.4], [0, 1, 2], [0, 0, 0]])
    assert torch.allclose(cvar(0.5).progress(FOUR), (expected - 0.5) / 0.75)
    assert torch.allclose(cvar(0.5, limit=0.1).progress(FOUR), (expected - 0.5) / 0.5)
    nothing = by_hand(safety=[[0.0, 0.0]])
    assert cvar(0.5, limit=0.0).progress(nothing).tolist() == [[0, 0]]


@pytest.mark.parametrize("kind", [Expectation, CVaR])
def test_per_step_is_per_trajectory_over_the_horizon_also_where_an_episode_ends_early(kind: type[Constraint]) -> None:
    traces = by_hand(safety=[[1.0, 1.0, 1.0], [0.5, 0.25, 0.0], [0.0, 0.0, 0.3]], lengths=[1, 3, 3])
    whole, mean = (kind(name="hazard", limit=0.1, per_step=per_step) for per_step in (False, True))
    assert torch.allclose(whole.amounts(traces), double([[1.0, 0.75, 0.3]])[0])
    assert torch.allclose(mean.amounts(traces), whole.amounts(traces) / 3)
    assert mean.measure(traces) == pytest.approx(whole.measure(traces) / 3)
    assert torch.allclose(mean.growth(traces), whole.growth(traces) / 3)
    assert float(whole.growth(traces)[0, 1:].sum()) == 0


# A floor under ν ------------------------------------------------------------------------------------------------------


def floored(nu_floor: float, limit: float = 1.0, alpha: float = 0.5) -> CVaR:
    return dataclasses.replace(cvar(alpha, limit), nu_floor=nu_floor)


def test_below_the_floor_of_nu_trajectories_are_left_alone() -> None:
    # The quantile is 0.5. Above a floor of 0.55 only 0.05 of the second trajectory's 0.6 count; above 1, nothing.
    low, middle, high = (floored(floor).growth(FOUR) for floor in (0.3, 0.55, 1.0))
    assert torch.equal(low, cvar(0.5, limit=1.0).growth(FOUR))
    assert torch.allclose(middle, double([[0, 0, 0], [0, 0, 0.1], [0.9, 2, 0], [0, 0, 0]]))
    assert torch.allclose(high, double([[0, 0, 0], [0, 0, 0], [0, 2, 0], [0, 0, 0]]))
    # The floor is a share of the limit.
    assert torch.equal(floored(0.5, limit=2.0).growth(FOUR), high)
    assert torch.equal(floored(1.0, limit=0.4).growth(FOUR), low)


def test_where_nearly_all_cost_nothing_a_floor_keeps_small_costs_from_counting() -> None:
    traces = by_hand(safety=[[0.0, 0.0]] * 9 + [[0.3, 0.1]])
    assert float(cvar(0.9, limit=1.0).growth(traces).sum()) == pytest.approx(4.0)
    assert float(floored(0.5, alpha=0.9).growth(traces).sum()) == 0
    assert float(floored(0.2, alpha=0.9).growth(traces).sum()) == pytest.approx(2.0)


def test_progress_is_measured_from_the_floor_of_nu() -> None:
    expected = double([[0, 0, 0.5], [0, 0.2, 0.4], [0, 1, 2], [0, 0, 0]])
    assert torch.allclose(floored(0.8).progress(FOUR), expected - 0.8)
    assert torch.allclose(floored(1.0, limit=2.0).progress(FOUR), (expected - 2) / 2)


@settings(max_examples=60, deadline=None)
@given(AMOUNTS, st.floats(0, 0.95), st.floats(0, 1), st.floats(0, 100))
def test_any_floor_bounds_cvar_from_above_and_leaves_its_value_as_it_is(
    amounts: list[float], alpha: float, nu_floor: float, limit: float
) -> None:
    sample = double(amounts)
    traces, constraint = by_hand(safety=sample[:, None]), floored(nu_floor, limit, alpha)
    exact = rockafellar_uryasev(amounts, alpha)
    held = max(float(constraint.nu(sample)), nu_floor * limit)
    growth = constraint.growth(traces).sum(1)
    assert torch.allclose(growth, (sample - held).clamp(min=0) / (1 - alpha), rtol=1e-9, atol=1e-9)
    assert held + float(growth.mean()) >= exact - 1e-9 * (1 + exact)
    assert float(constraint.value(sample)) == constraint.measure(traces) == float(cvar(alpha).value(sample))
    assert constraint.measure(traces) == pytest.approx(exact, rel=1e-9, abs=1e-9)


# The gradient ---------------------------------------------------------------------------------------------------------


def steered(noise: Tensor, mean: float, log_std: float) -> tuple[Tensor, Traces]:
    """Return actions [B, T] = mean + std · noise and their traces: safety cost clipped to 0..1, unsafe beyond 1."""
    actions = mean + math.exp(log_std) * noise
    return actions, by_hand(safety=actions.clamp(0, 1), violation=(actions > 1.0).double())


@pytest.mark.parametrize(
    ("constraint", "horizon"),
    [(cvar(0.7), 1), (cvar(0.7), 3), (Expectation(name="hazard", limit=0.1), 3)],
    ids=["cvar of one step", "cvar of three", "expectation of three"],
)
def test_the_gradient_from_growth_is_that_of_the_value(constraint: Constraint, horizon: int) -> None:
    """Compare score-function gradients of mean and standard deviation with differences under common random numbers."""
    mean, std, size = 0.2, 0.5, 1e-3
    noise = torch.randn(200_000, horizon, generator=seeded(0), dtype=torch.float64)
    policy = simple_policy(std=std).double()
    with torch.no_grad():
        last_layer(policy).bias.fill_(mean)
    actions, traces = steered(noise, mean, math.log(std))
    weights = to_go(constraint.growth(traces), 1.0)
    # A baseline for each step keeps the expectation and reduces the variance.
    weights = weights - weights.mean(0)
    inputs = torch.zeros(noise.numel(), 1, dtype=torch.float64)
    by_score = horizon * policy_gradients(policy, inputs, actions.reshape(-1, 1), weights.reshape(1, -1))[0]
    names = [name for name, _ in policy.named_parameters()]
    estimated = dict(zip(names, by_score.tolist(), strict=True))

    def difference(along_mean: float, along_std: float) -> float:
        above, below = (
            constraint.measure(steered(noise, mean + sign * along_mean, math.log(std) + sign * along_std)[1])
            for sign in (1, -1)
        )
        return (above - below) / (2 * size)

    assert estimated["network.0.bias"] == pytest.approx(difference(size, 0.0), rel=0.03)
    assert estimated["log_std"] == pytest.approx(difference(0.0, size), rel=0.05)


def test_the_gradient_of_a_chance_is_that_of_the_normal_tail() -> None:
    """P(some of three actions exceeds 1) = 1 - Φ(z)³ with z = (1 - mean) / std: its slope is 3 Φ(z)² φ(z) / std."""
    mean, std = 0.2, 0.5
    noise = torch.randn(200_000, 3, generator=seeded(1), dtype=torch.float64)
    constraint = Chance(name="hazard", limit=0.1)
    actions, traces = steered(noise, mean, math.log(std))
    weights = to_go(constraint.growth(traces), 1.0)
    slope = float((weights * (actions - mean) / std**2).sum(1).mean())
    z = (1 - mean) / std
    below, density = 0.5 * (1 + math.erf(z / math.sqrt(2))), math.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    assert constraint.measure(traces) == pytest.approx(1 - below**3, rel=0.02)
    assert slope == pytest.approx(3 * below**2 * density / std, rel=0.03)
