"""Diagonal Gaussians as the latent model uses them."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor


class Normal(NamedTuple):
    """Independent Gaussians."""

    mean: Tensor
    """Means [..., n]."""
    std: Tensor
    """Standard deviations [..., n]."""

    def sample(self, noise: Tensor) -> Tensor:
        """Return a sample [..., n] from standard normal noise [..., n]."""
        return self.mean + self.std * noise

    def detached(self) -> Normal:
        """Return the same Gaussians without gradients."""
        return Normal(self.mean.detach(), self.std.detach())


def kl_normal(p: Normal, q: Normal) -> Tensor:
    """Compute KL(p ‖ q) [...] of Gaussians over [..., n]."""
    ratio = p.std / q.std
    return 0.5 * (ratio.square() + ((p.mean - q.mean) / q.std).square() - 1 - 2 * ratio.log()).sum(-1)


def negative_log_normal(error: Tensor, log_std: Tensor) -> Tensor:
    """Compute -log N(error; 0, exp(log_std)²) elementwise; the arguments broadcast."""
    return 0.5 * (error * (-log_std).exp()).square() + log_std + 0.5 * math.log(2 * math.pi)
