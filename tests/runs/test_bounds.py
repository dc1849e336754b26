"""Upper confidence bounds: values by hand, coverage by simulation, and the laws that they obey."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import beta

from samba_rl.errors import UserError
from samba_rl.runs.bounds import (
    FRACTIONS,
    HALVINGS,
    MOST_EPISODES,
    PILOT,
    WEIGHTS,
    Method,
    episodes_needed,
    upper_bound,
)

Draw = Callable[[Generator, int], NDArray[np.float64]]
METHODS: tuple[Method, ...] = ("betting", "dkw")
LOSSES = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def capital(values: list[float], m: float) -> float:
    """Return K(m) as the formula has it, factor by factor."""
    mixture = zip(FRACTIONS.tolist(), WEIGHTS.tolist(), strict=True)
    return math.fsum(w * math.prod(1 + c * (m - z) / (1 - m) for z in values) for c, w in mixture)


# By hand --------------------------------------------------------------------------------------------------------------


def test_the_mixture_is_a_mixture() -> None:
    assert WEIGHTS.sum() == pytest.approx(1) and (WEIGHTS > 0).all()
    assert ((FRACTIONS > 0) & (FRACTIONS < 1)).all()


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=30), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_capital_reaches_the_level_at_the_bound(values: list[float], confidence: float) -> None:
    bound = upper_bound(values, 1.0, confidence)
    assert np.mean(values) <= bound <= 1
    level = 1 / (1 - confidence)
    if bound < 1:
        assert capital(values, bound) >= level * (1 - 1e-9)
    below = bound - 1e-6
    if below > np.mean(values):
        assert capital(values, below) < level


def test_no_losses_at_all() -> None:
    # The largest fraction alone: 0.5 (1 + 0.95 m / (1 - m))^n = 20; the others add a little to the capital.
    n = 300
    factor = 40 ** (1 / n) - 1
    alone = factor / (0.95 + factor)
    assert 0.95 * alone < upper_bound(np.zeros(n), 1.0, 0.95) < alone == pytest.approx(0.01290, abs=1e-4)
    # Like 1/n: ten times the episodes, a tenth of the bound.
    assert upper_bound(np.zeros(10 * n), 1.0, 0.95) == pytest.approx(upper_bound(np.zeros(n), 1.0, 0.95) / 10, rel=0.03)


def test_a_single_total_loss_leaves_everything_open() -> None:
    for method in METHODS:
        assert upper_bound([3.0], 3.0, 0.95, method=method) == 3.0
        assert upper_bound([3.0] * 50, 3.0, 0.95, alpha=0.9, method=method) == 3.0


def test_cvar_takes_nu_from_the_pilot() -> None:
    pilot, rest = [0.0, 1.0, 2.0, 3.0], [0.0, 4.0, 1.5] * 5 + [9.0]
    assert len(pilot) == PILOT * len(pilot + rest)
    excess = [max(loss - 1.0, 0) for loss in rest]
    # ν is the median of the pilot, 1.
    by_hand = 1 + upper_bound(excess, 9.0, 0.9) / (1 - 0.5)
    assert upper_bound(pilot + rest, 10.0, 0.9, alpha=0.5) == pytest.approx(min(by_hand, 10))
    assert by_hand < 10


def test_dkw_by_hand() -> None:
    # ε = √(ln 20 / 200) = 0.1224: that mass of the smallest losses, zeros, moves to 5.
    losses = [0.0] * 50 + [1.0] * 50
    moved = math.sqrt(math.log(20) / 200)
    assert upper_bound(losses, 5.0, 0.95, method="dkw") == pytest.approx(0.5 + 5 * moved)
    # In the worst 30 % there are ones; those that remain beside the moved mass are 0.3 - ε.
    assert upper_bound(losses, 5.0, 0.95, alpha=0.7, method="dkw") == pytest.approx(
        (5 * moved + (0.3 - moved)) / 0.3
    )  # fmt: skip
    assert upper_bound(losses, 5.0, 0.95, alpha=0.9, method="dkw") == 5.0  # ε is more than the tail


def test_betting_is_tighter_where_little_happens() -> None:
    rare = np.where(np.arange(1000) % 100 == 7, 2.0, 0.0)
    betting, dkw = (upper_bound(rare, 30.0, 0.95, alpha=0.9, method=method) for method in METHODS)
    assert betting < dkw / 4


# Coverage -------------------------------------------------------------------------------------------------------------


def two_point(share: float, height: float) -> Draw:
    return lambda generator, n: np.where(generator.random(n) < share, height, 0.0)


def heavy(generator: Generator, n: int) -> NDArray[np.float64]:
    return np.minimum(0.02 * (generator.pareto(1.1, n)), 1.0)


DISTRIBUTIONS: dict[str, Draw] = {
    "zero": lambda generator, n: np.zeros(n),
    "one in a hundred is lost": two_point(0.01, 1.0),
    "one in twenty is lost": two_point(0.05, 1.0),
    "a fair coin": two_point(0.5, 1.0),
    "heavy tail": heavy,
    "beta": lambda generator, n: generator.beta(0.3, 2.0, n),
    "nearly all is lost": two_point(0.97, 1.0),
}


def true_value(draw: Draw, alpha: float) -> float:
    """Return CVaR, the mean of the worst share, from a large sample; a little low, which favours no method."""
    worst = np.sort(draw(np.random.default_rng(99), 1_000_000))[int(alpha * 1_000_000) :]
    return float(worst.mean())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize(("n", "alpha", "delta"), [(50, 0.9, 0.05), (120, 0.0, 0.1), (300, 0.8, 0.2)])
def test_the_bound_misses_no_more_often_than_it_says(name: str, n: int, alpha: float, delta: float) -> None:
    draw = DISTRIBUTIONS[name]
    truth, repetitions = true_value(draw, alpha), 1000
    margin = 3 * math.sqrt(delta * (1 - delta) / repetitions)
    for method in METHODS:
        generator = np.random.default_rng(n)
        bounds = [
            upper_bound(draw(generator, n), 1.0, 1 - delta, alpha=alpha, method=method) for _ in range(repetitions)
        ]  # fmt: skip
        # The truth comes from a sample too.
        assert np.mean(np.array(bounds) < truth * (1 - 0.002)) <= delta + margin


def binomial(n: int, share: float) -> list[float]:
    """Return the probabilities of 0 to n losses of 1 among n episodes."""
    return [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("n", [1, 7, 50])
def test_the_coverage_of_a_probability_is_exact(n: int, confidence: float) -> None:
    bounds = [upper_bound([1.0] * k + [0.0] * (n - k), 1.0, confidence) for k in range(n + 1)]
    for share in np.linspace(0.001, 0.999, 200):
        misses = sum(p for p, bound in zip(binomial(n, share), bounds, strict=True) if bound < share)
        assert misses <= 1 - confidence


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_the_expected_capital_is_one(share: float) -> None:
    outcomes = [capital([1.0] * k + [0.0] * (20 - k), share) for k in range(21)]
    assert np.dot(binomial(20, share), outcomes) == pytest.approx(1)


@pytest.mark.parametrize("n", [300, 2000])
@pytest.mark.parametrize("losses", [0, 1, 5, 10, 60, 150, 270])
def test_the_bound_is_near_the_exact_one_of_a_probability(n: int, losses: int) -> None:
    """Clopper and Pearson's bound holds only for losses of 0 or 1, and no bound for them is lower."""
    exact = float(beta.ppf(0.95, losses + 1, n - losses))
    assert exact < upper_bound([1.0] * losses + [0.0] * (n - losses), 1.0, 0.95) < 2 * exact


# Laws -----------------------------------------------------------------------------------------------------------------


@given(LOSSES, st.floats(0.5, 0.99), st.floats(0.5, 0.99), st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from(METHODS))
def test_more_confidence_has_a_higher_bound(
    losses: list[float], one: float, other: float, alpha: float, method: Method
) -> None:
    low, high = (upper_bound(losses, 1.0, c, alpha=alpha, method=method) for c in sorted((one, other)))
    assert low <= high + 1e-12


@given(LOSSES, st.integers(1, 6), st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from(METHODS))
def test_more_of_the_same_has_a_lower_bound(losses: list[float], times: int, alpha: float, method: Method) -> None:
    n = len(losses)
    bounds = [
        upper_bound(losses, 1.0, 0.9, alpha=alpha, method=method, episodes=n * k) for k in (1, times, times + 3)
    ]  # fmt: skip
    assert bounds[0] >= bounds[1] - 1e-12 >= bounds[2] - 2e-12
    if alpha == 0:
        assert upper_bound(losses * times, 1.0, 0.9, method=method) == pytest.approx(bounds[1])


@given(LOSSES, st.floats(1e-6, 1e6), st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from(METHODS))
def test_the_unit_does_not_matter(losses: list[float], unit: float, alpha: float, method: Method) -> None:
    plain = upper_bound(losses, 1.0, 0.95, alpha=alpha, method=method)
    scaled = upper_bound([unit * loss for loss in losses], unit, 0.95, alpha=alpha, method=method)
    assert scaled == pytest.approx(unit * plain, rel=1e-6)


@given(LOSSES, st.randoms(use_true_random=False))
def test_the_order_does_not_matter_to_a_mean(losses: list[float], random: object) -> None:
    assert upper_bound(sorted(losses), 1.0, 0.95) == pytest.approx(upper_bound(losses, 1.0, 0.95), abs=2**-HALVINGS * 4)


@given(LOSSES, st.data(), st.sampled_from(METHODS))
def test_a_higher_loss_has_no_lower_bound(losses: list[float], data: st.DataObject, method: Method) -> None:
    i = data.draw(st.integers(0, len(losses) - 1))
    more = [max(loss, 0.9) if j == i else loss for j, loss in enumerate(losses)]
    assert upper_bound(more, 1.0, 0.9, method=method) >= upper_bound(losses, 1.0, 0.9, method=method) - 1e-9


@settings(max_examples=50)
@given(LOSSES, st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from(METHODS))
def test_the_bound_lies_between_the_measured_value_and_the_largest(
    losses: list[float], alpha: float, method: Method
) -> None:
    bound = upper_bound(losses, 2.0, 0.95, alpha=alpha, method=method)
    assert np.mean(losses) - 1e-12 <= bound <= 2


# How many episodes ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 5000))
def test_the_least_number_is_found(wanted: int) -> None:
    assert episodes_needed(lambda n: 1 / n, 1 / wanted) == wanted


def test_no_number_is_enough() -> None:
    assert episodes_needed(lambda n: 1.0, 0.5) is None
    assert episodes_needed(lambda n: 1 / n, 1 / MOST_EPISODES) == MOST_EPISODES


def test_the_number_for_a_limit_agrees_with_the_bound() -> None:
    def bound(n: int) -> float:
        return upper_bound([0.0], 30.0, 0.95, alpha=0.9, episodes=n)

    n = episodes_needed(bound, 0.75)
    assert n is not None
    assert upper_bound(np.zeros(n), 30.0, 0.95, alpha=0.9) <= 0.75 < upper_bound(np.zeros(n - 2), 30.0, 0.95, alpha=0.9)
    # 0.8 n log(1 + 0.95 m / (1 - m)) = log 40 with m = 0.75 · 0.1 / 30: the largest fraction alone.
    m = 0.75 * 0.1 / 30
    alone = math.log(40) / math.log1p(0.95 * m / (1 - m)) / 0.8
    assert 0.95 * alone < n < alone


def test_an_unlucky_pilot_does_not_make_the_forecast_hopeless() -> None:
    """Two of the eight episodes that choose ν cost more than the limit, and none of the other 32 anything."""
    losses = [0.8, 0.8] + [0.0] * 38
    # CVaR of the worst tenth, four episodes, is 0.4; the valid bound starts from ν = 0.8.
    assert upper_bound(losses, 2.0, 0.95, alpha=0.9) >= 0.8
    needed = episodes_needed(lambda n: upper_bound(losses, 2.0, 0.95, alpha=0.9, episodes=n), 0.75)
    assert needed is not None and 40 < needed < 10_000
    assert upper_bound(losses * (needed // 40 + 1), 2.0, 0.95, alpha=0.9) <= 0.75


# Mistakes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "high", "confidence", "alpha", "message"),
    [
        ([0.0], 1.0, 1.0, 0.0, r"confidence = 1.0; give a number in \[0.5, 1\)"),
        ([0.0], 1.0, 0.4, 0.0, "confidence = 0.4"),
        ([0.0], 1.0, 0.9, 1.0, "alpha = 1.0"),
        ([0.0], 0.0, 0.9, 0.0, "high = 0.0"),
        ([0.0], math.inf, 0.9, 0.0, "high = inf"),
        ([], 1.0, 0.9, 0.0, "at least 1 episode"),
        ([0.5, 1.5], 1.0, 0.9, 0.0, r"a loss of 1.5 lies outside \[0, 1\]"),
        ([-0.5], 1.0, 0.9, 0.0, "a loss of -0.5"),
        ([math.nan], 1.0, 0.9, 0.0, "a loss of nan"),
    ],
)
def test_mistakes_are_named(losses: list[float], high: float, confidence: float, alpha: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        upper_bound(losses, high, confidence, alpha=alpha)
