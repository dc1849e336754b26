"""A GP whose D outputs are correlated: the linear model of coregionalisation.

Output d is a mixture of Q latent functions, each with its own length scales:

    K[(i,d), (j,e)] = Σ_q B_q[d,e] k_q(xᵢ, xⱼ)    and noise σ²_d on the diagonal.

Numbers are ordered point by point: (point 0, output 0), (point 0, output 1), ... With A = (K + noise)⁻¹, α = Ay,
C = K(x*, X) [D, nD] for one query and V = CA:

    mean        μ = Cα
    covariance  Σ = Σ_q B_q - V Cᵀ
    leaving out point i, all D numbers of it:   μ⁽ⁱ⁾ - μ = -Vᵢ Aᵢᵢ⁻¹ αᵢ    and    Σ⁽ⁱ⁾ - Σ = Vᵢ Aᵢᵢ⁻¹ Vᵢᵀ

where Vᵢ, Aᵢᵢ [D, D] and αᵢ [D] are the blocks of point i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from samba_rl.models.likelihood import factorise, kernel, scaled
from samba_rl.models.marginals import Marginals, chunk_rows, in_chunks, remaining_variance


@dataclass(frozen=True)
class CorrelatedHyper:
    """The hyper-parameters of a GP with D outputs mixed from Q latent functions, on normalised data."""

    lengthscales: Tensor
    """[Q, ni]"""
    mixing: Tensor
    """Coregionalisation matrices B_q [Q, D, D], positive semi-definite."""
    noise: Tensor
    """Noise variances [D]."""

    def to(self, target: Tensor) -> CorrelatedHyper:
        """The same on the device and in the dtype of `target`."""
        return CorrelatedHyper(self.lengthscales.to(target), self.mixing.to(target), self.noise.to(target))

    @property
    def prior(self) -> Tensor:
        """Prior variances of the outputs [D]."""
        return self.mixing.diagonal(dim1=-2, dim2=-1).sum(0)


def _covariance(a: Tensor, b: Tensor, mixing: Tensor) -> Tensor:
    """Covariances between scaled inputs [Q, N, ni] and [Q, M, ni], mixed by [Q, D, D]: [D, N, M·D]."""
    count, rows, _ = a.shape
    outputs = mixing.shape[1]
    latent = kernel(a, b, torch.ones_like(mixing[:, 0, 0])).view(count, -1)
    # One product for each output writes the numbers of a row in their final order, without a copy.
    return (latent.T @ mixing.transpose(0, 1)).view(outputs, rows, -1)


def _square(covariance: Tensor) -> Tensor:
    """Covariances [D, N, M·D] as a matrix [N·D, M·D]."""
    return covariance.transpose(0, 1).reshape(-1, covariance.shape[2])


def _factorise(gram: Tensor, noise: Tensor, level: Tensor) -> tuple[Tensor, float]:
    """Cholesky factor of gram [N·D, N·D] plus noise [D] for every point, and the jitter, relative to level [1]."""
    matrix = gram.clone()
    matrix.diagonal().add_(noise.repeat(len(gram) // len(noise)))
    factor, jitter = factorise(matrix[None], torch.zeros_like(level), level)
    return factor[0], jitter


@final
@dataclass(frozen=True)
class CorrelatedPosterior:
    """A GP with a zero mean and D correlated outputs on n normalised points."""

    hyper: CorrelatedHyper
    inputs: Tensor
    """[n, ni]"""
    targets: Tensor
    """[n, D]"""
    z: Tensor
    """Inputs in length scales [Q, n, ni]."""
    inverse: Tensor
    """A [nD, nD]."""
    alpha: Tensor
    """[nD]"""
    leave: Tensor
    """For each point a factor F of Aᵢᵢ⁻¹ = FFᵀ, and beside it Aᵢᵢ⁻¹ αᵢ [n, D, D + 1]."""
    jitter: float
    """What had to be added to the diagonal, relative to the largest prior variance."""

    @staticmethod
    def condition(inputs: Tensor, targets: Tensor, hyper: CorrelatedHyper) -> CorrelatedPosterior:
        """The posterior given inputs [n, ni] and targets [n, D]."""
        hyper = hyper.to(inputs)
        z = scaled(inputs, hyper.lengthscales)
        gram = _square(_covariance(z, z, hyper.mixing))
        factor, jitter = _factorise(gram, hyper.noise, hyper.prior.amax()[None])
        alpha = torch.cholesky_solve(targets.reshape(-1, 1), factor)[:, 0]
        inverse = torch.cholesky_inverse(factor)
        return CorrelatedPosterior(hyper, inputs, targets, z, inverse, alpha, _leave(inverse, alpha, len(z[0])), jitter)

    def __len__(self) -> int:
        return len(self.inputs)

    def extend(self, inputs: Tensor, targets: Tensor) -> CorrelatedPosterior:
        """The posterior with m more points [m, ni] and [m, D], by a block update in O((nD)² mD)."""
        new = scaled(inputs, self.hyper.lengthscales)
        cross = _square(_covariance(self.z, new, self.hyper.mixing))
        gain = self.inverse @ cross
        level = self.hyper.prior.amax()[None]
        rest = _square(_covariance(new, new, self.hyper.mixing)) - cross.T @ gain
        factor, extra = _factorise(rest, self.hyper.noise + self.jitter * level, level)
        corner = torch.cholesky_inverse(factor)
        side = gain @ corner
        top = torch.cat([torch.addmm(self.inverse, side, gain.T), -side], dim=1)
        inverse = torch.cat([top, torch.cat([-side.T, corner], dim=1)])
        # The residual of the old α, pushed through the new corner: no product of the whole inverse is needed.
        weight = corner @ (targets.reshape(-1) - cross.T @ self.alpha)
        alpha = torch.cat([self.alpha - gain @ weight, weight])
        all_inputs, all_targets = torch.cat([self.inputs, inputs]), torch.cat([self.targets, targets])
        z, leave = torch.cat([self.z, new], dim=1), _leave(inverse, alpha, len(all_inputs))
        jitter = max(self.jitter, extra)
        return CorrelatedPosterior(self.hyper, all_inputs, all_targets, z, inverse, alpha, leave, jitter)

    def cast(self, dtype: torch.dtype) -> CorrelatedPosterior:
        """The same in another precision, for rollouts; fitting stays in float64."""
        if self.inputs.dtype == dtype:
            return self
        return CorrelatedPosterior(
            self.hyper.to(self.inputs.new_empty(0, dtype=dtype)),
            inputs=self.inputs.to(dtype),
            targets=self.targets.to(dtype),
            z=self.z.to(dtype),
            inverse=self.inverse.to(dtype),
            alpha=self.alpha.to(dtype),
            leave=self.leave.to(dtype),
            jitter=self.jitter,
        )

    def loo_scores(self) -> Tensor:
        """How far each target [n, D] lies from what the other points predict of it, in predictive deviations."""
        return self.leave[..., -1] / self.leave[..., :-1].square().sum(-1).sqrt()

    def predict(self, queries: Tensor, loo: bool = False) -> Marginals:
        """Mean, variance and, if asked for, ζ_LOO at queries [B, ni], with bounded memory."""
        rows = chunk_rows(len(self.alpha) * len(self.hyper.noise), queries)
        return in_chunks(self._predict, queries, loo, rows)

    def _predict(self, queries: Tensor, loo: bool) -> Marginals:
        c = _covariance(scaled(queries, self.hyper.lengthscales), self.z, self.hyper.mixing)
        v = c @ self.inverse
        mean = c @ self.alpha
        explained = c.mul_(v).sum(-1)
        variance = remaining_variance(self.hyper.prior, explained)
        return Marginals(mean.T, variance.T, self._loo(v, variance) if loo else None)

    def _loo(self, v: Tensor, variance: Tensor) -> Tensor:
        """ζ_LOO [B] = Σ over outputs of the mean over i of KL(without i ‖ with all), from V [D, B, nD]."""
        outputs, queries, _ = v.shape
        blocks = v.view(outputs * queries, len(self), outputs).transpose(0, 1)
        squares = torch.bmm(blocks, self.leave).square_().div_(variance.reshape(-1, 1))
        # The first D of the last axis add up to the relative growth of the variance; the last is the shift of the mean.
        growth = squares[..., :outputs].sum(-1)
        divergence = (squares.sum((0, 2)) - growth.log1p_().sum(0)).mul_(0.5 / len(self))
        return divergence.view(outputs, queries).sum(0).clamp_(min=0)


def _leave(inverse: Tensor, alpha: Tensor, points: int) -> Tensor:
    """What leaving each point out takes from the inverse [nD, nD] and α [nD]: [n, D, D + 1]."""
    outputs = len(alpha) // points
    blocks = inverse.view(points, outputs, points, outputs).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    values, vectors = torch.linalg.eigh(blocks)
    # In float32 rounding can make a block of near copies indefinite; its eigenvalues never are so small in truth.
    smallest = torch.finfo(values.dtype).eps * values.amax(-1, keepdim=True)
    factor = vectors / torch.maximum(values, smallest).sqrt()[:, None]
    return torch.cat([factor, factor @ (factor.mT @ alpha.view(points, outputs, 1))], dim=-1)
