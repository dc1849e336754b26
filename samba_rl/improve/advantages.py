"""How much better or worse an action was than expected: critics, and generalised advantage estimation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor, nn

from samba_rl.improve.policies import orthogonal


@dataclass(frozen=True)
class AdvantageSettings:
    """Discounting and critics."""

    gamma: float = 0.99
    """γ, the discount of the objectives; constraints are never discounted."""
    lam: float = 0.95
    """λ of generalised advantage estimation: 1 trusts the traces alone, 0 the critics."""
    hidden: tuple[int, ...] = (32, 32)
    """Units of each hidden layer of a critic (tanh)."""
    time: bool = True
    """Whether critics see how far the episode is: with a short horizon the cost to go depends on it."""
    tail_critic: bool = True
    """Whether constraints have critics as well; without, an action is weighed by all of the excess that follows it."""


def gae(steps: Tensor, values: Tensor, gamma: Tensor | float, lam: Tensor | float) -> Tensor:
    """Advantages [..., T] of actions, from what the steps cost and what critics expected before each [..., T].

    Steps after an episode's end must cost zero and have zero value; after the last step nothing follows.
    """
    after = torch.cat([values[..., 1:], torch.zeros_like(values[..., :1])], dim=-1)
    surprise = steps + _spread(gamma, steps) * after - values
    decay = _spread(gamma, steps) * _spread(lam, steps)
    total = torch.zeros_like(steps[..., 0])
    out = torch.empty_like(steps)
    factor = decay[..., 0] if isinstance(decay, Tensor) else decay
    for t in reversed(range(steps.shape[-1])):
        total = surprise[..., t] + factor * total
        out[..., t] = total
    return out


def to_go(steps: Tensor, gamma: Tensor | float) -> Tensor:
    """The discounted sum [..., T] of what each step and the later ones cost [..., T]: Monte-Carlo targets."""
    return gae(steps, torch.zeros_like(steps), gamma, 1.0)


def _spread(number: Tensor | float, like: Tensor) -> Tensor | float:
    """A tensor [K] beside [K, B, T]."""
    return number.reshape(-1, *[1] * (like.dim() - 1)) if isinstance(number, Tensor) else number


@final
class Critics(nn.Module):
    """K critics of one shape, evaluated side by side; each predicts in units of its own targets' spread."""

    mean: Tensor
    std: Tensor

    def __init__(self, count: int, inputs: int, hidden: Sequence[int], generator: Generator) -> None:
        super().__init__()
        sizes = (inputs, *hidden, 1)
        gains = [math.sqrt(2)] * len(hidden) + [1.0]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for size_in, size_out, gain in zip(sizes[:-1], sizes[1:], gains, strict=True):
            each = [gain * orthogonal(size_out, size_in, generator).T for _ in range(count)]
            self.weights.append(nn.Parameter(torch.stack(each)))
            self.biases.append(nn.Parameter(torch.zeros(count, 1, size_out)))
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("std", torch.ones(count))

    def forward(self, inputs: Tensor) -> Tensor:
        """Values [K, N], normalised, at inputs [K, N, ni]."""
        h = inputs
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if i < last:
                h = h.tanh()
        return h[..., 0]

    @torch.no_grad()
    def values(self, inputs: Tensor) -> Tensor:
        """Values [K, N] in the units of the targets."""
        out: Tensor = self(inputs)
        return out * self.std[:, None] + self.mean[:, None]

    @torch.no_grad()
    def normalised(self, targets: Tensor) -> Tensor:
        """Targets [K, N] in the units of the networks."""
        return (targets - self.mean[:, None]) / self.std[:, None]

    @torch.no_grad()
    def renormalise(self, targets: Tensor) -> None:
        """Take mean and spread from targets [K, N].

        The networks stay as they are, so their values change along. That suits ζ, whose scale falls by orders of
        magnitude as data come in while its shape lasts; costs keep their scale anyway.
        """
        mean, std = targets.mean(1), targets.std(1, correction=0)
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std > 1e-6 * (1 + mean.abs()), std, torch.ones_like(std)))
