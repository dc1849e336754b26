"""Policies, batches and critics for the tests of the proximal update."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch
from samba_rl.improve.updates.proximal import ProximalSettings
from tests.traces import last_layer, seeded, simple_policy

PLAIN = ProximalSettings(
    epochs=1,
    minibatch=10**6,
    policy_rate=1e-3,
    kl_target=None,
    critic_rate=1e-3,
    clip=0.2,
    kl_stop=math.inf,
    max_gradient_norm=1e9,
    entropy=0.0,
    critic_loss="squared",
)
"""One pass over the whole batch, without any limits."""


def a_policy(actions: int = 2) -> GaussianPolicy:
    policy = simple_policy(3, actions, hidden=(6,), mean_bound=1.1)
    with torch.no_grad():
        last_layer(policy).weight.mul_(30)
    return policy


def a_batch(policy: GaussianPolicy, n: int = 64, critics: int = 2, seed: int = 0) -> Batch:
    """Return on-policy actions with random advantages and targets."""
    generator = seeded(seed)
    inputs = torch.randn(n, 3, generator=generator)
    with torch.no_grad():
        mean = policy.mean_of(inputs)
        raw = mean + policy.std * torch.randn(mean.shape, generator=generator)
    return Batch(
        inputs=inputs,
        raw=raw,
        objective=3 + 5 * torch.randn(n, generator=generator),
        tails=torch.zeros(0, n),
        critic_inputs=torch.randn(critics, n, 4, generator=generator),
        targets=7 + 2 * torch.randn(critics, n, generator=generator),
    )


def some_critics(count: int = 2) -> Critics:
    return Critics(count, 4, (5,), seeded(1))


def gradient_of(module: nn.Module) -> Tensor:
    """Return the gradient of the last step [P]."""
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters() if parameter.grad is not None])


def numbers(module: nn.Module) -> Tensor:
    """Return the parameters [P]."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def standardised(advantage: Tensor) -> Tensor:
    return (advantage - advantage.mean()) / advantage.std(correction=0)
