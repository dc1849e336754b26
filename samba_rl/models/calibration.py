"""Calibration: z-scores of held-out steps, their coverage, and the factor that corrects predicted deviations.

Leave-one-out scores flatter a model: a step's neighbours in its own episode stay in the data, and the hyper-parameters
were fitted to the step itself. So half of the episodes are held out instead, and a second model, with hyper-parameters
of its own, is learned from the other half. Its scores on the held-out half stand for those of fresh episodes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.posterior import Posterior

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Probabilities of the central intervals whose coverage is reported."""
ENDS = (0.67449, 1.28155, 1.64485, 1.95996, 2.57583)
"""Ends of these intervals of a standard normal distribution."""
AIM = 0.96
"""Share of held-out steps that the scaled 95 % interval contains: slightly more than 95 %, because episodes are few and
a fresh one can be unlike any of them."""
BOUNDS = (0.2, 5.0)
"""Smallest and largest factor of a predicted standard deviation."""
SPLITS = 2
"""Number of random splits into halves; each half of each split is held out once."""
LEAST_POINTS = 20
"""Smallest number of points that factors are estimated from; with fewer they are 1."""
LEAST_EPISODES = 4
"""Smallest number of episodes that are split whole; fewer are cut into pieces."""
PIECES = 8
"""Number of pieces of consecutive steps that the data of few episodes are cut into."""


def coverage(scores: Tensor) -> tuple[tuple[float, ...], ...]:
    """Return the share of z-scores [m, D] inside each of the central intervals, by level and output."""
    return tuple(tuple((scores.abs() < end).double().mean(0).tolist()) for end in ENDS)


def conformal_factor(scores: Tensor) -> Tensor:
    """Return the factors of the predicted deviations [D] with which the 95 % intervals contain a share `AIM` of scores.

    The z-scores [m, D] are those of the unscaled model on held-out steps.
    """
    end = ENDS[LEVELS.index(0.95)]
    # torch.quantile refuses more than 16 million values, and sorts anyway.
    rank = min(len(scores), int(AIM * (len(scores) + 1)) + 1)
    return (scores.abs().sort(dim=0).values[rank - 1] / end).clamp(*BOUNDS)


def held_out_scores(
    inputs: Tensor, targets: Tensor, episode: Tensor, learn: Callable[[Tensor, Tensor], Posterior]
) -> Tensor | None:
    """Return z-scores [m, D] of held-out halves of the data, each under a posterior that `learn` made from the other.

    The data are normalised inputs [n, ni] and targets [n, D]; `episode` [n] says which steps stay together. Return None
    if there are too few points, or if no half can be learned from.
    """
    if len(inputs) < LEAST_POINTS:
        return None
    scores = []
    for held in _halves(episode):
        out = held.to(inputs.device)
        try:
            posterior = learn(inputs[~out], targets[~out])
        except UserError:
            continue
        mean, variance, _ = posterior.predict(inputs[out])
        scores.append((targets[out] - mean) / (variance + posterior.hyper.noise).sqrt())
    if not scores:
        return None
    joined = torch.cat(scores)
    return joined if bool(joined.isfinite().all()) else None


def _halves(episode: Tensor) -> list[Tensor]:
    """Return masks of the steps to hold out [n] (bool), one for each half of each split; `episode` is [n]."""
    group = torch.unique(episode.cpu(), return_inverse=True)[1]
    if int(group.max()) + 1 < LEAST_EPISODES:
        group = torch.arange(len(episode)) * PIECES // len(episode)
    count = int(group.max()) + 1
    # A generator of its own: a fit must not advance anyone's random numbers.
    generator = torch.Generator().manual_seed(0)
    masks = []
    for _ in range(SPLITS):
        first = torch.isin(group, torch.randperm(count, generator=generator)[: count // 2])
        masks += [first, ~first]
    return masks
