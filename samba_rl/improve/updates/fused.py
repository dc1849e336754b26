"""Networks of two hidden layers, with their losses, in one GPU kernel, written in Triton: they are too small for more.

A program takes some of the steps through one network, forth and back; what the programs contribute to the gradient is
summed up afterwards, in an order that is always the same. The losses are those of `proximal` and `regression`.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-def"
import itertools

import torch
import triton
import triton.language as tl
from torch import Tensor

STEPS = 64
"""Number of steps that a program takes through a network at a time."""
WARPS = 4
"""Groups of 32 threads in a program."""
WIDEST = 64
"""Largest number of inputs, of units in a layer, or of outputs."""
OUTPUTS, REGRESSION, CLIPPED, SURROGATE = range(4)


@triton.jit
def _layer(h, w, b, which, ni, no, si, so, NI: tl.constexpr, NO: tl.constexpr):
    i = tl.arange(0, NI)[:, None]
    o = tl.arange(0, NO)[None, :]
    weight = tl.load(w + which * ni * no + i * si + o * so, mask=(i < ni) & (o < no), other=0.0)
    bias = tl.load(b + which * no + o, mask=o < no, other=0.0)
    if NO == 1:
        return tl.sum(h * tl.trans(weight), 1)[:, None] + bias, weight
    else:
        return tl.dot(h, weight, input_precision="tf32x3") + bias, weight


@triton.jit
def _product(h, slope, NO: tl.constexpr):
    if NO == 1:
        return tl.sum(h * slope, 0)[:, None]
    else:
        return tl.dot(tl.trans(h), slope, input_precision="tf32x3")


@triton.jit
def _back(slope, weight, NO: tl.constexpr):
    if NO == 1:
        return slope * tl.trans(weight)
    else:
        return tl.dot(slope, tl.trans(weight), input_precision="tf32x3")


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _store(to, weight, bias, w, b, which, ni, no, si, so, NI: tl.constexpr, NO: tl.constexpr):
    i = tl.arange(0, NI)[:, None]
    o = tl.arange(0, NO)[None, :]
    tl.store(to + w + which * ni * no + i * si + o * so, weight, mask=(i < ni) & (o < no))
    tl.store(to + b + which * no + tl.arange(0, NO), bias, mask=tl.arange(0, NO) < no)


@triton.jit(
    do_not_specialize=["i1", "o1", "i2", "o2", "i3", "o3", "g1", "c1", "g2", "c2", "g3", "c3", "g0", "n", "size"]
)
def _through(
    x, only, w1, b1, w2, b2, w3, b3, i1, o1, i2, o2, i3, o3, g1, c1, g2, c2, g3, c3, g0,
    a, b, c, share, log_std, result, n, ni, h1, h2, no, size, clip, bound,
    KIND: tl.constexpr, BOUNDED: tl.constexpr,
    NI: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr, NO: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1)
    which = tl.load(only + k)
    i = tl.arange(0, NI)
    o = tl.arange(0, NO)
    rows = tl.program_id(0) * N + tl.arange(0, N)
    there = rows < n
    h0 = tl.load(x + (k * n + rows[:, None]) * ni + i[None, :], mask=there[:, None] & (i[None, :] < ni), other=0.0)
    z1, _ = _layer(h0, w1, b1, which, ni, h1, i1, o1, NI, H1)
    a1 = _tanh(z1)
    z2, weight2 = _layer(a1, w2, b2, which, h1, h2, i2, o2, H1, H2)
    a2 = _tanh(z2)
    z3, weight3 = _layer(a2, w3, b3, which, h2, no, i3, o3, H2, NO)
    at = (k * n + rows[:, None]) * no + o[None, :]
    real = there[:, None] & (o[None, :] < no)
    if KIND == 0:
        tl.store(result + at, z3, mask=real)
    else:
        part = tl.load(share + rows, mask=there, other=0.0)
        if KIND == 3:
            spread = tl.load(log_std + o, mask=o < no, other=0.0)
            precision = tl.exp(-spread)[None, :]
            mean = z3
            steep = 1.0
            if BOUNDED:
                mean = bound * _tanh(z3 / bound)
                steep = 1 - (mean / bound) * (mean / bound)
            z = (tl.load(a + at, mask=real, other=0.0) - mean) * precision
            log = -0.5 * tl.sum(z * z, 1) - tl.sum(spread, 0) - tl.load(c + rows, mask=there, other=0.0)
            ratio = tl.exp(log)
            advantage = tl.load(b + rows, mask=there, other=0.0)
            free = ratio * advantage
            held = tl.minimum(tl.maximum(ratio, 1 - clip), 1 + clip) * advantage
            pull = tl.where(free < held, 0.0, free) * part
            slope = pull[:, None] * (z * precision * steep)
            stds = tl.sum(pull[:, None] * (z * z - 1), 0)
            divergence = (ratio - 1 - log) * part
        else:
            target = tl.load(a + at, mask=real, other=0.0)
            error = z3 - target
            slope = error * (2 * part)[:, None]
            if KIND == 2:
                old = tl.load(b + at, mask=real, other=0.0)
                held = tl.minimum(tl.maximum(z3, old - clip), old + clip)
                slope = tl.where(tl.abs(error) < tl.abs(held - target), 0.0, slope)
        weights3 = _product(a2, slope, NO)
        biases3 = tl.sum(slope, 0)
        slope2 = _back(slope, weight3, NO) * (1 - a2 * a2)
        weights2 = _product(a1, slope2, H2)
        biases2 = tl.sum(slope2, 0)
        slope1 = _back(slope2, weight2, H2) * (1 - a1 * a1)
        weights1 = _product(h0, slope1, H1)
        biases1 = tl.sum(slope1, 0)
    if KIND > 0:
        to = result + tl.program_id(0) * size
        _store(to, weights3, biases3, g3, c3, which, h2, no, i3, o3, H2, NO)
        _store(to, weights2, biases2, g2, c2, which, h1, h2, i2, o2, H1, H2)
        _store(to, weights1, biases1, g1, c1, which, ni, h1, i1, o1, NI, H1)
        if KIND == 3:
            tl.store(to + g0 + o, stds, mask=o < no)
            tl.store(to + size - 1, tl.sum(divergence, 0))


class Shapes:
    """Networks for the kernel: the parameters [K, ·, ·] of three layers, and where their gradients are in a vector."""

    def __init__(self, weights: list[Tensor], biases: list[Tensor], places: list[int], size: int) -> None:
        """Take `places` of the gradients of each weight and bias in turn, in a vector of this size."""
        self._each = [tensor for pair in zip(weights, biases, strict=True) for tensor in pair]
        self._strides = [stride for weight in weights for stride in weight.stride()[1:]]
        self._widths = [weights[0].shape[1], *(weight.shape[2] for weight in weights)]
        self._places, self._size = places, size

    def outputs(self, inputs: Tensor, only: Tensor) -> Tensor:
        """Return the outputs [k, N, no] of the networks `only` [k] at inputs [k, N, ni]."""
        result = inputs.new_empty(*inputs.shape[:2], self._widths[-1])
        self._run(OUTPUTS, inputs, only, result, result, result, result, result, result)
        return result

    def regression(
        self, inputs: Tensor, only: Tensor, share: Tensor | None, targets: Tensor, old: Tensor | None, clip: float
    ) -> Tensor:
        """Return the gradient [P] of the networks' squared errors, or of the clipped loss; zero for other networks."""
        kind, before = (REGRESSION, targets) if old is None else (CLIPPED, old)
        return self._summed(kind, inputs, only, share, targets, before, targets, targets, clip)[:-1]

    def surrogate(
        self, inputs: Tensor, only: Tensor, share: Tensor | None, raw: Tensor, advantage: Tensor, old: Tensor,
        log_std: Tensor, clip: float, bound: float | None,
    ) -> Tensor:  # fmt: skip
        """Return the gradient [P] of PPO's surrogate, with that by log_std first; then the divergence: [P + 1]."""
        return self._summed(SURROGATE, inputs, only, share, raw, advantage, old, log_std, clip, bound)

    def _summed(
        self, kind: int, inputs: Tensor, only: Tensor, share: Tensor | None, a: Tensor, b: Tensor, c: Tensor,
        log_std: Tensor, clip: float, bound: float | None = None,
    ) -> Tensor:  # fmt: skip
        n = inputs.shape[1]
        share = inputs.new_full((n,), 1 / n) if share is None else share
        partial = inputs.new_zeros(triton.cdiv(n, STEPS), self._size + 1)
        self._run(kind, inputs, only, partial, a, b, c, share, log_std, clip, bound)
        # As a product, which is faster than a sum over rows.
        return partial.new_ones(len(partial)) @ partial

    def _run(
        self, kind: int, inputs: Tensor, only: Tensor, result: Tensor, a: Tensor, b: Tensor, c: Tensor, share: Tensor,
        log_std: Tensor, clip: float = 0.0, bound: float | None = None,
    ) -> None:  # fmt: skip
        count, n, _ = inputs.shape
        filled = [max(16, triton.next_power_of_2(one)) for one in self._widths]
        filled[3] = 1 if self._widths[3] == 1 else filled[3]
        given = [each.contiguous() for each in (a, b, c, share, log_std)]
        _through[triton.cdiv(n, STEPS), count](
            inputs.contiguous(), only, *self._each, *self._strides, *self._places, 0, *given, result, n, *self._widths,
            self._size + 1, float(clip), float(bound or 0), kind, bound is not None, *filled, STEPS, num_warps=WARPS,
        )  # fmt: skip


def check(device: torch.device, *widths: int) -> None:
    """Raise an error if networks of these widths cannot be run."""
    if len(widths) != 4 or max(widths) > WIDEST:
        raise ValueError(f"not of two hidden layers, or more than {WIDEST} wide")
    only, inputs = torch.zeros(1, dtype=torch.long, device=device), torch.ones(1, 2 * STEPS, widths[0], device=device)
    weights = [torch.ones(1, a, b, device=device) for a, b in itertools.pairwise(widths)]
    biases = [torch.ones(1, 1, b, device=device) for b in widths[1:]]
    sizes = [each.numel() for pair in zip(weights, biases, strict=True) for each in pair]
    places = [0, *itertools.accumulate(sizes)]
    networks, like = Shapes(weights, biases, places[:-1], places[-1]), inputs[0, :, :1].expand(-1, widths[-1])
    outputs = networks.outputs(inputs, only)
    regression = networks.regression(inputs, only, None, outputs, None, 0.2)
    surrogate = networks.surrogate(inputs, only, None, like, like[:, 0], like[:, 0], biases[2][0, 0], 0.2, 1.0)
    if not bool(torch.cat([outputs.flatten(), regression, surrogate]).isfinite().all()):
        raise ValueError("the result is not finite")
