"""ζ, the exploration signal: how much a query would teach the model. All variants are defined here.

ζ_LOO and ζ_bootstrap are large where there are data and vanish far away; entropy grows with the distance from the data.

ζ_LOO is the mean, over all data points i, of the divergence KL(p⁽ⁱ⁾ ‖ p) between the posterior without point i and the
posterior at the query, summed over the outputs. For p = N(μ, σ²) and p⁽ⁱ⁾ = N(μ + mᵢ, σ² + gᵢ)

    KL(p⁽ⁱ⁾ ‖ p) = ½ [(gᵢ + mᵢ²) / σ² - log(1 + gᵢ / σ²)].

Each kind of posterior has the growth gᵢ and the shift mᵢ in closed form: `exact_loo`, `sparse_loo`, `correlated_loo`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.information import InformationGain

if TYPE_CHECKING:
    from samba_rl.models.gp import GPDynamics, Prediction


class Zeta(Protocol):
    """Measures how much each query would teach the model."""

    def predict(self, model: GPDynamics, queries: Tensor) -> tuple[Prediction, Tensor]:
        """Return the prediction at queries [B, ni] and ζ of each query [B], from one pass where possible."""
        ...


@final
@dataclass(frozen=True)
class LeaveOneOut:
    """ζ_LOO: the mean over i of KL(posterior without point i ‖ posterior), summed over the outputs."""

    noise: float = 0.0
    """0: of the function, as in the paper; where the model has little noise, that is largest on the data themselves.
    Above 0: of the noisy observation, with at least this noise, in variances of the changes of state in the data."""

    def predict(self, model: GPDynamics, queries: Tensor) -> tuple[Prediction, Tensor]:
        """Return the prediction at queries [B, ni] and ζ_LOO [B], which share one pass."""
        prediction = model.predict(queries, loo=True, blur=self.noise)
        assert prediction.zeta is not None
        return prediction, prediction.zeta


@final
@dataclass(frozen=True)
class Bootstrap:
    """ζ_bootstrap: the symmetric KL between the posteriors of two random halves of the data, averaged over splits."""

    partitions: int = 5
    """Number of random splits into halves."""
    seed: int = 0
    """Seed of the splits."""

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise UserError(f"partitions = {self.partitions}; it must be at least 1")

    def predict(self, model: GPDynamics, queries: Tensor) -> tuple[Prediction, Tensor]:
        """Return the prediction at queries [B, ni] and ζ_bootstrap, summed over the outputs [B]."""
        z = model.normalised(queries)
        total = torch.zeros(len(z), dtype=z.dtype, device=z.device)
        pairs = model.bipartitions(self.partitions, self.seed)
        for first, second in pairs:
            a, b = first.predict(z), second.predict(z)
            total += symmetric_kl(a.mean, a.variance, b.mean, b.variance).sum(-1)
        return model.predict(queries), total / len(pairs)


@final
@dataclass(frozen=True)
class Entropy:
    """Differential entropy of the predicted change of state with its noise.

    It is measured on normalised targets and without calibration, so that it depends neither on the units of the state
    nor on the fit's calibration factors.
    """

    def predict(self, model: GPDynamics, queries: Tensor) -> tuple[Prediction, Tensor]:
        """Return the prediction at queries [B, ni] and its entropy, summed over the outputs [B]."""
        prediction = model.predict(queries)
        variance = (prediction.variance + model.noise) / (model.target_scale * model.factor).square()
        return prediction, 0.5 * (variance * (2 * math.pi * math.e)).log().sum(-1)


ZETAS: dict[str, Zeta] = {
    "loo": LeaveOneOut(),
    "loo-observed": LeaveOneOut(noise=1e-2),
    "bootstrap": Bootstrap(),
    "entropy": Entropy(),
    "information": InformationGain(),
}
"""The variants of ζ by the names that the command line and files use."""


def symmetric_kl(mean_a: Tensor, variance_a: Tensor, mean_b: Tensor, variance_b: Tensor) -> Tensor:
    """Compute (KL(a ‖ b) + KL(b ‖ a)) / 2 of Gaussians elementwise; the logarithms cancel."""
    squared = (mean_a - mean_b).square()
    return 0.25 * ((variance_a + squared) / variance_b + (variance_b + squared) / variance_a) - 0.5


def observed(variance: Tensor, noise: Tensor, least: float) -> Tensor:
    """Add the noise [D] of an observation, at least `least`, to variances [D, B]; 0 leaves them as they are."""
    return variance + noise.clamp(min=least)[:, None] if least else variance


def exact_loo(v: Tensor, variance: Tensor, alpha: Tensor, inverse_diagonal: Tensor) -> Tensor:
    """Compute ζ_LOO [B] of an exact posterior from v = kA [D, B, n], which is overwritten, and σ² [D, B].

    With α [D, n] and `inverse_diagonal` = 1 / aᵢᵢ [D, n]: gᵢ = vᵢ² / aᵢᵢ and mᵢ = -vᵢ αᵢ / aᵢᵢ.
    """
    residual = alpha * inverse_diagonal
    squares = v.mul_(v)
    # One product sums both gᵢ and mᵢ² over i.
    changes = (squares @ (inverse_diagonal + residual.square())[..., None])[..., 0] / variance
    logarithms = squares.mul_(inverse_diagonal[:, None]).div_(variance[..., None]).log1p_().sum(-1)
    return _mean_divergence(changes, logarithms, points=v.shape[-1])


def sparse_loo(u: Tensor, variance: Tensor, leverage: Tensor, surprise: Tensor) -> Tensor:
    """Compute ζ_LOO [B] of an inducing-point posterior from u [D, B, M] and σ² [D, B].

    For the l points left out, gᵢ = (u @ leverage)ᵢ² with `leverage` [D, M, l]; `surprise` [D, l] is (gᵢ + mᵢ²) / gᵢ.
    """
    growth = (u @ leverage).square_()
    changes = (growth @ surprise[..., None])[..., 0] / variance
    logarithms = growth.div_(variance[..., None]).log1p_().sum(-1)
    return _mean_divergence(changes, logarithms, points=growth.shape[-1])


def correlated_loo(v: Tensor, variance: Tensor, leave: Tensor) -> Tensor:
    """Compute ζ_LOO [B] of a posterior with correlated outputs from V = CA [D, B, nD] and σ² [D, B].

    `leave` [n, D, D + 1] holds a factor F of Aᵢᵢ⁻¹ = FFᵀ and, as its last column, Aᵢᵢ⁻¹ αᵢ. So the squares of the first
    D columns of Vᵢ @ leave add up to gᵢ, and the last column is -mᵢ.
    """
    outputs, queries, _ = v.shape
    points = len(leave)
    blocks = v.view(outputs * queries, points, outputs).transpose(0, 1)
    squares = torch.bmm(blocks, leave).square_().div_(variance.reshape(-1, 1))
    growth = squares[..., :outputs].sum(-1)
    changes, logarithms = squares.sum((0, 2)), growth.log1p_().sum(0)
    return _mean_divergence(changes.view(outputs, queries), logarithms.view(outputs, queries), points)


def _mean_divergence(changes: Tensor, logarithms: Tensor, points: int) -> Tensor:
    """Return ζ_LOO [B] from Σᵢ (gᵢ + mᵢ²) / σ² and Σᵢ log(1 + gᵢ / σ²), both [D, B]."""
    # A divergence is never negative; rounding can make it so.
    return (changes - logarithms).mul_(0.5 / points).sum(0).clamp_(min=0)
