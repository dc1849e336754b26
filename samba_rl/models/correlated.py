"""A GP whose D outputs are correlated: the linear model of coregionalisation.

Output d mixes Q latent functions, each with its own length scales:

    K[(i,d), (j,e)] = Σ_q B_q[d,e] k_q(xᵢ, xⱼ)    and noise σ²_d on the diagonal.

Values are ordered point by point: (point 0, output 0), (point 0, output 1), ... With A = (K + noise)⁻¹, α = Ay,
C = K(x*, X) [D, nD] for one query and V = CA:

    mean        μ = Cα
    covariance  Σ = Σ_q B_q - V Cᵀ
    leaving out all D values of point i:   μ⁽ⁱ⁾ - μ = -Vᵢ Aᵢᵢ⁻¹ αᵢ    and    Σ⁽ⁱ⁾ - Σ = Vᵢ Aᵢᵢ⁻¹ Vᵢᵀ

where Vᵢ, Aᵢᵢ [D, D] and αᵢ [D] are the blocks of point i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from samba_rl.models.kernel import factorise, kernel, scaled
from samba_rl.models.marginals import Marginals, chunk_rows, in_chunks, in_dtype, remaining_variance
from samba_rl.models.zeta import correlated_loo, observed


@dataclass(frozen=True)
class CorrelatedHyper:
    """The hyper-parameters of a GP with D outputs mixed from Q latent functions, on normalised data."""

    lengthscales: Tensor
    """Length scales [Q, ni]."""
    mixing: Tensor
    """Coregionalisation matrices B_q [Q, D, D], positive semi-definite."""
    noise: Tensor
    """Noise variances [D]."""

    def to(self, target: Tensor) -> CorrelatedHyper:
        """Return a copy on the device and in the dtype of `target`."""
        return CorrelatedHyper(self.lengthscales.to(target), self.mixing.to(target), self.noise.to(target))

    @property
    def prior(self) -> Tensor:
        """Return the prior variances of the outputs [D]."""
        return self.mixing.diagonal(dim1=-2, dim2=-1).sum(0)


def _covariance(a: Tensor, b: Tensor, mixing: Tensor) -> Tensor:
    """Compute the covariances between scaled inputs [Q, N, ni] and [Q, M, ni], mixed by [Q, D, D]: [D, N, M·D]."""
    count, rows, _ = a.shape
    outputs = mixing.shape[1]
    latent = kernel(a, b, torch.ones_like(mixing[:, 0, 0])).view(count, -1)
    # One product for each output writes the values of a row in their final order, without a copy.
    return (latent.T @ mixing.transpose(0, 1)).view(outputs, rows, -1)


def _square(covariance: Tensor) -> Tensor:
    """Reshape covariances [D, N, M·D] to a matrix [N·D, M·D]."""
    return covariance.transpose(0, 1).reshape(-1, covariance.shape[2])


def _factorise(gram: Tensor, noise: Tensor, level: Tensor) -> tuple[Tensor, float]:
    """Return the Cholesky factor of gram [N·D, N·D] plus noise [D] per point, and the jitter relative to level [1]."""
    matrix = gram.clone()
    matrix.diagonal().add_(noise.repeat(len(gram) // len(noise)))
    factor, jitter = factorise(matrix[None], torch.zeros_like(level), level)
    return factor[0], jitter


@final
@dataclass(frozen=True)
class CorrelatedPosterior:
    """A GP with a zero mean and D correlated outputs on n normalised points."""

    hyper: CorrelatedHyper
    """Hyper-parameters."""
    inputs: Tensor
    """Normalised inputs [n, ni]."""
    targets: Tensor
    """Normalised targets [n, D]."""
    z: Tensor
    """Inputs divided by the length scales [Q, n, ni]."""
    inverse: Tensor
    """A [nD, nD]."""
    alpha: Tensor
    """α = Ay [nD]."""
    leave: Tensor
    """For each point a factor F of Aᵢᵢ⁻¹ = FFᵀ and, as its last column, Aᵢᵢ⁻¹ αᵢ [n, D, D + 1]."""
    jitter: float
    """Jitter added to the diagonal, relative to the largest prior variance."""

    @staticmethod
    def condition(inputs: Tensor, targets: Tensor, hyper: CorrelatedHyper) -> CorrelatedPosterior:
        """Condition on inputs [n, ni] and targets [n, D]."""
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
        """Return the posterior with m more points [m, ni] and [m, D], by a block update in O((nD)² mD)."""
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
        # The residual of the old α, multiplied by the new corner, avoids a product with the whole inverse.
        weight = corner @ (targets.reshape(-1) - cross.T @ self.alpha)
        alpha = torch.cat([self.alpha - gain @ weight, weight])
        all_inputs, all_targets = torch.cat([self.inputs, inputs]), torch.cat([self.targets, targets])
        z, leave = torch.cat([self.z, new], dim=1), _leave(inverse, alpha, len(all_inputs))
        jitter = max(self.jitter, extra)
        return CorrelatedPosterior(self.hyper, all_inputs, all_targets, z, inverse, alpha, leave, jitter)

    def cast(self, dtype: torch.dtype) -> CorrelatedPosterior:
        """Return the posterior in another precision, for rollouts; fitting stays in float64."""
        if self.inputs.dtype == dtype:
            return self
        return replace(in_dtype(self, dtype), hyper=in_dtype(self.hyper, dtype))

    def loo_scores(self) -> Tensor:
        """Return the leave-one-out z-score of each target, in predictive standard deviations [n, D]."""
        return self.leave[..., -1] / self.leave[..., :-1].square().sum(-1).sqrt()

    def loo_errors(self) -> Tensor:
        """Return by how much each target misses its leave-one-out prediction [n, D]."""
        return self.leave[..., -1]

    def block_scores(self, blocks: Sequence[slice]) -> Tensor:
        """Return the z-scores [m, D] of the targets in blocks of rows, each block left out as a whole.

        As for one point, the targets miss their predictions by A_BB⁻¹ α_B, with a predicted covariance of A_BB⁻¹.
        """
        scores, outputs = [], len(self.hyper.noise)
        for rows in blocks:
            at = slice(rows.start * outputs, rows.stop * outputs)
            covariance = torch.linalg.inv_ex(self.inverse[at, at]).inverse
            scores.append(covariance @ self.alpha[at] / covariance.diagonal().sqrt())
        return torch.cat(scores).view(-1, outputs)

    def predict(self, queries: Tensor, *, loo: bool = False, blur: float = 0.0) -> Marginals:
        """Return the mean and variance, and with `loo` also ζ_LOO, at queries [B, ni], with bounded memory."""
        rows = chunk_rows(len(self.alpha) * len(self.hyper.noise), queries)
        return in_chunks(partial(self._predict, loo=loo, blur=blur), queries, rows)

    def covariance(self, queries: Tensor) -> Tensor:
        """Return the covariances [D, B, T, T] of each output among the steps of trajectories [B, T, ni]."""
        count, steps, _ = queries.shape
        z = scaled(queries.flatten(0, 1), self.hyper.lengthscales)
        c = _covariance(z, self.z, self.hyper.mixing)
        explained = (c @ self.inverse).view(len(c), count, steps, -1) @ c.view(len(c), count, steps, -1).mT
        each = z.view(-1, steps, z.shape[-1])
        latent = kernel(each, each, torch.ones_like(each[:, 0, 0])).view(len(z), count, steps, steps)
        own = self.hyper.mixing.diagonal(dim1=-2, dim2=-1)
        return torch.einsum("qd,qbts->dbts", own, latent) - explained

    def _predict(self, queries: Tensor, *, loo: bool, blur: float) -> Marginals:
        c = _covariance(scaled(queries, self.hyper.lengthscales), self.z, self.hyper.mixing)
        v = c @ self.inverse
        mean = c @ self.alpha
        explained = c.mul_(v).sum(-1)
        variance = remaining_variance(self.hyper.prior, explained)
        zeta = correlated_loo(v, observed(variance, self.hyper.noise, blur), self.leave) if loo else None
        return Marginals(mean.T, variance.T, zeta)


def _leave(inverse: Tensor, alpha: Tensor, points: int) -> Tensor:
    """Compute `CorrelatedPosterior.leave` [n, D, D + 1] from the inverse [nD, nD] and α [nD]."""
    outputs = len(alpha) // points
    blocks = inverse.view(points, outputs, points, outputs).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    values, vectors = torch.linalg.eigh(blocks)
    # In float32 rounding can make the block of near-copies indefinite; its true eigenvalues are never that small.
    smallest = torch.finfo(values.dtype).eps * values.amax(-1, keepdim=True)
    factor = vectors / torch.maximum(values, smallest).sqrt()[:, None]
    return torch.cat([factor, factor @ (factor.mT @ alpha.view(points, outputs, 1))], dim=-1)
