"""Statistics over seeds: the interquartile mean and its bootstrap interval, as in rliable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
"""Number of bootstrap draws."""
COVERAGE = 0.95
"""Coverage of the bootstrap intervals."""


class Summary(NamedTuple):
    """An interquartile mean, or a ratio of two, with its bootstrap interval."""

    value: float
    low: float
    """Lower end of the bootstrap interval."""
    high: float
    """Upper end of the bootstrap interval."""
    size: int
    """Number of values behind it."""


def interquartile_weights(count: int) -> NDArray[np.float64]:
    """Return the weights [count] of `count` sorted values in their interquartile mean; they sum to one.

    Each value has a mass of 1 / count, and a quarter of the total mass is cut off at either end, through a value if
    necessary. Three values therefore weigh 1/6, 2/3, 1/6; four weigh 0, 1/2, 1/2, 0; one or two are averaged. Cutting
    off whole values instead would keep all of three values and drop half of four.
    """
    # In quarters of a value, which are whole numbers: value i covers 4 i .. 4 i + 4 of 4 n, and n .. 3 n is kept.
    edges = np.clip(4 * np.arange(count + 1), count, 3 * count)
    weights: NDArray[np.float64] = np.diff(edges) / (2 * count)
    return weights


def _interquartile_means(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the interquartile means [...] of samples [..., n] over their last dimension."""
    weights = interquartile_weights(samples.shape[-1])
    inside = weights > 0
    # Leave out values without weight: an infinite value that is cut off must not contribute 0 · ∞.
    kept = np.sort(samples, axis=-1)[..., inside]
    # NaN sorts last and would be cut off with the largest values, but a diverged seed must stay visible.
    with np.errstate(invalid="ignore"):  # ∞ - ∞
        # One after the other: the order in which `@` adds, and so the last digit, differs between processors.
        total = sum(kept[..., i] * weight for i, weight in enumerate(weights[inside]))
        mean = np.where(np.isnan(samples).any(-1), np.nan, total)
    # Rounding must not move the mean of equal values away from them.
    clipped: NDArray[np.float64] = np.clip(mean, kept[..., 0], kept[..., -1])
    return clipped


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half of the values; NaN if any of them is NaN."""
    if not len(values):
        raise ValueError("the interquartile mean of no values is undefined")
    return float(_interquartile_means(np.asarray(values, dtype=np.float64)))


def bootstrap(
    strata: Sequence[Sequence[float]],
    *,
    errors: Sequence[Sequence[float]] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return bootstrap draws [resamples] of the interquartile mean of all values, resampling within each stratum.

    A stratum keeps its size in each draw. If the values of several systems are pooled, the seeds of each system form a
    stratum, so that no draw contains one system twice and another not at all. `errors`, of the same shape, are standard
    errors of the values, 0 where unknown: each draw adds normal noise of that size to every value that it contains.
    """
    if not strata or not all(len(stratum) for stratum in strata):
        raise ValueError("a bootstrap without values, or with an empty stratum, is undefined")
    generator = np.random.default_rng(seed)
    drawn = []
    for i, stratum in enumerate(strata):
        picked = generator.integers(len(stratum), size=(resamples, len(stratum)))
        values = np.asarray(stratum, dtype=np.float64)[picked]
        if errors is not None and any(errors[i]):
            values = values + np.asarray(errors[i], dtype=np.float64)[picked] * generator.standard_normal(values.shape)
        drawn.append(values)
    return _interquartile_means(np.concatenate(drawn, axis=-1))


def _between(samples: NDArray[np.float64], coverage: float) -> tuple[float, float]:
    """Return the interval of the middle share of samples [N]; its ends are samples, not interpolations of them."""
    if np.isnan(samples).any():
        return float("nan"), float("nan")
    low, high = np.quantile(samples, [(1 - coverage) / 2, (1 + coverage) / 2], method="inverted_cdf").tolist()
    return low, high


def summarise(
    strata: Sequence[Sequence[float]],
    *,
    errors: Sequence[Sequence[float]] | None = None,
    coverage: float = COVERAGE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Summary:
    """Return the interquartile mean of all values with its stratified bootstrap interval, which `seed` determines.

    The seeds of one learner on one system are a single stratum: `summarise([values])`. With the values' standard
    `errors` the interval also contains the noise of their measurement.
    """
    low, high = _between(bootstrap(strata, errors=errors, resamples=resamples, seed=seed), coverage)
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
    """Return the interquartile mean of `above` divided by that of `below`, resampled independently for the interval.

    The ratio is infinite if only the divisor is zero, and NaN if both are. The size is the smaller of the two.
    """
    # Two random streams: with one, two sides of the same size would be resampled in the same way.
    draws = [bootstrap([values], resamples=resamples, seed=2 * seed + i) for i, values in enumerate((above, below))]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = float(np.divide(interquartile_mean(above), interquartile_mean(below)))
        low, high = _between(np.divide(*draws), coverage)
    return Summary(value, low, high, min(len(above), len(below)))
