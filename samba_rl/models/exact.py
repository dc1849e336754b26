"""The exact GP posterior of D independent outputs.

With A = (K + noise I)⁻¹, α = Ay, k the covariances of a query with the data, k** its prior variance and v = kA:

    mean      μ  = k·α
    variance  σ² = k** - v·k
    leaving point i out:   μ⁽ⁱ⁾ - μ = -vᵢ αᵢ / aᵢᵢ    and    σ⁽ⁱ⁾² - σ² = vᵢ² / aᵢᵢ

So one matrix product, v = kA, gives the mean, the variance and ζ_LOO. Leaving out a block B of points at once, their
targets miss their predictions by A_BB⁻¹ α_B, and the covariance of that is predicted as A_BB⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import final

import torch
from torch import Tensor

from samba_rl.capture import kernels
from samba_rl.models.kernel import (
    JITTERS,
    factor_with,
    factorise,
    kernel,
    kernel_with,
    no_factor,
    offsets,
    remaining_covariance,
    scaled,
    triangular_product,
)  # fmt: skip
from samba_rl.models.likelihood import Hyper
from samba_rl.models.marginals import Marginals, chunk_rows, in_chunks, in_dtype, remaining_variance
from samba_rl.models.zeta import exact_loo, observed

_BY_OUTPUT = frozenset({"z", "root", "alpha", "white", "inverse_diagonal", "inverse"})
LEAST_ROWS = 128
"""Smallest number of queries in a chunk: products with fewer are limited by reading the inverse from memory."""


@final
@dataclass(frozen=True)
class ExactPosterior:
    """D exact GPs with a zero mean on n normalised points.

    v = kA takes one matrix product, but loses digits in proportion to the ratio of signal to noise. Where that is too
    many, R = L⁻¹, the inverse of the Cholesky factor, gives w = kRᵀ, σ² = k** - w·w, in which nothing cancels, and
    v = wR: two products with triangular matrices, at hardly more cost. Without ζ_LOO w alone is enough, at half of it.
    """

    hyper: Hyper
    """Hyper-parameters of the D outputs."""
    inputs: Tensor
    """Normalised inputs [n, ni]."""
    targets: Tensor
    """Normalised targets [n, D]."""
    z: Tensor
    """Inputs divided by the length scales [D, n, ni]."""
    root: Tensor
    """R [D, n, n], lower triangular, with RᵀR = A."""
    alpha: Tensor
    """α = Ay [D, n]."""
    white: Tensor
    """Ry [D, n]; the mean is also w·(Ry)."""
    inverse_diagonal: Tensor
    """1 / aᵢᵢ [D, n]: the predictive variance of point i, with noise, given the others."""
    inverse: Tensor | None
    """A [D, n, n]; None where it is not precise enough to predict with."""
    jitter: float
    """Jitter added to the diagonal, relative to the signal."""
    surplus: Tensor | None = None
    """Number of points over those that are not there to fill up the shapes []; None: there are no others."""

    @staticmethod
    def condition(inputs: Tensor, targets: Tensor, hyper: Hyper) -> ExactPosterior:
        """Condition on inputs [n, ni] and targets [n, D]."""
        hyper = hyper.to(inputs)
        z = scaled(inputs, hyper.lengthscales)
        # With thousands of points each matrix takes hundreds of megabytes. On a CPU the outputs are factorised one
        # after the other, so that only one temporary matrix of each kind exists beside the results.
        together = inputs.device.type != "cpu"
        for jitter in JITTERS:
            factors = _factors(z, hyper, jitter, direct=_direct(hyper, len(inputs)), together=together)
            if factors is not None:
                return _assemble(hyper, inputs, targets, z, *factors, jitter)
        raise no_factor(len(inputs))

    def __len__(self) -> int:
        return len(self.inputs)

    @cached_property
    def offsets(self) -> Tensor:
        """Return what the points alone add to the exponents of the kernel [D, n]."""
        return offsets(self.z, self.hyper.signal)

    def extend(self, inputs: Tensor, targets: Tensor) -> ExactPosterior:
        """Return the posterior with m more points [m, ni] and [m, D], by a block update of the factor in O(n²m)."""
        new = scaled(inputs, self.hyper.lengthscales)
        cross = kernel(self.z, new, self.hyper.signal)
        half = self.root @ cross
        noise = self.hyper.noise + self.jitter * self.hyper.signal
        corner, extra = factorise(kernel(new, new, self.hyper.signal) - half.mT @ half, noise, self.hyper.signal)
        side = torch.linalg.solve_triangular(corner, half.mT @ self.root, upper=False)
        identity = torch.eye(len(inputs), dtype=inputs.dtype, device=inputs.device).expand_as(corner)
        tip = torch.linalg.solve_triangular(corner, identity, upper=False)
        root = torch.cat([torch.cat([self.root, torch.zeros_like(half)], dim=2), torch.cat([-side, tip], dim=2)], dim=1)
        inverse = None
        if self.inverse is not None and _direct(self.hyper, len(self) + len(inputs)):
            top = torch.cat([torch.baddbmm(self.inverse, side.mT, side), -side.mT @ tip], dim=2)
            inverse = torch.cat([top, torch.cat([-tip.mT @ side, tip.mT @ tip], dim=2)], dim=1)
        all_inputs, all_targets = torch.cat([self.inputs, inputs]), torch.cat([self.targets, targets])
        z = torch.cat([self.z, new], dim=1)
        return _assemble(self.hyper, all_inputs, all_targets, z, root, inverse, max(self.jitter, extra))

    def cast(self, dtype: torch.dtype) -> ExactPosterior:
        """Return the posterior in another precision, for rollouts; fitting stays in float64."""
        if self.inputs.dtype == dtype:
            return self
        return replace(in_dtype(replace(self, inverse=None), dtype), hyper=in_dtype(self.hyper, dtype))

    def solve(self, rows: Tensor) -> Tensor:
        """Multiply rows [D, m, n] by A, which is symmetric: [D, m, n]."""
        return triangular_product(triangular_product(rows, self.root, transpose=True), self.root)

    def loo_scores(self) -> Tensor:
        """Return the leave-one-out z-score of each target, in predictive standard deviations [n, D]."""
        return (self.alpha * self.inverse_diagonal.sqrt()).T

    def loo_errors(self) -> Tensor:
        """Return by how much each target misses its leave-one-out prediction [n, D]."""
        return (self.alpha * self.inverse_diagonal).T

    def block_scores(self, blocks: Sequence[slice]) -> Tensor:
        """Return the z-scores [m, D] of the targets in blocks of rows, each block left out as a whole."""
        scores = []
        for rows in blocks:
            # R is lower triangular, so the rows of R above the block are zero in its columns.
            half = self.root[:, rows.start :, rows]
            covariance = torch.linalg.inv_ex(half.mT @ half).inverse
            residual = (covariance @ self.alpha[:, rows, None])[..., 0]
            scores.append(residual / covariance.diagonal(dim1=1, dim2=2).sqrt())
        return torch.cat(scores, dim=1).T

    def condition_number(self) -> float:
        """Return the largest condition number of the outputs' covariance matrices K + noise I, in the 1-norm."""
        return max(self._output(i)._condition_number() for i in range(len(self.alpha)))

    def _condition_number(self) -> float:
        gram = kernel(self.z, self.z, self.hyper.signal)
        gram.diagonal(dim1=-2, dim2=-1).add_((self.hyper.noise + self.jitter * self.hyper.signal)[:, None])
        inverse = self.root.mT @ self.root if self.inverse is None else self.inverse
        return float((gram.abs_().sum(-1).amax(-1) * inverse.abs().sum(-1).amax(-1)).max())

    def predict(self, queries: Tensor, *, loo: bool = False, blur: float = 0.0) -> Marginals:
        """Return the mean and variance, and with `loo` also ζ_LOO, at queries [B, ni], with bounded memory."""
        if queries.device.type == "cpu" and len(self.alpha) > 1:
            # One output after the other: the same memory holds larger matrices, whose products are faster.
            each = [self._output(i).predict(queries, loo=loo, blur=blur) for i in range(len(self.alpha))]
            means, variances, zetas = zip(*each, strict=True)
            return Marginals(torch.cat(means, dim=1), torch.cat(variances, dim=1), sum(zetas) if loo else None)
        rows = chunk_rows(self.alpha.numel(), queries, LEAST_ROWS)
        return in_chunks(partial(self._predict, loo=loo, blur=blur), queries, rows)

    def covariance(self, queries: Tensor) -> Tensor:
        """Return the covariances [D, B, T, T] of the function among the steps of trajectories [B, T, ni]."""
        z = scaled(queries.flatten(0, 1), self.hyper.lengthscales)
        w = triangular_product(kernel(z, self.z, self.hyper.signal), self.root, transpose=True)
        return remaining_covariance(z, w, self.hyper.signal, len(queries))

    def _output(self, index: int) -> ExactPosterior:
        """Return the posterior of one output; its tensors are views."""
        at = slice(index, index + 1)
        parts = {name: value[at] for name, value in vars(self).items() if name in _BY_OUTPUT and value is not None}
        hyper = Hyper(self.hyper.lengthscales[at], self.hyper.signal[at], self.hyper.noise[at])
        return replace(self, hyper=hyper, targets=self.targets[:, at], **parts)

    def _predict(self, queries: Tensor, *, loo: bool, blur: float) -> Marginals:
        fused, z = kernels("samba_rl.models.fused", queries.device), scaled(queries, self.hyper.lengthscales)
        signal, direct = self.hyper.signal, loo and self.inverse is not None
        k = kernel_with(self.offsets, z, self.z) if fused is None else fused.kernel(z, self.z, signal)
        if direct:
            assert self.inverse is not None
            w, weight, v = k, self.alpha, k @ self.inverse
        else:
            w, weight = triangular_product(k, self.root, transpose=True), self.white
            v = triangular_product(w, self.root) if loo else w
        zeta: Tensor | None = None
        if fused is not None:
            noise = observed(torch.zeros_like(signal)[:, None], self.hyper.noise, blur)[:, 0]
            left_out = (v, self.inverse_diagonal, self.alpha, noise) if loo else None
            mean, variance, divergence = fused.sums(w, v if direct else w, weight, signal, left_out)
            zeta = divergence.mul_(0.5 / len(self)).sum(0).clamp_(min=0) if loo else None
        else:
            mean = (w @ weight[..., None])[..., 0]
            variance = remaining_variance(signal, (k.mul_(v) if direct else w.square()).sum(-1))
            if loo:
                zeta = exact_loo(v, observed(variance, self.hyper.noise, blur), self.alpha, self.inverse_diagonal)
        if zeta is not None and self.surplus is not None:
            zeta = zeta * self.surplus
        return Marginals(mean.T, variance.T, zeta)


def _factors(
    z: Tensor, hyper: Hyper, jitter: float, *, direct: bool, together: bool
) -> tuple[Tensor, Tensor | None] | None:
    """Return R [D, n, n] and, with `direct`, A [D, n, n] for this jitter; None if it is too small."""
    outputs, points, _ = z.shape
    root = z.new_empty(outputs, points, points)
    inverse = torch.empty_like(root) if direct else None
    identity = torch.eye(points, dtype=z.dtype, device=z.device)
    for at in [slice(0, outputs)] if together else [slice(i, i + 1) for i in range(outputs)]:
        gram = kernel(z[at], z[at], hyper.signal[at])
        factor = factor_with(jitter, gram, hyper.noise[at], hyper.signal[at])
        if factor is None:
            return None
        root[at] = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
        if inverse is not None:
            inverse[at] = torch.cholesky_inverse(factor)
    return root, inverse


def _assemble(
    hyper: Hyper, inputs: Tensor, targets: Tensor, z: Tensor, root: Tensor, inverse: Tensor | None, jitter: float
) -> ExactPosterior:
    """Make the posterior, deriving from R everything that it determines."""
    white = root @ targets.T[..., None]
    alpha = (root.mT @ white)[..., 0]
    squares = torch.stack([each.square().sum(0) for each in root])
    return ExactPosterior(hyper, inputs, targets, z, root, alpha, white[..., 0], 1 / squares, inverse, jitter)


def _direct(hyper: Hyper, n: int) -> bool:
    """Return whether v·k is accurate to a thousandth of the noise: its rounding error is about ε n s⁴ / noise."""
    error = torch.finfo(hyper.noise.dtype).eps * n * hyper.signal.square() / hyper.noise
    return bool((error <= 1e-3 * hyper.noise).all())
