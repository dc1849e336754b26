"""Interquartile means and bootstrap intervals."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from samba_rl.benchmark.statistics import (
    Summary,
    bootstrap,
    interquartile_mean,
    interquartile_weights,
    summarise,
    summarise_ratio,
)

FINITE = st.floats(-1e6, 1e6)
VALUES = st.lists(FINITE, min_size=1, max_size=12)


def by_copies(values: list[float]) -> float:
    """Compute the interquartile mean of four copies of each value, a quarter of which is a whole number."""
    many = sorted(4 * values)
    n = len(values)
    return math.fsum(many[n : 3 * n]) / (2 * n)


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([7.0], 7),
        ([1.0, 2.0], 1.5),
        ([6.0, 0.0, 12.0], 6),  # 0/6 + 6 · 2/3 + 12/6
        ([0.0, 0.0, 6.0], 1),
        ([100.0, 1.0, 3.0, -50.0], 2),
        ([0.0, 10.0, 20.0, 40.0, 1000.0], 23),  # 0.3 · 10 + 0.4 · 20 + 0.3 · 40
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, -1.0], 4.5),
    ],
)
def test_interquartile_mean_by_hand(values: list[float], mean: float) -> None:
    assert interquartile_mean(values) == pytest.approx(mean)


def test_weights_by_hand() -> None:
    assert interquartile_weights(3) == pytest.approx([1 / 6, 2 / 3, 1 / 6])
    assert interquartile_weights(4) == pytest.approx([0, 0.5, 0.5, 0])
    assert interquartile_weights(5) == pytest.approx([0, 0.3, 0.4, 0.3, 0])


@given(VALUES)
def test_interquartile_mean_is_that_of_four_copies(values: list[float]) -> None:
    assert interquartile_mean(values) == pytest.approx(by_copies(values), abs=1e-6)


@given(st.integers(1, 200))
def test_weights_are_symmetric_and_add_up(count: int) -> None:
    weights = interquartile_weights(count)
    assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
    assert (weights == weights[::-1]).all()


@given(VALUES, st.randoms(use_true_random=False))
def test_interquartile_mean_ignores_order_and_stays_within(values: list[float], random: Random) -> None:
    mean = interquartile_mean(values)
    assert min(values) <= mean <= max(values)
    random.shuffle(values)
    assert interquartile_mean(values) == mean


@given(FINITE, st.integers(1, 12))
def test_equal_values_have_exactly_that_mean(value: float, count: int) -> None:
    summary = summarise([[value] * count], resamples=50)
    assert summary == Summary(value, value, value, count)


@given(VALUES, st.floats(0, 100), st.floats(-100, 100))
def test_interquartile_mean_scales_and_shifts(values: list[float], scale: float, shift: float) -> None:
    moved = interquartile_mean([scale * value + shift for value in values])
    assert moved == pytest.approx(scale * interquartile_mean(values) + shift, rel=1e-6, abs=1e-5)


@given(VALUES, st.data())
def test_interquartile_mean_is_monotone_and_continuous(values: list[float], data: st.DataObject) -> None:
    i, step = data.draw(st.integers(0, len(values) - 1)), data.draw(st.floats(0, 1))
    moved = [value + step * (j == i) for j, value in enumerate(values)]
    change = interquartile_mean(moved) - interquartile_mean(values)
    # No value weighs more than 2 / n.
    assert -1e-6 <= change <= min(1.0, 2 / len(values)) * step + 1e-6


def test_an_outlier_is_cut_off_but_a_diverged_seed_is_not_hidden() -> None:
    assert interquartile_mean([1.0, 2.0, 3.0, math.inf]) == 2.5
    assert interquartile_mean([1.0, 2.0, math.inf]) == math.inf
    assert math.isnan(interquartile_mean([1.0, 2.0, 3.0, math.nan]))
    assert math.isnan(interquartile_mean([-math.inf, math.inf]))
    diverged = summarise([[1.0, 2.0, 3.0, math.nan]])
    assert math.isnan(diverged.value) and math.isnan(diverged.low) and math.isnan(diverged.high)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        interquartile_mean([])
    nothings: list[list[list[float]]] = [[], [[]], [[1.0], []]]
    for nothing in nothings:
        with pytest.raises(ValueError, match="without values"):
            bootstrap(nothing)


# The bootstrap --------------------------------------------------------------------------------------------------------


def all_draws(strata: list[list[float]]) -> np.ndarray:
    """Return the interquartile mean of every possible resample, all equally likely."""
    each = [list(itertools.product(stratum, repeat=len(stratum))) for stratum in strata]
    return np.array([interquartile_mean([v for part in draw for v in part]) for draw in itertools.product(*each)])


@pytest.mark.parametrize("strata", [[[1.0, 2.0, 10.0]], [[1.0, 2.0, 10.0], [100.0, 104.0]], [[0.0, 0.5, 0.75, 3.0]]])
def test_bootstrap_has_the_distribution_of_all_draws(strata: list[list[float]]) -> None:
    exact, sampled = all_draws(strata), bootstrap(strata, resamples=20_000)
    for point in np.unique(exact.round(9)):
        share = (exact <= point + 1e-6).mean()
        error = 4 * math.sqrt(share * (1 - share) / len(sampled)) + 1e-12
        assert (sampled <= point + 1e-6).mean() == pytest.approx(share, abs=error)


def test_interval_of_three_by_hand() -> None:
    # One of the 27 draws is the smallest value three times: 3.7 %, more than the 2.5 % below the interval.
    assert summarise([[5.0, 1.0, 3.0]]) == Summary(3, 1, 5, 3)
    # A coverage of one half leaves out a quarter on either side. There is 1 draw of (1, 1, 1), 3 of (1, 1, 3), which
    # has 1/6 + 2/3 + 3/6, and 3 of (1, 1, 5), which has 1/6 + 2/3 + 5/6: seven of 27 are more than a quarter.
    half = summarise([[5.0, 1.0, 3.0]], coverage=0.5, resamples=20_000)
    assert (half.low, half.high) == pytest.approx((5 / 3, 13 / 3))
    low, high = np.quantile(all_draws([[5.0, 1.0, 3.0]]), [0.25, 0.75], method="inverted_cdf")
    assert (half.low, half.high) == pytest.approx((low, high))


def test_strata_keep_their_size() -> None:
    # With one value in each stratum all draws are the same; as one stratum they differ.
    assert set(bootstrap([[1.0], [2.0], [6.0]]).tolist()) == {interquartile_mean([1.0, 2.0, 6.0])}
    assert summarise([[1.0], [2.0], [6.0]]).low > summarise([[1.0, 2.0, 6.0]]).low


def test_the_same_seed_gives_the_same_interval() -> None:
    values = [[0.3, 1.7, 2.9, 4.1, 9.2]]
    assert summarise(values, seed=3) == summarise(values, seed=3)
    assert (bootstrap(values, seed=3) != bootstrap(values, seed=4)).any()


@settings(max_examples=30)
@given(st.lists(VALUES, min_size=1, max_size=3))
def test_interval_lies_within_the_values(strata: list[list[float]]) -> None:
    pooled = [value for stratum in strata for value in stratum]
    summary = summarise(strata, resamples=200)
    assert min(pooled) <= summary.low <= summary.high <= max(pooled)
    assert summary.size == len(pooled) and summary.value == interquartile_mean(pooled)


def test_interval_has_its_nominal_coverage() -> None:
    generator = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        summary = summarise([generator.normal(size=30).tolist()], resamples=300, seed=trial)
        hits += summary.low <= 0 <= summary.high
    assert 0.88 <= hits / 200 <= 0.99


def test_measurement_noise_widens_the_interval() -> None:
    values = [5.0] * 8
    assert summarise([values], errors=[[0.0] * 8]) == summarise([values]) == Summary(5, 5, 5, 8)
    # The middle half of eight normal draws: their interquartile mean has about the error of a mean, 2 / √8.
    noisy = summarise([values], errors=[[2.0] * 8], resamples=20_000)
    assert noisy.value == 5 and (noisy.low, noisy.high) == pytest.approx((5 - 1.5, 5 + 1.5), abs=0.25)
    # An unknown error, which is 0, adds nothing, and each value has its own.
    draws = bootstrap([[1.0], [100.0]], errors=[[0.0], [3.0]], resamples=20_000)
    assert draws.mean() == pytest.approx(50.5, abs=0.1) and draws.std() == pytest.approx(1.5, rel=0.05)


def test_ratio_by_hand() -> None:
    assert summarise_ratio([6.0, 6.0], [2.0, 2.0, 2.0]) == Summary(3, 3, 3, 2)
    ratio = summarise_ratio([10.0, 20.0, 30.0], [1.0, 2.0, 4.0])
    assert ratio.value == pytest.approx(20 / (13 / 6))
    exact = np.divide.outer(all_draws([[10.0, 20.0, 30.0]]), all_draws([[1.0, 2.0, 4.0]])).ravel()
    low, high = np.quantile(exact, [0.025, 0.975], method="inverted_cdf")
    assert low * 0.9 <= ratio.low <= low * 1.1 and high * 0.9 <= ratio.high <= high * 1.1


def test_ratio_with_a_divisor_of_zero() -> None:
    assert summarise_ratio([1.0, 1.0], [0.0, 0.0]).value == math.inf
    assert math.isnan(summarise_ratio([0.0], [0.0]).value)
    assert math.isnan(summarise_ratio([0.0], [0.0]).low)
