"""Regression of the critics on Monte-Carlo targets, which every update rule performs beside its policy step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, final

from torch import Tensor

from samba_rl.improve.advantages import Critics
from samba_rl.improve.updates.minibatches import Order, mean
from samba_rl.improve.updates.networks import Networks, adam


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
    """Fits critics to Monte-Carlo targets with Adam and gradients in closed form; for use without autograd."""

    def __init__(self, critics: Critics, settings: RegressionSettings) -> None:
        self._critics, self.settings = critics, settings
        self.networks = Networks(list(zip(critics.weights, critics.biases, strict=True)))
        self.optimiser = adam(critics.parameters(), settings.critic_rate)

    def of(self, inputs: Tensor, targets: Tensor) -> Regression:
        """Start the regression on a batch of inputs [K, N, nc] and targets [K, N]."""
        critics, networks = self._critics, self.networks
        critics.renormalise(targets)
        networks.only = critics.informed
        networks.gradient.zero_()
        tensors = [inputs, critics.normalised(targets)]
        if networks.only is not None:
            tensors = [each[networks.only] for each in tensors]
        if self.settings.critic_loss == "clipped":
            tensors.append(networks.forward(tensors[0])[..., 0])
        return Regression(self, networks.only, len(targets), tensors)


@final
@dataclass(frozen=True)
class Regression:
    """The regression of critics on one batch; for use without autograd."""

    fit: CriticRegression
    """The critics and their optimiser."""
    only: Tensor | None
    """Indices [k] of the critics that have something to learn; None: all K of them."""
    count: int
    """Number of critics K."""
    tensors: list[Tensor]
    """Inputs [k, N, nc], targets in the networks' units [k, N] and, for the clipped loss, the old values [k, N]."""

    def epoch(self, order: Order) -> None:
        """Make one pass over the batch, in these minibatches."""
        self.fit.networks.only = self.only
        for share, part in order.parts(self.tensors, dim=1):
            self._step(share, *part)

    def losses(self, share: Tensor | None = None) -> Tensor:
        """Return the mean squared error of each critic, in variances of its targets [K]."""
        self.fit.networks.only = self.only
        errors = mean((self.fit.networks.forward(self.tensors[0])[..., 0] - self.tensors[1]).square(), share)
        return errors if self.only is None else errors.new_zeros(self.count).index_copy(0, self.only, errors)

    def _step(self, share: Tensor | None, inputs: Tensor, targets: Tensor, *old: Tensor) -> None:
        """Take one gradient step; with old values, on the clipped loss."""
        settings, networks = self.fit.settings, self.fit.networks
        if networks.fused is not None:
            before = old[0] if old else None
            gradient = networks.fused.regression(inputs, networks.used, share, targets, before, settings.clip)
            networks.gradient.copy_(gradient)
        else:
            self._set_gradient(share, inputs, targets, *old)
        networks.limit(settings.max_gradient_norm)
        self.fit.optimiser.step()

    def _set_gradient(self, share: Tensor | None, inputs: Tensor, targets: Tensor, *old: Tensor) -> None:
        settings, networks = self.fit.settings, self.fit.networks
        values = networks.forward(inputs)[..., 0]
        error = values - targets
        # The gradient of the sum over critics. Each has its own parameters, so only the norm limit couples them.
        slope = error * (2 / error.shape[1] if share is None else 2 * share)
        for before in old:
            held = values.clamp(before - settings.clip, before + settings.clip)
            slope.masked_fill_(error.abs() < (held - targets).abs(), 0)
        networks.backward(slope[..., None])
