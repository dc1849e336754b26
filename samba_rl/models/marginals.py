"""What every posterior gives, and how it gives it with bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 1_000_000
"""Numbers in the covariances of one chunk of queries on a CPU: a few megabytes, so that they stay in the cache."""
DEVICE_CHUNK = 100_000_000
"""The same on an accelerator, where it only bounds the memory."""


class Marginals(NamedTuple):
    """What a posterior says of B queries, in normalised units."""

    mean: Tensor
    """[B, D]"""
    variance: Tensor
    """Of the function itself, without noise [B, D]."""
    zeta: Tensor | None
    """ζ_LOO, summed over outputs [B]; None where it was not asked for."""


def chunk_rows(width: int, like: Tensor, least: int = 16) -> int:
    """Rows in a chunk whose covariances take `width` numbers a row, on the device of `like`."""
    return max(least, (CHUNK if like.device.type == "cpu" else DEVICE_CHUNK) // max(1, width))


def in_chunks(predict: Callable[[Tensor, bool], Marginals], queries: Tensor, loo: bool, rows: int) -> Marginals:
    """What `predict` says of queries [B, ni], asked for so many rows at a time."""
    parts = [predict(block, loo) for block in torch.split(queries, rows)]
    if len(parts) == 1:
        return parts[0]
    mean, variance, zeta = zip(*parts, strict=True)
    return Marginals(torch.cat(mean), torch.cat(variance), torch.cat(zeta) if loo else None)


def remaining_variance(prior: Tensor, explained: Tensor) -> Tensor:
    """Prior variance [D] less what is explained [D, B]: [D, B]; rounding can push it below zero, so it is floored."""
    return (prior[:, None] - explained).clamp_(min=16 * torch.finfo(prior.dtype).eps)
