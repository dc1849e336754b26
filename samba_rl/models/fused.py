"""Predictions of exact posteriors on a GPU in two kernels around the matrix product, written in Triton."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-def"
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

ROWS, COLUMNS = 16, 128
"""Queries and points whose covariances one program computes."""
CHUNK = 512
"""Points that a program sums over at a time."""


@triton.jit(do_not_specialize=["queries", "points", "inputs"])
def _covariances(a, b, signal, k, queries, points, inputs, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    output = tl.program_id(2)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    a += output * queries * inputs
    b += output * points * inputs
    distance = tl.zeros((ROWS, COLUMNS), dtype=k.dtype.element_ty)
    for i in range(inputs):
        ours = tl.load(a + rows * inputs + i, mask=rows < queries, other=0.0)
        theirs = tl.load(b + columns * inputs + i, mask=columns < points, other=0.0)
        difference = ours[:, None] - theirs[None, :]
        distance += difference * difference
    value = tl.load(signal + output) * tl.exp(-0.5 * distance)
    place = k + output.to(tl.int64) * queries * points + rows[:, None] * points + columns[None, :]
    tl.store(place, value, mask=(rows[:, None] < queries) & (columns[None, :] < points))


@triton.jit(do_not_specialize=["queries", "points"])
def _sums(
    p, q, weight, v, diagonal, alpha, prior, noise, means, variances, divergences, least, queries, points,
    ZETA: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    output = tl.program_id(1)
    row = tl.program_id(0)
    at = (output * queries + row).to(tl.int64) * points
    mean = tl.zeros((CHUNK,), dtype=p.dtype.element_ty)
    explained = tl.zeros((CHUNK,), dtype=p.dtype.element_ty)
    for start in range(0, points, CHUNK):
        columns = start + tl.arange(0, CHUNK)
        real = columns < points
        one = tl.load(p + at + columns, mask=real, other=0.0)
        mean += one * tl.load(weight + output * points + columns, mask=real, other=0.0)
        explained += one * tl.load(q + at + columns, mask=real, other=0.0)
    variance = tl.load(prior + output) - tl.sum(explained, 0)
    variance = tl.maximum(variance, tl.load(least))
    place = output * queries + row
    tl.store(means + place, tl.sum(mean, 0))
    tl.store(variances + place, variance)
    if ZETA:
        variance += tl.load(noise + output)
        total = tl.zeros((CHUNK,), dtype=p.dtype.element_ty)
        for start in range(0, points, CHUNK):
            columns = start + tl.arange(0, CHUNK)
            real = columns < points
            value = tl.load(v + at + columns, mask=real, other=0.0)
            own = tl.load(diagonal + output * points + columns, mask=real, other=0.0)
            miss = tl.load(alpha + output * points + columns, mask=real, other=0.0) * own
            square = value * value / variance
            total += square * (own + miss * miss) - libdevice.log1p(square * own)
        tl.store(divergences + place, tl.sum(total, 0))


def kernel(a: Tensor, b: Tensor, signal: Tensor) -> Tensor:
    """Compute the RBF kernel between scaled inputs [D, N, ni] and [D, M, ni]: [D, N, M]."""
    a, b = a.contiguous(), b.contiguous()
    (outputs, queries, inputs), points = a.shape, b.shape[1]
    k = a.new_empty(outputs, queries, points)
    grid = triton.cdiv(queries, ROWS), triton.cdiv(points, COLUMNS), outputs
    _covariances[grid](a, b, signal, k, queries, points, inputs, ROWS, COLUMNS, num_warps=4)
    return k


def sums(
    p: Tensor, q: Tensor, weight: Tensor, prior: Tensor, loo: tuple[Tensor, Tensor, Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return means p·weight, variances prior - p·q and twice the sum of divergences, each [D, B], of p and q [D, B, n].

    `loo` has v = kA [D, B, n], 1 / aᵢᵢ [D, n], α [D, n] and the noise in the observations [D]; None: no divergences.
    """
    outputs, queries, points = p.shape
    mean, variance, divergence = p.new_empty(3, outputs, queries)
    v, diagonal, alpha, noise = loo or (p, p, p, p)
    least = p.new_full((), 16 * torch.finfo(p.dtype).eps)
    _sums[queries, outputs](
        p, q, weight, v, diagonal, alpha, prior, noise, mean, variance, divergence, least, queries, points,
        loo is not None, CHUNK, num_warps=4,
    )  # fmt: skip
    return mean, variance, divergence


def check(device: torch.device) -> None:
    """Raise an error if the kernels do not run, or give other results than they should."""
    z = torch.linspace(-1, 1, 24, device=device, dtype=torch.float64).view(1, 8, 3)
    k = kernel(z, z, torch.full((1,), 2.0, device=device, dtype=torch.float64))
    expected = 2 * (-0.5 * torch.cdist(z, z).square()).exp()
    mean, _, _ = sums(k, k, k[:, 0], k[:, 0, 0], (k, k[:, 0], k[:, 0], k[:, 0, 0]))
    if not (torch.allclose(k, expected) and torch.allclose(mean, k @ k[0, 0])):
        raise ValueError("the kernels are wrong")
