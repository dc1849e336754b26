"""A figure over several seeds: the interquartile mean, and how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
COVERAGE = 0.95


class Summary(NamedTuple):
    """A figure, its bootstrap interval, and the number of values behind it."""

    value: float
    low: float
    high: float
    size: int


def interquartile_weights(count: int) -> NDArray[np.float64]:
    """What the smallest, the next, ... of `count` values weigh in the interquartile mean; they add up to one. [count]

    Each value is a mass of 1 / count; a quarter of the whole is cut off at either end, through a value if need be.
    So three values weigh 1/6, 2/3, 1/6, four weigh 0, 1/2, 1/2, 0, and one or two are simply averaged. Cutting whole
    values instead would keep all of three and lose half of four.
    """
    # In quarters of a value, where all is whole: value i covers 4 i .. 4 i + 4 of 4 n, and n .. 3 n stays.
    edges = np.clip(4 * np.arange(count + 1), count, 3 * count)
    weights: NDArray[np.float64] = np.diff(edges) / (2 * count)
    return weights


def _interquartile_means(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row. [..., n] -> [...]"""
    weights = interquartile_weights(samples.shape[-1])
    inside = weights > 0
    # Only what weighs anything: an infinite value that is cut off must not count as 0 · ∞.
    kept = np.sort(samples, axis=-1)[..., inside]
    # NaN sorts last and would be cut off with the largest: a diverged seed must not vanish.
    with np.errstate(invalid="ignore"):  # ∞ - ∞
        mean = np.where(np.isnan(samples).any(-1), np.nan, kept @ weights[inside])
    # Rounding must not carry the mean of equal values away from them.
    clipped: NDArray[np.float64] = np.clip(mean, kept[..., 0], kept[..., -1])
    return clipped


def interquartile_mean(values: Sequence[float]) -> float:
    """The mean of the middle half of the values; NaN if one of them is."""
    if not len(values):
        raise ValueError("the interquartile mean of no values")
    return float(_interquartile_means(np.asarray(values, dtype=np.float64)))


def bootstrap(strata: Sequence[Sequence[float]], *, resamples: int = RESAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """Interquartile means of all values together, each stratum drawn anew with replacement. [resamples]

    A stratum is what keeps its size in each draw: the seeds of one system where several systems are put together, so
    that no draw holds one system twice and leaves out another.
    """
    if not strata or not all(len(stratum) for stratum in strata):
        raise ValueError("a bootstrap without values, or with an empty stratum")
    generator = np.random.default_rng(seed)
    drawn = [
        np.asarray(stratum, dtype=np.float64)[generator.integers(len(stratum), size=(resamples, len(stratum)))]
        for stratum in strata
    ]
    return _interquartile_means(np.concatenate(drawn, axis=-1))


def _between(samples: NDArray[np.float64], coverage: float) -> tuple[float, float]:
    """The middle share of the samples. Its ends are samples: so few seeds have few means, and none lies in between."""
    if np.isnan(samples).any():
        return float("nan"), float("nan")
    low, high = np.quantile(samples, [(1 - coverage) / 2, (1 + coverage) / 2], method="inverted_cdf").tolist()
    return low, high


def summarise(
    strata: Sequence[Sequence[float]], *, coverage: float = COVERAGE, resamples: int = RESAMPLES, seed: int = 0
) -> Summary:
    """The interquartile mean of all values and its stratified bootstrap interval; the same for the same seed.

    The seeds of one learner on one system are one stratum: `summarise([values])`.
    """
    low, high = _between(bootstrap(strata, resamples=resamples, seed=seed), coverage)
    pooled = [value for stratum in strata for value in stratum]
    return Summary(interquartile_mean(pooled), low, high, len(pooled))


def summarise_ratio(
    above: Sequence[float],
    below: Sequence[float],
    *,
    coverage: float = COVERAGE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Summary:
    """The interquartile mean of `above` over that of `below`, each drawn anew on its own for the interval.

    Infinite where only the latter is zero and NaN where both are. The size is the smaller of the two.
    """
    # Two streams: with one, equally many seeds would be drawn alike on both sides.
    draws = [bootstrap([values], resamples=resamples, seed=2 * seed + i) for i, values in enumerate((above, below))]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = float(np.divide(interquartile_mean(above), interquartile_mean(below)))
        low, high = _between(np.divide(*draws), coverage)
    return Summary(value, low, high, min(len(above), len(below)))
