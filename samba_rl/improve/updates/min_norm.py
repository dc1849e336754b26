"""Several objectives at once, weighed by the shortest vector in the convex hull of their gradients (λ_π)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.minibatches import Order, mean


def min_norm_weight(first: Tensor, second: Tensor) -> float:
    """Return the λ in [0, 1] for which λ·first + (1 - λ)·second [P] is shortest: the paper's λ_π.

    Minus that vector descends both objectives. If it is zero, neither can improve without harming the other.
    """
    first, second = first.double(), second.double()
    product = first @ second
    if product >= first @ first:
        return 1.0
    if product >= second @ second:
        return 0.0
    difference = second - first
    return float((difference @ second) / (difference @ difference))


def min_norm_weights(gradients: Tensor) -> Tensor:
    """Return the weights [K], non-negative and summing to 1, whose weighted sum of gradients [K, P] is shortest."""
    if len(gradients) == 2:
        first = min_norm_weight(gradients[0], gradients[1])
        return torch.tensor([first, 1 - first], dtype=torch.float64, device=gradients.device)
    from scipy.optimize import nnls

    # Non-negative least squares on |Σ wᵢgᵢ|² + (Σ wᵢ - 1)² has the same solution up to its sum. Write w = s·v with
    # Σ vᵢ = 1: the best s leaves q / (1 + q) with q = |Σ vᵢgᵢ|², which is least where q is.
    longest = gradients.double().norm(dim=1).max()
    rows = (gradients / longest if longest > 0 else gradients).double().cpu().numpy()
    system = np.concatenate([rows.T, np.ones((1, len(rows)))])
    weights, _ = nnls(system, np.eye(len(system))[-1])
    return torch.from_numpy(weights / weights.sum()).to(gradients.device)


def comparable_weights(gradients: Tensor) -> Tensor:
    """Return weights [K] that sum to 1 and combine gradients [K, P] as the min-norm rule combines their directions.

    The shortest combination of vectors of different lengths belongs to the shortest of them, whatever its importance.
    Of vectors of unit length it is the direction along which all objectives improve alike. A gradient of zero counts
    for nothing.
    """
    lengths = gradients.double().norm(dim=1)
    if not bool((lengths > 0).all()):
        some = (lengths > 0).double()
        return some / some.sum() if bool(some.any()) else torch.full_like(some, 1 / len(some))
    weights = min_norm_weights(gradients / lengths[:, None].to(gradients)).to(lengths) / lengths
    shares: Tensor = weights / weights.sum()
    return shares


def policy_gradients(
    policy: GaussianPolicy, inputs: Tensor, raw: Tensor, advantages: Tensor, whole: Order | None = None
) -> Tensor:
    """Compute the gradients [K, P] of K objectives from advantages [K, N] of actions [N, nu] at inputs [N, no].

    With `whole`, the batch as one minibatch, some of the steps may be there to fill it up.
    """
    share = None if whole is None or whole.share is None else whole.share[0]
    parameters = list(policy.parameters())
    log_density = policy.log_density(inputs, raw)
    rows = []
    for advantage in advantages:
        parts = torch.autograd.grad(mean(log_density * advantage, share), parameters, retain_graph=True)
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows)
