"""Networks of two hidden layers in one GPU kernel each way, written in Triton: their layers are too small for one each.

A program takes some of the steps through one network; what they contribute to the gradient is summed up afterwards, in
an order that is always the same.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-def"
import itertools

import torch
import triton
import triton.language as tl
from torch import Tensor

STEPS = 128
"""Number of steps that one program takes through a network."""
WIDEST = 64
"""Largest number of inputs, of units in a layer, or of outputs."""


@triton.jit
def _at(rows, columns, by_row, by_column):
    return rows[:, None] * by_row + columns[None, :] * by_column


@triton.jit
def _layer(h, w, b, which, ni, no, si, so, NI: tl.constexpr, NO: tl.constexpr):
    i, o = tl.arange(0, NI), tl.arange(0, NO)
    weight = tl.load(w + which * ni * no + _at(i, o, si, so), mask=(i[:, None] < ni) & (o[None, :] < no), other=0.0)
    bias = tl.load(b + which * no + o, mask=o < no, other=0.0)
    return tl.dot(h, weight, input_precision="tf32x3") + bias[None, :], weight


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _gradient(to, h, slope, w, b, which, ni, no, si, so, NI: tl.constexpr, NO: tl.constexpr):
    i, o = tl.arange(0, NI), tl.arange(0, NO)
    weight = tl.dot(tl.trans(h), slope, input_precision="tf32x3")
    tl.store(to + w + which * ni * no + _at(i, o, si, so), weight, mask=(i[:, None] < ni) & (o[None, :] < no))
    tl.store(to + b + which * no + o, tl.sum(slope, 0), mask=o < no)


@triton.jit(do_not_specialize=["i1", "o1", "i2", "o2", "i3", "o3", "g1", "c1", "g2", "c2", "g3", "c3", "n", "size"])
def _through(
    x, only, w1, b1, w2, b2, w3, b3, i1, o1, i2, o2, i3, o3, outputs, slopes, partial, g1, c1, g2, c2, g3, c3,
    n, ni, h1, h2, no, size, BACK: tl.constexpr, NI: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr,
    NO: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1)
    which = tl.load(only + k)
    rows = tl.program_id(0) * N + tl.arange(0, N)
    i, o = tl.arange(0, NI), tl.arange(0, NO)
    real = (rows[:, None] < n) & (i[None, :] < ni)
    h0 = tl.load(x + k * n * ni + _at(rows, i, ni, 1), mask=real, other=0.0)
    z1, _ = _layer(h0, w1, b1, which, ni, h1, i1, o1, NI, H1)
    a1 = _tanh(z1)
    z2, weight2 = _layer(a1, w2, b2, which, h1, h2, i2, o2, H1, H2)
    a2 = _tanh(z2)
    z3, weight3 = _layer(a2, w3, b3, which, h2, no, i3, o3, H2, NO)
    real = (rows[:, None] < n) & (o[None, :] < no)
    at = k * n * no + _at(rows, o, no, 1)
    if BACK:
        to = partial + tl.program_id(0) * size
        slope = tl.load(slopes + at, mask=real, other=0.0)
        _gradient(to, a2, slope, g3, c3, which, h2, no, i3, o3, H2, NO)
        slope = tl.dot(slope, tl.trans(weight3), input_precision="tf32x3") * (1 - a2 * a2)
        _gradient(to, a1, slope, g2, c2, which, h1, h2, i2, o2, H1, H2)
        slope = tl.dot(slope, tl.trans(weight2), input_precision="tf32x3") * (1 - a1 * a1)
        _gradient(to, h0, slope, g1, c1, which, ni, h1, i1, o1, NI, H1)
    else:
        tl.store(outputs + at, z3, mask=real)


def check(device: torch.device, *widths: int) -> None:
    """Raise an error if networks of these widths cannot be run."""
    if len(widths) != 4 or max(widths) > WIDEST:
        raise ValueError(f"not of two hidden layers, or more than {WIDEST} wide")
    only, inputs = torch.zeros(1, dtype=torch.long, device=device), torch.ones(1, 2 * STEPS, widths[0], device=device)
    weights = [torch.ones(1, a, b, device=device) for a, b in itertools.pairwise(widths)]
    biases = [torch.ones(1, 1, b, device=device) for b in widths[1:]]
    outputs = forward(inputs, only, weights, biases)
    gradient = torch.zeros(sum(each.numel() for each in (*weights, *biases)), device=device)
    backward(outputs, inputs, only, weights, biases, gradient, [0] * 6)
    if not bool(gradient.isfinite().all()):
        raise ValueError("the result is not finite")


def forward(inputs: Tensor, only: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """Return the outputs [k, N, no] of the networks `only` [k] at inputs [k, N, ni]."""
    outputs = inputs.new_empty(*inputs.shape[:2], weights[2].shape[2])
    _run(inputs, only, weights, biases, outputs, outputs, outputs, [0] * 6, 0)
    return outputs


def backward(
    slope: Tensor, inputs: Tensor, only: Tensor, weights: list[Tensor], biases: list[Tensor], gradient: Tensor,
    places: list[int],
) -> None:  # fmt: skip
    """Set the gradient [P] from the slopes of the outputs [k, N, no]; `places` are those of weights and biases in it.

    All else in it is set to zero.
    """
    partial = gradient.new_zeros(triton.cdiv(inputs.shape[1], STEPS), len(gradient))
    _run(inputs, only, weights, biases, inputs, slope.contiguous(), partial, places, len(gradient))
    torch.sum(partial, 0, out=gradient)


def _run(
    inputs: Tensor, only: Tensor, weights: list[Tensor], biases: list[Tensor], outputs: Tensor, slopes: Tensor,
    partial: Tensor, places: list[int], size: int,
) -> None:  # fmt: skip
    inputs = inputs.contiguous()
    count, n, ni = inputs.shape
    sizes = [ni, *(weight.shape[2] for weight in weights)]
    each = [tensor for pair in zip(weights, biases, strict=True) for tensor in pair]
    strides = [stride for weight in weights for stride in weight.stride()[1:]]
    filled = [max(16, triton.next_power_of_2(one)) for one in sizes]
    _through[triton.cdiv(n, STEPS), count](
        inputs, only, *each, *strides, outputs, slopes, partial, *places, n, *sizes, size, size > 0, *filled, STEPS,
        num_warps=4,
    )  # fmt: skip
