"""Several objectives at once: the point of least norm in the convex hull of their gradients."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from samba_rl.improve.policies import GaussianPolicy


def min_norm_weight(first: Tensor, second: Tensor) -> float:
    """λ in [0, 1] for which λ·first + (1 - λ)·second [P] is shortest: the paper's λ_π.

    Minus that vector descends both objectives, unless it is zero: then neither can improve without the other's loss.
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
    """Weights [K], at least zero and summing to one, for which the weighted sum of gradients [K, P] is shortest."""
    if len(gradients) == 2:
        first = min_norm_weight(gradients[0], gradients[1])
        return torch.tensor([first, 1 - first], dtype=torch.float64, device=gradients.device)
    from scipy.optimize import nnls

    # Non-negative least squares of |Σ wᵢgᵢ|² + (Σ wᵢ - 1)² has the same solution up to its sum: for a sum s of weights
    # that are s times v, the best s leaves q / (1 + q) with q = |Σ vᵢgᵢ|², which grows with q.
    longest = gradients.double().norm(dim=1).max()
    rows = (gradients / longest if longest > 0 else gradients).double().cpu().numpy()
    system = np.concatenate([rows.T, np.ones((1, len(rows)))])
    weights, _ = nnls(system, np.eye(len(system))[-1])
    return torch.from_numpy(weights / weights.sum()).to(gradients.device)


def policy_gradients(policy: GaussianPolicy, inputs: Tensor, raw: Tensor, advantages: Tensor) -> Tensor:
    """Gradients [K, P] of K objectives, from their advantages [K, N] of actions [N, nu] at inputs [N, no]."""
    parameters = list(policy.parameters())
    log_density = policy.log_density(inputs, raw)
    rows = []
    for advantage in advantages:
        parts = torch.autograd.grad((log_density * advantage).mean(), parameters, retain_graph=True)
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows)
