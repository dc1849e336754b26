"""Regression of the critics on Monte-Carlo targets, which every update rule performs beside its policy step."""

from __future__ import annotations

from typing import Literal, Protocol, final

import torch
from torch import Tensor

from samba_rl.improve.advantages import Critics
from samba_rl.improve.updates.networks import Networks, cut, shuffled


class RegressionSettings(Protocol):
    """Settings of the regression; `ProximalSettings` has them."""

    @property
    def critic_rate(self) -> float:
        """Return Adam's learning rate."""
        ...

    @property
    def critic_loss(self) -> Literal["squared", "clipped"]:
        """Return the kind of loss; "clipped" keeps values within `clip` of those before the update."""
        ...

    @property
    def clip(self) -> float:
        """Return how far a value may move before its gradient is cut off, in standard deviations of the targets."""
        ...

    @property
    def max_gradient_norm(self) -> float:
        """Return the norm to which longer gradients are shortened."""
        ...


@final
class CriticRegression:
    """Fits critics to Monte-Carlo targets with Adam and gradients in closed form."""

    def __init__(self, critics: Critics, settings: RegressionSettings) -> None:
        self._critics, self._settings = critics, settings
        self.optimiser = torch.optim.Adam(critics.parameters(), lr=settings.critic_rate, fused=True)

    def of(self, inputs: Tensor, targets: Tensor) -> Regression:
        """Start the regression on a batch of inputs [K, N, nc] and targets [K, N]."""
        self._critics.renormalise(targets)
        return Regression(self._critics, self.optimiser, self._settings, inputs, self._critics.normalised(targets))


@final
class Regression:
    """The regression of critics on one batch; for use without autograd."""

    def __init__(
        self,
        critics: Critics,
        optimiser: torch.optim.Adam,
        settings: RegressionSettings,
        inputs: Tensor,
        targets: Tensor,
    ) -> None:
        self._count, self._only = len(targets), critics.informed
        self._networks = Networks(list(zip(critics.weights, critics.biases, strict=True)), only=self._only)
        self._optimiser, self._settings = optimiser, settings
        self._inputs, self._targets = self._used(inputs), self._used(targets)
        clipped = settings.critic_loss == "clipped"
        self._old = [self._networks.forward(self._inputs)[..., 0]] if clipped else []

    def epoch(self, order: Tensor | None, sizes: list[int]) -> None:
        """Make one pass over the batch, in minibatches of these sizes."""
        for part in cut(shuffled([self._inputs, self._targets, *self._old], 1, order), sizes, dim=1):
            self._step(*part)

    def losses(self) -> Tensor:
        """Return the mean squared error of each critic, in variances of its targets [K]."""
        errors = (self._networks.forward(self._inputs)[..., 0] - self._targets).square().mean(1)
        return errors if self._only is None else errors.new_zeros(self._count).index_copy(0, self._only, errors)

    def _used(self, each: Tensor) -> Tensor:
        return each if self._only is None else each[self._only]

    def _step(self, inputs: Tensor, targets: Tensor, *old: Tensor) -> None:
        """Take one gradient step; with old values, on the clipped loss."""
        settings, networks = self._settings, self._networks
        values = networks.forward(inputs)[..., 0]
        error = values - targets
        # The gradient of the sum over critics. Each has its own parameters, so only the norm limit couples them.
        slope = error * (2 / error.shape[1])
        for before in old:
            held = values.clamp(before - settings.clip, before + settings.clip)
            slope.masked_fill_(error.abs() < (held - targets).abs(), 0)
        networks.backward(slope[..., None])
        networks.limit(settings.max_gradient_norm)
        self._optimiser.step()
