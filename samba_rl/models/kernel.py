"""The RBF kernel, Cholesky factors of its covariance matrices, and products with them."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from samba_rl.errors import UserError

FAR = 1e3
"""Scaled inputs are clamped to ± this value: there the kernel is exactly zero, and nothing overflows."""
JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
"""Jitters, relative to the signal variance, that are tried in turn until the Cholesky factorisation succeeds."""


def scaled(inputs: Tensor, lengthscales: Tensor) -> Tensor:
    """Divide inputs [N, ni] by the length scales [D, ni] of each output: [D, N, ni]."""
    return (inputs / lengthscales[:, None]).clamp(-FAR, FAR)


def kernel(a: Tensor, b: Tensor, signal: Tensor) -> Tensor:
    """Compute the RBF kernel between scaled inputs [D, N, ni] and [D, M, ni]: [D, N, M]."""
    return kernel_with(offsets(b, signal), a, b)


def offsets(b: Tensor, signal: Tensor) -> Tensor:
    """Return what scaled inputs b [D, M, ni] alone add to the kernel's exponents: -|b|²/2 + log s² [D, M]."""
    return b.square().sum(-1).mul_(-0.5).add_(signal.log()[:, None])


def kernel_with(half_b: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Compute the RBF kernel [D, N, M] with the `offsets` of b [D, M]."""
    # The exponent -|a - b|²/2 + log s² as one product and one sum, then the exponential in place.
    half_a = a.square().sum(-1, keepdim=True).mul_(-0.5)
    return torch.baddbmm(half_b[:, None], a, b.mT).add_(half_a).exp_()


def remaining_covariance(z: Tensor, features: Tensor, signal: Tensor, count: int) -> Tensor:
    """Compute the covariances [D, B, T, T] that data leave among the T steps of each of B = `count` trajectories.

    The steps have scaled inputs z [D, B·T, ni]; the inner products of their features [D, B·T, M] are the covariances
    that the data explain.
    """
    outputs, rows, _ = z.shape
    each, explained = (flat.reshape(outputs * count, rows // count, -1) for flat in (z, features))
    prior = kernel(each, each, signal.repeat_interleave(count))
    return torch.baddbmm(prior, explained, explained.mT, alpha=-1).view(outputs, count, rows // count, -1)


def triangular_product(rows: Tensor, lower: Tensor, *, transpose: bool = False) -> Tensor:
    """Multiply rows [D, B, n] by a lower triangular matrix [D, n, n] or its transpose, skipping most of the zeros."""
    n = lower.shape[-1]
    if rows.device.type != "cpu":
        return _in_place(rows, lower, transpose=transpose, blocks=min(4, max(1, n // 256)))
    blocks = min(8, max(1, n // 128))
    edges = [round(n * i / blocks) for i in range(blocks + 1)]
    parts = []
    for start, end in itertools.pairwise(edges):
        if transpose:
            parts.append(rows[..., :end] @ lower[:, start:end, :end].mT)
        else:
            parts.append(rows[..., start:] @ lower[:, start:, start:end])
    return torch.cat(parts, dim=-1)


def _in_place(rows: Tensor, lower: Tensor, *, transpose: bool, blocks: int) -> Tensor:
    """Compute the product in a few large blocks, since an accelerator multiplies small ones no faster."""
    n = lower.shape[-1]
    product = torch.empty_like(rows)
    edges = [round(n * i / blocks) for i in range(blocks + 1)]
    for start, end in itertools.pairwise(edges):
        if transpose:
            torch.bmm(rows[..., :end], lower[:, start:end, :end].mT, out=product[..., start:end])
        else:
            torch.bmm(rows[..., start:], lower[:, start:, start:end], out=product[..., start:end])
    return product


def factorise(gram: Tensor, noise: Tensor, signal: Tensor) -> tuple[Tensor, float]:
    """Return the Cholesky factors of gram + noise I [D, n, n] and the relative jitter they needed."""
    for jitter in JITTERS:
        factor = factor_with(jitter, gram, noise, signal)
        if factor is not None:
            return factor, jitter
    raise no_factor(gram.shape[-1])


def factor_with(jitter: float, gram: Tensor, noise: Tensor, signal: Tensor) -> Tensor | None:
    """Return the Cholesky factors of gram + noise I [D, n, n] with this relative jitter, or None if one fails."""
    matrix = gram.clone()
    matrix.diagonal(dim1=-2, dim2=-1).add_((noise + jitter * signal)[:, None])
    factor, info = torch.linalg.cholesky_ex(matrix)
    return factor if not bool(info.any()) and bool(torch.isfinite(factor).all()) else None


def no_factor(points: int) -> UserError:
    """Return the error for a covariance matrix that has no Cholesky factor with any jitter."""
    return UserError(
        f"the covariance of {points} points has no Cholesky factor even with jitter {JITTERS[-1]}; "
        "the data or the hyper-parameters contain values that are not finite"
    )
