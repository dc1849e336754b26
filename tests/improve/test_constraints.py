from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samba_rl import UserError
from samba_rl.improve.advantages import to_go
from samba_rl.improve.constraints import (
    Chance,
    Constraint,
    ConstraintSettings,
    CVaR,
    Expectation,
    Multiplier,
    MultiplierSettings,
    make_constraints,
)
from samba_rl.improve.updates.multi_gradient import policy_gradients
from samba_rl.types import Traces
from tests.traces import by_hand, double, last_layer, seeded, simple_policy

# Sums 0.5, 0.6, 2.0, 0.0.
SAFETY = [[0.0, 0.5, 0.0], [0.2, 0.2, 0.2], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
FOUR = by_hand(safety=SAFETY)
AMOUNTS = st.lists(st.floats(0, 100), min_size=1, max_size=40)


def cvar(alpha: float, limit: float = 0.75, per_step: bool = False) -> CVaR:
    return CVaR(name="hazard", limit=limit, alpha=alpha, per_step=per_step)


def rockafellar_uryasev(amounts: list[float], alpha: float) -> float:
    """The least value of ν + E[(L - ν)⁺] / (1 - α): piecewise linear in ν, so one of the amounts is a best ν."""
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
    """0.28 · 25 is 7.000000000000001 to a computer, but the seventh of 25 is meant."""
    amounts = torch.randperm(count, generator=seeded(0)).double() + 1
    assert float(cvar(percent / 100).nu(amounts)) == percent * count // 100


def test_growth_by_hand() -> None:
    # α = 0.5: ν = 0.5, so that only the second trajectory's last step and the third one's first two count, each twice.
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
    # So what the steps contribute, and ν, make up the value.
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
    # The quantile is 0.5. From a floor of 0.55 the last 0.05 of the second trajectory's 0.6 count, from one of 1 none.
    low, middle, high = (floored(floor).growth(FOUR) for floor in (0.3, 0.55, 1.0))
    assert torch.equal(low, cvar(0.5, limit=1.0).growth(FOUR))
    assert torch.allclose(middle, double([[0, 0, 0], [0, 0, 0.1], [0.9, 2, 0], [0, 0, 0]]))
    assert torch.allclose(high, double([[0, 0, 0], [0, 0, 0], [0, 2, 0], [0, 0, 0]]))
    # It is a share of the limit.
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
    """Actions [B, T] = mean + std · noise, and what they cost: their part in 0..1, unsafe beyond 1."""
    actions = mean + math.exp(log_std) * noise
    return actions, by_hand(safety=actions.clamp(0, 1), violation=(actions > 1.0).double())


@pytest.mark.parametrize(
    ("constraint", "horizon"),
    [(cvar(0.7), 1), (cvar(0.7), 3), (Expectation(name="hazard", limit=0.1), 3)],
    ids=["cvar of one step", "cvar of three", "expectation of three"],
)
def test_the_gradient_from_growth_is_that_of_the_value(constraint: Constraint, horizon: int) -> None:
    """Score-function gradients of mean and standard deviation, against differences with common random numbers."""
    mean, std, size = 0.2, 0.5, 1e-3
    noise = torch.randn(200_000, horizon, generator=seeded(0), dtype=torch.float64)
    policy = simple_policy(std=std).double()
    with torch.no_grad():
        last_layer(policy).bias.fill_(mean)
    actions, traces = steered(noise, mean, math.log(std))
    weights = to_go(constraint.growth(traces), 1.0)
    # A baseline for each step leaves the expectation as it is and brings the estimate nearer to it.
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


# The others -----------------------------------------------------------------------------------------------------------


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


def test_several_constraints_at_once() -> None:
    made = make_constraints(
        (
            ConstraintSettings(kind="cvar", limit=0.5, alpha=0.8),
            ConstraintSettings(kind="none"),
            ConstraintSettings(kind="chance", limit=0.1, of="wall"),
            ConstraintSettings(kind="expectation", limit=0.02, per="step", of="hazard"),
        ),
        ("hazard", "wall"),
    )
    assert made == (
        CVaR(name="hazard", limit=0.5, column=0, alpha=0.8),
        CVaR(name="wall", limit=0.5, column=1, alpha=0.8),
        Chance(name="wall", limit=0.1, column=1),
        Expectation(name="hazard", limit=0.02, column=0, per_step=True),
    )
    assert make_constraints((ConstraintSettings(kind="none"),), ("hazard",)) == ()


def test_in_words_each_says_what_is_limited() -> None:
    kinds = [Expectation(name="wall", limit=1), Chance(name="wall", limit=1), CVaR(name="wall", limit=1, alpha=0.95)]
    words = [one.in_words() for kind in kinds for one in (kind, dataclasses.replace(kind, per_step=True))]
    assert len(set(words)) == 6 and all("wall" in each for each in words) and "0.95" in words[4]


def test_an_unknown_safety_cost_is_refused() -> None:
    with pytest.raises(UserError, match="no safety cost is called 'hazrad'; did you mean 'hazard'"):
        make_constraints((ConstraintSettings(of="hazrad"),), ("hazard", "wall"))


@pytest.mark.parametrize("alpha", [-0.1, 1.0, 1.5, math.nan])
def test_a_bad_alpha_is_refused(alpha: float) -> None:
    with pytest.raises(UserError, match=r"α is .*; it lies in \[0, 1\)"):
        ConstraintSettings(alpha=alpha)


@pytest.mark.parametrize("limit", [-0.1, math.inf, math.nan])
def test_a_bad_limit_is_refused(limit: float) -> None:
    with pytest.raises(UserError, match=r"limit is .*; give a number of at least 0"):
        ConstraintSettings(limit=limit)


@pytest.mark.parametrize("nu_floor", [-0.1, 1.1, math.nan])
def test_a_bad_floor_of_nu_is_refused(nu_floor: float) -> None:
    with pytest.raises(UserError, match=r"nu_floor is .*; it lies in \[0, 1\]"):
        ConstraintSettings(nu_floor=nu_floor)


@pytest.mark.parametrize("per", ["trajectory", "step"])
def test_the_floor_of_nu_comes_from_the_settings(per: Literal["trajectory", "step"]) -> None:
    (made,) = make_constraints((ConstraintSettings(nu_floor=0.5, limit=2.0, per=per),), ("hazard",))
    assert made == CVaR(name="hazard", limit=2.0, nu_floor=0.5, per_step=per == "step")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "cvarr"}, "a constraint's kind is 'cvarr'; did you mean 'cvar'?"),
        ({"kind": "xyz"}, "a constraint's kind is 'xyz'; there are: chance, cvar, expectation, none"),
        ({"per": "stp"}, "a constraint's per is 'stp'; did you mean 'step'?"),
        ({"per": "year"}, "a constraint's per is 'year'; there are: step, trajectory"),
    ],
)
def test_an_unknown_kind_or_measure_of_a_limit_is_answered_with_those_there_are(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        ConstraintSettings(**change)
    assert str(error.value) == message


# The multiplier -------------------------------------------------------------------------------------------------------

DUAL = MultiplierSettings(schedule="dual-ascent", initial=1.0, rate=0.05, floor=0.0, cap=20.0, margin=0.0)
ADAPTIVE = MultiplierSettings(
    schedule="adaptive", initial=1.0, factor=1.2, tolerance=1.5, floor=0.05, cap=20.0, margin=0.0
)


def test_dual_ascent_step_by_step() -> None:
    multiplier = Multiplier(DUAL, limit=2.0)
    for measured, expected in (
        (3.0, 1.025),  # half above the limit
        (9.0, 1.075),  # 3.5 times above it, which counts as one
        (2.0, 1.075),
        (1.6, 1.065),
        (0.0, 1.015),
    ):
        multiplier.update(measured)
        assert multiplier.value == pytest.approx(expected)


def test_the_adaptive_schedule_step_by_step() -> None:
    multiplier = Multiplier(ADAPTIVE, limit=1.5)
    for measured, expected in (
        (2.0, 1.2),
        (90.0, 1.44),
        (1.5, 1.44),  # at the limit it rests,
        (1.01, 1.44),  # and down to two thirds of it
        (0.9, 1.2),
        (0.0, 1.0),
        (0.0, 1 / 1.2),
    ):
        multiplier.update(measured)
        assert multiplier.value == pytest.approx(expected)


@pytest.mark.parametrize("start", [DUAL, ADAPTIVE], ids=lambda s: s.schedule)
def test_an_infeasible_limit_does_not_wind_the_multiplier_up(start: MultiplierSettings) -> None:
    multiplier = Multiplier(start, limit=0.75)
    before = multiplier.value
    for _ in range(1000):
        multiplier.update(10.0)
        assert before <= multiplier.value <= start.cap
        before = multiplier.value
    assert multiplier.value == start.cap
    # It remembers none of the excess: from here it goes as one that began at the cap.
    fresh = Multiplier(dataclasses.replace(start, initial=start.cap), limit=0.75)
    for _ in range(5):
        for one in (multiplier, fresh):
            one.update(0.4)
        assert multiplier.value == fresh.value < before
        before = multiplier.value


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([DUAL, ADAPTIVE]), st.lists(st.floats(0, 1e6), max_size=60), st.floats(0, 10), st.floats(1, 3))
def test_the_multiplier_stays_between_its_floor_and_the_cap(
    start: MultiplierSettings, measured: list[float], limit: float, cap: float
) -> None:
    multiplier = Multiplier(dataclasses.replace(start, floor=0.3, cap=cap, rate=0.5), limit)
    for one in measured:
        before = multiplier.value
        multiplier.update(one)
        assert 0.3 <= multiplier.value <= cap
        assert (multiplier.value >= before) if one > limit else (multiplier.value <= before)


@pytest.mark.parametrize("start", [DUAL, ADAPTIVE], ids=lambda s: s.schedule)
def test_after_a_long_peace_it_rises_again_at_once(start: MultiplierSettings) -> None:
    multiplier = Multiplier(start, limit=0.75)
    for _ in range(1000):
        multiplier.update(0.0)
    assert multiplier.value == start.floor
    multiplier.update(10.0)
    assert multiplier.value == pytest.approx(0.05 if start is DUAL else 0.05 * 1.2)


def test_the_margin_lies_below_the_limit() -> None:
    multiplier = Multiplier(dataclasses.replace(DUAL, margin=0.2), limit=2.0)
    assert multiplier.target == pytest.approx(1.6)
    multiplier.update(1.8)  # below the limit, but an eighth above what is aimed at
    assert multiplier.value == pytest.approx(1 + 0.05 / 8)


def test_the_least_reachable_value_relaxes_the_target() -> None:
    multiplier = Multiplier(dataclasses.replace(DUAL, margin=0.1, slack=0.15), limit=2.0)
    for least, target, infeasible in (
        (None, 1.8, False),
        (1.0, 1.8, False),  # well within the limit
        (1.9, 1.9, False),  # between what is aimed at and the limit
        (4.0, 4.6, True),
    ):
        multiplier.least = least
        assert multiplier.target == pytest.approx(target) and multiplier.infeasible is infeasible
    multiplier.update(2.3)  # above the limit, but half the target
    assert multiplier.value == pytest.approx(1 - 0.05 * 0.5)
    multiplier.update(5.06)  # a tenth above the target
    assert multiplier.value == pytest.approx(1 - 0.05 * 0.5 + 0.05 * 0.1)


def test_the_least_reachable_value_relaxes_the_adaptive_target_as_well() -> None:
    multiplier = Multiplier(dataclasses.replace(ADAPTIVE, slack=0.15), limit=0.75)
    multiplier.least = 4.0
    for measured, expected in ((4.5, 1.0), (3.1, 1.0), (3.0, 1 / 1.2), (4.7, 1.0)):
        multiplier.update(measured)
        assert multiplier.value == pytest.approx(expected)


def test_without_slack_an_infeasible_limit_is_pursued_all_the_same() -> None:
    multiplier = Multiplier(dataclasses.replace(DUAL, slack=None), limit=0.75)
    multiplier.least = 4.0
    assert multiplier.infeasible and multiplier.target == 0.75
    multiplier.update(4.0)
    assert multiplier.value == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"floor": 2.0}, r"floor = 2\.0, initial = 1\.0 and cap = 20\.0 must be ordered"),
        ({"initial": 30.0}, "must be ordered"),
        ({"floor": -1.0}, "must be ordered"),
        ({"cap": math.nan}, "must be ordered"),
        ({"factor": 1.0}, r"factor = 1\.0 must exceed 1"),
        ({"tolerance": 0.5}, r"tolerance = 0\.5 be at least 1"),
        ({"margin": 1.0}, r"margin = 1\.0 lie in \[0, 1\)"),
    ],
)
def test_bad_settings_of_the_multiplier_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dataclasses.replace(ADAPTIVE, **change)  # type: ignore[arg-type]


def test_a_multiplier_found_elsewhere_is_taken_up_to_the_cap() -> None:
    multiplier = Multiplier(MultiplierSettings(cap=5.0), 1.0)
    multiplier.set(0.25)
    assert multiplier.value == 0.25
    multiplier.set(math.inf)
    assert multiplier.value == 5.0
