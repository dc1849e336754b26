"""The exact GP posterior of D independent outputs, with everything a rollout asks of it in one matrix product.

With A = (K + σ²I)⁻¹, α = Ay, k the covariances of a query with the data and v = kA:

    mean      μ  = k·α
    variance  σ² = k** - v·k
    leaving point i out:   μ⁽ⁱ⁾ - μ = -vᵢ αᵢ / aᵢᵢ    and    σ⁽ⁱ⁾² - σ² = vᵢ² / aᵢᵢ
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from samba_rl.models.likelihood import JITTERS, Hyper, factor_with, factorise, kernel, no_factor, scaled
from samba_rl.models.marginals import Marginals, chunk_rows, in_chunks, remaining_variance

LEAST_ROWS = 128
"""Queries in a chunk at least: with fewer, products would wait for the memory that holds the inverse."""


@final
@dataclass(frozen=True)
class ExactPosterior:
    """D exact GPs with a zero mean on n normalised points.

    v = kA takes one matrix product, but loses digits in proportion to the signal over the noise. Where those are
    missed, R = L⁻¹, the inverse of the Cholesky factor, gives w = kRᵀ, σ² = k** - w·w, in which nothing cancels, and
    v = wR: two products with triangular matrices, so hardly more work.
    """

    hyper: Hyper
    inputs: Tensor
    """[n, ni]"""
    targets: Tensor
    """[n, D]"""
    z: Tensor
    """Inputs in length scales [D, n, ni]."""
    root: Tensor
    """R [D, n, n], lower triangular, with RᵀR = A."""
    alpha: Tensor
    """[D, n]"""
    white: Tensor
    """Ry, so that the mean is also w·(Ry) [D, n]."""
    inverse_diagonal: Tensor
    """1 / aᵢᵢ: the predictive variance of point i given the others, with noise [D, n]."""
    inverse: Tensor | None
    """A [D, n, n], where it is precise enough to predict with."""
    jitter: float
    """What had to be added to the diagonal, relative to the signal."""

    @staticmethod
    def condition(inputs: Tensor, targets: Tensor, hyper: Hyper) -> ExactPosterior:
        """The posterior given inputs [n, ni] and targets [n, D]."""
        hyper = hyper.to(inputs)
        z = scaled(inputs, hyper.lengthscales)
        # One output after the other where memory is scarce: with thousands of points each matrix takes hundreds of
        # megabytes, and beside the results there is one of each kind then, not one for each output.
        together = inputs.device.type != "cpu"
        for jitter in JITTERS:
            factors = _factors(z, hyper, jitter, _direct(hyper, len(inputs)), together)
            if factors is not None:
                return _assemble(hyper, inputs, targets, z, *factors, jitter)
        raise no_factor(len(inputs))

    def __len__(self) -> int:
        return len(self.inputs)

    def extend(self, inputs: Tensor, targets: Tensor) -> ExactPosterior:
        """The posterior with m more points [m, ni] and [m, D], by a block update of the factor in O(n²m)."""
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
        """The same in another precision, for rollouts; fitting stays in float64."""
        if self.inputs.dtype == dtype:
            return self
        return ExactPosterior(
            hyper=self.hyper.to(self.inputs.new_empty(0, dtype=dtype)),
            inputs=self.inputs.to(dtype),
            targets=self.targets.to(dtype),
            z=self.z.to(dtype),
            root=self.root.to(dtype),
            alpha=self.alpha.to(dtype),
            white=self.white.to(dtype),
            inverse_diagonal=self.inverse_diagonal.to(dtype),
            inverse=None,
            jitter=self.jitter,
        )

    def solve(self, values: Tensor) -> Tensor:
        """A times values [D, n, m]: [D, n, m]."""
        return self.root.mT @ (self.root @ values)

    def loo_scores(self) -> Tensor:
        """How far each target [n, D] lies from what the others predict of it, in predictive standard deviations."""
        return (self.alpha * self.inverse_diagonal.sqrt()).T

    def condition_number(self) -> float:
        """The largest of the outputs' condition numbers of K + σ²I, in the 1-norm."""
        return max(self._output(i)._condition_number() for i in range(len(self.alpha)))

    def _condition_number(self) -> float:
        gram = kernel(self.z, self.z, self.hyper.signal)
        gram.diagonal(dim1=-2, dim2=-1).add_((self.hyper.noise + self.jitter * self.hyper.signal)[:, None])
        inverse = self.root.mT @ self.root if self.inverse is None else self.inverse
        return float((gram.abs_().sum(-1).amax(-1) * inverse.abs().sum(-1).amax(-1)).max())

    def predict(self, queries: Tensor, loo: bool = False) -> Marginals:
        """Mean, variance and, if asked for, ζ_LOO at queries [B, ni], with bounded memory."""
        if queries.device.type == "cpu" and len(self.alpha) > 1:
            # One output after the other: for the same memory the matrices are larger, and products of those are faster.
            each = [self._output(i).predict(queries, loo) for i in range(len(self.alpha))]
            means, variances, zetas = zip(*each, strict=True)
            return Marginals(torch.cat(means, dim=1), torch.cat(variances, dim=1), sum(zetas) if loo else None)
        rows = chunk_rows(self.alpha.numel(), queries, LEAST_ROWS)
        return in_chunks(self._predict, queries, loo, rows)

    def _output(self, index: int) -> ExactPosterior:
        """One of the outputs alone; its tensors are views."""
        at = slice(index, index + 1)
        return ExactPosterior(
            hyper=Hyper(self.hyper.lengthscales[at], self.hyper.signal[at], self.hyper.noise[at]),
            inputs=self.inputs,
            targets=self.targets[:, at],
            z=self.z[at],
            root=self.root[at],
            alpha=self.alpha[at],
            white=self.white[at],
            inverse_diagonal=self.inverse_diagonal[at],
            inverse=None if self.inverse is None else self.inverse[at],
            jitter=self.jitter,
        )

    def _predict(self, queries: Tensor, loo: bool) -> Marginals:
        k = kernel(scaled(queries, self.hyper.lengthscales), self.z, self.hyper.signal)
        if self.inverse is not None:
            mean = (k @ self.alpha[..., None])[..., 0]
            v = k @ self.inverse
            explained = k.mul_(v).sum(-1)
        else:
            w = triangular_product(k, self.root, transpose=True)
            mean = (w @ self.white[..., None])[..., 0]
            explained = w.square().sum(-1)
            v = triangular_product(w, self.root) if loo else w
        variance = remaining_variance(self.hyper.signal, explained)
        zeta = self._loo(v, variance) if loo else None
        return Marginals(mean.T, variance.T, zeta)

    def _loo(self, v: Tensor, variance: Tensor) -> Tensor:
        """ζ_LOO [B] = Σ over outputs of the mean over i of KL(without i ‖ with all), from v [D, B, n] (overwritten)."""
        residual = self.alpha * self.inverse_diagonal
        squares = v.mul_(v)
        # One product sums both over i: the changes of variance and the squared shifts of the mean.
        weights = self.inverse_diagonal + residual.square()
        quadratic = (squares @ weights[..., None])[..., 0] / variance
        growth = squares.mul_(self.inverse_diagonal[:, None]).div_(variance[..., None]).log1p_().sum(-1)
        return (quadratic - growth).mul_(0.5 / len(self)).sum(0).clamp_(min=0)


def _factors(
    z: Tensor, hyper: Hyper, jitter: float, direct: bool, together: bool
) -> tuple[Tensor, Tensor | None] | None:
    """R [D, n, n] and, if asked for, A [D, n, n], with this jitter; None if it takes more."""
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
    """The posterior with what follows from R."""
    white = root @ targets.T[..., None]
    alpha = (root.mT @ white)[..., 0]
    squares = torch.stack([each.square().sum(0) for each in root])
    return ExactPosterior(hyper, inputs, targets, z, root, alpha, white[..., 0], 1 / squares, inverse, jitter)


def _direct(hyper: Hyper, n: int) -> bool:
    """Whether v·k in this precision is good to a thousandth of the noise: its rounding error is about ε n s⁴ / σ²."""
    error = torch.finfo(hyper.noise.dtype).eps * n * hyper.signal.square() / hyper.noise
    return bool((error <= 1e-3 * hyper.noise).all())


def triangular_product(rows: Tensor, lower: Tensor, transpose: bool = False) -> Tensor:
    """rows [D, B, n] times a lower triangular matrix [D, n, n] or its transpose, without most of the zeros."""
    n = lower.shape[-1]
    # An accelerator would rather multiply by zeros than start eight products.
    blocks = min(8, max(1, n // 128)) if rows.device.type == "cpu" else 2
    edges = [round(n * i / blocks) for i in range(blocks + 1)]
    parts = []
    for start, end in itertools.pairwise(edges):
        if transpose:
            parts.append(rows[..., :end] @ lower[:, start:end, :end].mT)
        else:
            parts.append(rows[..., start:] @ lower[:, start:, start:end])
    return torch.cat(parts, dim=-1)
