"""Advantages of actions, by generalised advantage estimation, and the critics that predict values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor, nn

from samba_rl.improve.policies import orthogonal
from samba_rl.ranges import Hidden, Share


@dataclass(frozen=True)
class AdvantageSettings:
    """Discounting and critics."""

    gamma: Share = 0.99
    """Discount γ of the objectives. Constraints have their own."""
    lam: Share = 0.95
    """λ of generalised advantage estimation: 1 uses the traces alone, 0 one step and then the critics."""
    hidden: Hidden = (32, 32)
    """Units in each hidden layer (tanh) of a critic."""
    time: bool = True
    """Whether critics see the time within the episode, on which the cost to go of a short horizon depends."""
    tail_critic: bool = True
    """Whether constraints have critics too. Without them an action is weighed by all of the excess that follows it."""
    normalise_targets: bool = True
    """Whether each critic predicts in standard deviations of its targets. Otherwise it fits the targets as they are."""


def gae(steps: Tensor, values: Tensor, gamma: Tensor | float, lam: Tensor | float) -> Tensor:
    """Compute the advantages [..., T] of actions from the costs of the steps and the values before them [..., T].

    Steps after an episode's end must have zero cost and zero value. Nothing follows the last step.
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
    """Compute Monte-Carlo targets [..., T]: the discounted costs [..., T] of each step and those after it."""
    return gae(steps, torch.zeros_like(steps), gamma, 1.0)


def _spread(number: Tensor | float, like: Tensor) -> Tensor | float:
    """Reshape a tensor [K] so that it broadcasts with [K, ...]; leave a plain number alone."""
    return number.reshape(-1, *[1] * (like.dim() - 1)) if isinstance(number, Tensor) else number


@final
class Critics(nn.Module):
    """K critics of one shape, evaluated side by side; each predicts in units of its own targets' spread."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, count: int, inputs: int, hidden: Sequence[int], generator: Generator, *, normalise: bool = True
    ) -> None:
        super().__init__()
        self._normalise = normalise
        sizes = (inputs, *hidden, 1)
        gains = [math.sqrt(2)] * len(hidden) + [1.0]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for size_in, size_out, gain in zip(sizes[:-1], sizes[1:], gains, strict=True):
            each = [gain * orthogonal(size_out, size_in, generator).T for _ in range(count)]
            self.weights.append(nn.Parameter(torch.stack(each)))
            self.biases.append(nn.Parameter(torch.zeros(count, 1, size_out)))
        self.register_buffer("mean", torch.zeros(count))
        # A critic that has learned nothing predicts 0, whatever the unit of its targets is.
        self.register_buffer("std", torch.zeros(count) if normalise else torch.ones(count))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the normalised values [K, N] at inputs [K, N, ni]."""
        h = inputs
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if i < last:
                h = h.tanh()
        return h[..., 0]

    @torch.no_grad()
    def values(self, inputs: Tensor) -> Tensor:
        """Return the values [K, N] at inputs [K, N, ni], in the units of the targets."""
        out: Tensor = self(inputs)
        return out * self.std[:, None] + self.mean[:, None]

    @torch.no_grad()
    def normalised(self, targets: Tensor) -> Tensor:
        """Return targets [K, N] in the units of the networks."""
        return (targets - self.mean[:, None]) / torch.where(self.std > 0, self.std, 1.0)[:, None]

    @torch.no_grad()
    def renormalise(self, targets: Tensor) -> None:
        """Set the mean and the standard deviation from targets [K, N].

        The networks are not corrected for it, so the predicted values move with the targets. That suits ζ, whose scale
        falls by orders of magnitude as data come in while its shape persists; costs keep their scale anyway.
        """
        if not self._normalise:
            return
        mean, std = targets.mean(1), targets.std(1, correction=0)
        self.mean.copy_(mean)
        # Where all targets are the same, their mean is the prediction, in any unit.
        self.std.copy_(torch.where(std > 1e-6 * mean.abs(), std, 0.0))

    @property
    def informed(self) -> Tensor | None:
        """Return the indices [k] of the critics whose targets differ, which have something to learn; None: all."""
        used = self.std.nonzero()[:, 0]
        return None if len(used) == len(self.std) else used
