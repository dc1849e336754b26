"""The result type of every posterior, and helpers that the posteriors share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DataclassT = TypeVar("DataclassT", bound="DataclassInstance")

CHUNK = 1_000_000
"""Number of covariances in one chunk of queries on a CPU: a few megabytes, which stay in the cache."""
DEVICE_CHUNK = 100_000_000
"""Number of covariances in one chunk of queries on an accelerator, where only the memory matters."""


class Marginals(NamedTuple):
    """Predictions at B queries, in normalised units."""

    mean: Tensor
    """Predicted means [B, D]."""
    variance: Tensor
    """Predicted variances of the function, without noise [B, D]."""
    zeta: Tensor | None
    """ζ_LOO, summed over the outputs [B]; None unless it was requested."""


def chunk_rows(width: int, like: Tensor, least: int = 16) -> int:
    """Return the number of queries in a chunk, each with `width` covariances, on the device of `like`."""
    return max(least, (CHUNK if like.device.type == "cpu" else DEVICE_CHUNK) // max(1, width))


def in_chunks(predict: Callable[[Tensor], Marginals], queries: Tensor, rows: int) -> Marginals:
    """Call `predict` on `rows` of the queries [B, ni] at a time and join the results."""
    parts = [predict(block) for block in torch.split(queries, rows)]
    if len(parts) == 1:
        return parts[0]
    mean, variance, zeta = zip(*parts, strict=True)
    return Marginals(torch.cat(mean), torch.cat(variance), None if zeta[0] is None else torch.cat(zeta))


def remaining_variance(prior: Tensor, explained: Tensor) -> Tensor:
    """Return the prior variance [D] minus the explained part [D, B], floored because rounding can make it negative."""
    return (prior[:, None] - explained).clamp_(min=16 * torch.finfo(prior.dtype).eps)


def in_dtype(value: DataclassT, dtype: torch.dtype) -> DataclassT:
    """Return a copy of a dataclass with the tensors among its fields in another precision."""
    values = {part.name: getattr(value, part.name) for part in fields(value)}
    return replace(value, **{name: part.to(dtype) for name, part in values.items() if isinstance(part, Tensor)})
