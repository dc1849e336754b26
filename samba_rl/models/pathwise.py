"""Functions drawn from the posterior of an exact GP, by pathwise conditioning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.gp import GPDynamics
from samba_rl.models.kernel import kernel_with, scaled


@dataclass(frozen=True)
class _Features:
    """M random Fourier features, whose weighted sums approximate functions drawn from the prior.

    In single precision, which is four times faster: their rounding errors of 1e-6 are far below any noise.
    """

    frequencies: Tensor
    """Frequencies [D, M, ni]."""
    phases: Tensor
    """Phases [D, M]."""

    def __call__(self, z: Tensor) -> Tensor:
        """Evaluate the features at scaled inputs [D, N, ni]: [D, N, M]."""
        return torch.baddbmm(self.phases[:, None], z.to(self.phases), self.frequencies.mT).cos_()


@final
@dataclass(frozen=True)
class Functions:
    """B functions drawn from the posterior of an exact GP, each for `share` episodes in a row.

    By Matheron's rule, each is a function f₀ drawn from the prior plus a correction from the data with noise ε:
    f(x) = f₀(x) + k(x, X) A (y - f₀(X) - ε). Scaling f₀ and ε scales the deviation from the mean k(x, X) A y, which is
    how calibration enters.
    """

    model: GPDynamics
    """The model, for the units of queries and changes."""
    posterior: ExactPosterior
    """The posterior that the functions are drawn from."""
    features: _Features
    """Features of the prior functions."""
    weights: Tensor
    """Weights of the features [D, B, M], in their precision."""
    correction: Tensor
    """A (y - f₀(X) - ε) [D, B, n]."""
    share: int = 1
    """Number of episodes that follow the same function."""

    @staticmethod
    def draw(model: GPDynamics, episodes: int, features: int, generator: Generator, *, share: int = 1) -> Functions:
        """Draw the functions of so many episodes, each with a prior of `features` random features."""
        posterior = model.posterior
        if not isinstance(posterior, ExactPosterior):
            raise UserError(
                "functions can be drawn only from an exact GP with independent outputs, but this model has a "
                f"{type(posterior).__name__}. Use draw='marginals'"
            )
        outputs, points, inputs = posterior.z.shape
        n = -(-episodes // share)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, device=posterior.z.device, dtype=torch.float32)

        phases = posterior.z.new_empty(outputs, features, dtype=torch.float32)
        phases = phases.uniform_(0, 2 * math.pi, generator=generator)
        basis = _Features(normal(outputs, features, inputs), phases)
        factor = model.factor.to(posterior.z)[:, None, None]
        size = factor * (2 * posterior.hyper.signal / features).sqrt()[:, None, None]
        weights = normal(outputs, n, features).mul_(size)
        noise = normal(outputs, n, points).mul_(factor * posterior.hyper.noise.sqrt()[:, None, None])
        prior = torch.baddbmm(noise, weights, basis(posterior.z).mT)
        correction = posterior.solve(posterior.targets.T[:, None] - prior)
        return Functions(model, posterior, basis, weights, correction, share)

    def __call__(self, queries: Tensor) -> Tensor:
        """Return the change of state [N, D] that each episode's function gives for its query of [N, ni]."""
        hyper = self.posterior.hyper
        normalised = self.model.normalised(queries)
        z = scaled(normalised.to(self.posterior.z), hyper.lengthscales)
        k = kernel_with(self.posterior.offsets, z, self.posterior.z)
        values = self._weighted(self.features(z), self.weights) + self._weighted(k, self.correction)
        return self.model.denormalised(normalised, values.T.to(self.model.dtype))

    def _weighted(self, each: Tensor, weights: Tensor) -> Tensor:
        """Sum the features of each episode [D, N, M] with the weights of its function [D, B, M]: [D, N]."""
        outputs, episodes, count = each.shape
        missing = weights.shape[1] * self.share - episodes
        padded = torch.nn.functional.pad(each, (0, 0, 0, missing)) if missing else each
        grouped = padded.view(outputs, -1, self.share, count)
        return (grouped @ weights[..., None]).view(outputs, -1)[:, :episodes]
