"""The density of a Gaussian policy's actions, with its derivatives in closed form."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from samba_rl.improve.policies import GaussianPolicy, tanh_


class Density(NamedTuple):
    """Log density of actions, and its derivatives."""

    log: Tensor
    """Log density [N], up to a constant."""
    by_output: Tensor
    """Derivative of the log density by the outputs of the policy's network [N, nu]."""
    by_log_std: Tensor
    """Derivative of the log density by the logarithm of the standard deviation [N, nu]."""


def density_of(policy: GaussianPolicy, outputs: Tensor, raw: Tensor) -> Density:
    """Compute the density of actions raw [N, nu] where the policy's network outputs [N, nu]; without autograd."""
    bound = policy.settings.mean_bound
    precision = (-policy.log_std).exp()
    mean = outputs if bound is None else bound * tanh_(outputs / bound)
    z = (raw - mean) * precision
    by_output = z * precision
    if bound is not None:
        by_output *= 1 - (mean / bound).square()
    square = z.square()
    return Density(-0.5 * square.sum(-1) - policy.log_std.sum(), by_output, square - 1)
