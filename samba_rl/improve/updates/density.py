"""The density of a Gaussian policy's actions and PPO's surrogate of it, with derivatives in closed form."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from samba_rl.improve.policies import GaussianPolicy, tanh_
from samba_rl.improve.updates.minibatches import mean, spread
from samba_rl.improve.updates.networks import Networks


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


def surrogate(
    policy: GaussianPolicy, actor: Networks, share: Tensor | None, inputs: Tensor, raw: Tensor, advantage: Tensor,
    old: Tensor, clip: float,
) -> Tensor:  # fmt: skip
    """Set the gradient of the clipped surrogate, and return an estimate of the divergence from the old policy.

    The N steps weigh by their `share` (None: alike); `old` are their log densities under the old policy [N].
    """
    if actor.fused is not None:
        more = policy.log_std, clip, policy.settings.mean_bound
        found: Tensor = actor.fused.surrogate(inputs[None], actor.used, share, raw, advantage, old, *more)
        actor.gradient.copy_(found[:-1])
        return found[-1]
    density = density_of(policy, actor.forward(inputs[None])[0], raw)
    log_ratio = density.log - old
    ratio = log_ratio.exp()
    # Costs are minimised, so the larger of the two is the pessimistic one. Where that is the clipped one, the gradient
    # is zero; elsewhere the derivative by the log density is ratio · advantage.
    free, held = ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage
    slope = spread(torch.where(free < held, 0, free), share)[:, None]
    actor.backward((slope * density.by_output)[None])
    actor.others[0].copy_((slope * density.by_log_std).sum(0))
    return mean(ratio - 1 - log_ratio, share)
