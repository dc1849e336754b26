"""ζ: how much a query would teach, as functions of a model and queries [B, ni] (raw model inputs); all give [B].

ζ_LOO and ζ_bootstrap grow where the data are and vanish far from them; entropy grows with the distance from the data.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from samba_rl.models.gp import GPDynamics


def zeta_loo(model: GPDynamics, queries: Tensor) -> Tensor:
    """Mean over i of KL(posterior without point i ‖ posterior), summed over outputs [B]."""
    zeta = model.predict(queries, loo=True).zeta
    assert zeta is not None
    return zeta


def zeta_bootstrap(model: GPDynamics, queries: Tensor, partitions: int = 5, seed: int = 0) -> Tensor:
    """Mean over random halvings of the data of the symmetric KL between the two posteriors, summed over outputs [B]."""
    z = model.normalised(queries)
    total = torch.zeros(len(z), dtype=z.dtype, device=z.device)
    pairs = model.bipartitions(partitions, seed)
    for first, second in pairs:
        a, b = first.predict(z), second.predict(z)
        total += symmetric_kl(a.mean, a.variance, b.mean, b.variance).sum(-1)
    return total / len(pairs)


def entropy(model: GPDynamics, queries: Tensor) -> Tensor:
    """Differential entropy of the predicted change of state with its noise, in units of its spread [B].

    Taken of the normalised targets, so that it does not depend on the units of the state.
    """
    prediction = model.predict(queries)
    variance = (prediction.variance + model.noise) / model.target_scale.square()
    return 0.5 * (variance * (2 * math.pi * math.e)).log().sum(-1)


def symmetric_kl(mean_a: Tensor, variance_a: Tensor, mean_b: Tensor, variance_b: Tensor) -> Tensor:
    """(KL(a ‖ b) + KL(b ‖ a)) / 2 of Gaussians, elementwise; the logarithms cancel."""
    squared = (mean_a - mean_b).square()
    return 0.25 * ((variance_a + squared) / variance_b + (variance_b + squared) / variance_a) - 0.5
