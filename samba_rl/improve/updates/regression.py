"""The critics' regression, which every update makes beside its own step of the policy."""

from __future__ import annotations

from typing import Literal, Protocol, final

import torch
from torch import Tensor

from samba_rl.improve.advantages import Critics
from samba_rl.improve.updates.networks import Networks, cut, shuffled


class RegressionSettings(Protocol):
    """What the regression needs to know."""

    @property
    def critic_rate(self) -> float:
        """Adam's learning rate."""
        ...

    @property
    def critic_loss(self) -> Literal["squared", "clipped"]:
        """Whether values are held near what they were."""
        ...

    @property
    def clip(self) -> float:
        """How near."""
        ...

    @property
    def max_gradient_norm(self) -> float:
        """Longer gradients are shortened."""
        ...


@final
class CriticRegression:
    """Fits critics to Monte-Carlo targets with Adam, gradients in closed form."""

    def __init__(self, critics: Critics, settings: RegressionSettings) -> None:
        self._critics, self._settings = critics, settings
        self.optimiser = torch.optim.Adam(critics.parameters(), lr=settings.critic_rate, fused=True)

    def of(self, inputs: Tensor, targets: Tensor) -> Regression:
        """The regression on one batch: inputs [K, N, nc] and targets [K, N]."""
        self._critics.renormalise(targets)
        return Regression(self._critics, self.optimiser, self._settings, inputs, self._critics.normalised(targets))


@final
class Regression:
    """Of critics on one batch; for use without autograd."""

    def __init__(
        self,
        critics: Critics,
        optimiser: torch.optim.Adam,
        settings: RegressionSettings,
        inputs: Tensor,
        targets: Tensor,
    ) -> None:
        self._networks = Networks(list(zip(critics.weights, critics.biases, strict=True)))
        self._optimiser, self._settings = optimiser, settings
        self._inputs, self._targets = inputs, targets
        clipped = settings.critic_loss == "clipped"
        self._old = [self._networks.forward(inputs)[..., 0]] if clipped else []

    def epoch(self, order: Tensor | None, sizes: list[int]) -> None:
        """One pass over the batch, in parts of these sizes."""
        for part in cut(shuffled([self._inputs, self._targets, *self._old], 1, order), sizes, dim=1):
            self._step(*part)

    def losses(self) -> Tensor:
        """Mean squared errors, in variances of the targets [K]."""
        return (self._networks.forward(self._inputs)[..., 0] - self._targets).square().mean(1)

    def _step(self, inputs: Tensor, targets: Tensor, *old: Tensor) -> None:
        """One gradient step; of the clipped loss if there are old values."""
        settings, networks = self._settings, self._networks
        values = networks.forward(inputs)[..., 0]
        error = values - targets
        # Of the sum over critics: each has its own parameters, so they meet in the limit on the gradient's norm alone.
        slope = error * (2 / error.shape[1])
        for before in old:
            held = values.clamp(before - settings.clip, before + settings.clip)
            slope.masked_fill_(error.abs() < (held - targets).abs(), 0)
        networks.backward(slope[..., None])
        networks.limit(settings.max_gradient_norm)
        self._optimiser.step()
