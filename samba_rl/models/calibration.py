"""Calibration: z-scores of left-out steps, their coverage, and the factor that corrects predicted deviations.

A step is left out in two ways: alone, and together with all other steps of its episode, which its neighbours in time
would otherwise give away. Both follow in closed form from the posterior at hand, without another fit. The errors of
fresh episodes were larger than one of the two suggested on every system, so the larger factor of both counts.

A factor is never below 1. On a system without noise an interval may be too wide where there are data, but steps of
another policy meet places without data, and a narrower interval would fail there.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from samba_rl.models.posterior import Posterior

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Probabilities of the central intervals whose coverage is reported."""
ENDS = (0.67449, 1.28155, 1.64485, 1.95996, 2.57583)
"""Ends of these intervals of a standard normal distribution."""
AIM = LEVELS.index(0.95)
"""Index of the interval that is made to hold."""
BOUNDS = (1.0, 5.0)
"""Smallest and largest factor of a predicted standard deviation."""
LONGEST = 100
"""Largest number of steps that are left out together; longer episodes are cut into pieces."""
LEAST_BLOCKS = 4
"""The data are left out in at least this many blocks, so that most of them always remain."""
MOST_POINTS = 3000
"""Approximate number of points above which only some of the episodes, evenly spread over the data, are left out."""


def coverage(scores: Tensor) -> tuple[tuple[float, ...], ...]:
    """Return the share of z-scores [m, D] inside each of the central intervals, by level and output."""
    return tuple(tuple((scores.abs() < end).double().mean(0).tolist()) for end in ENDS)


def conformal_factor(*scores: Tensor) -> Tensor:
    """Return the factors of the predicted deviations [D] with which 95 % intervals contain 95 % of each set of scores.

    Each set holds z-scores [m, D]. The rank of the quantile is the conformal one: a fresh score from the same
    distribution as m exchangeable ones is inside with a probability of at least 95 %, as long as m is at least 19.
    """
    factors = []
    for each in scores:
        rank = min(len(each), math.ceil(LEVELS[AIM] * (len(each) + 1)))
        # torch.quantile refuses more than 16 million values, and sorts anyway.
        factors.append(each.abs().sort(dim=0).values[rank - 1] / ENDS[AIM])
    return torch.stack(factors).amax(0).clamp(*BOUNDS)


def episode_scores(posterior: Posterior, episode: Tensor) -> Tensor | None:
    """Return z-scores [m, D] of targets that are left out together with their episode; None unless all are finite.

    `episode` [n] tells the episodes of the posterior's points apart; the steps of each follow one another.
    """
    scores = posterior.block_scores(blocks(episode))
    return scores if bool(scores.isfinite().all()) else None


def blocks(episode: Tensor) -> list[slice]:
    """Return the rows to leave out together: the steps of an episode [n], or of a piece of it if it is long."""
    points = len(episode)
    longest = max(1, min(LONGEST, points // LEAST_BLOCKS))
    found, start = [], 0
    for length in torch.unique_consecutive(episode, return_counts=True)[1].tolist():
        pieces = math.ceil(length / longest)
        edges = [start + length * i // pieces for i in range(pieces + 1)]
        found += [slice(*pair) for pair in itertools.pairwise(edges)]
        start += length
    return found[:: math.ceil(points / MOST_POINTS)]
