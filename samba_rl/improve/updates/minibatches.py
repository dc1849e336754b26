"""Minibatches: how a pass divides its batch, of a plain batch and of one in which other steps fill up the shapes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import final

import torch
from torch import Generator, Tensor

ROWS = 1024
"""Batches that are recorded are filled up to a multiple of this many steps or of about a tenth of them, whichever is
more, so that few shapes occur."""


@final
@dataclass(frozen=True)
class Order:
    """The minibatches of one pass over a batch of N steps."""

    sizes: tuple[int, ...]
    """Sizes of the minibatches; empty if they are filled up."""
    rows: Tensor | None
    """Order of the steps [N] or, filled up, the steps of each of P minibatches [P, M]; None: there is one minibatch."""
    share: Tensor | None
    """Weight of each step of each minibatch in means over it [P, M], 0 for what fills it up; None: all weigh alike."""

    def parts(self, tensors: list[Tensor], dim: int) -> Iterator[tuple[Tensor | None, tuple[Tensor, ...]]]:
        """Iterate over the minibatches: the weights of their steps, and slices of all tensors along a dimension."""
        if self.share is not None:
            for i, share in enumerate(self.share):
                rows = None if self.rows is None else self.rows[i]
                yield share, tuple(tensors if rows is None else (each.index_select(dim, rows) for each in tensors))
            return
        ordered = tensors if self.rows is None else [each.index_select(dim, self.rows) for each in tensors]
        for part in zip(*(torch.split(each, list(self.sizes), dim) for each in ordered), strict=True):
            yield None, part


@final
class Minibatches:
    """Divides a batch of `count` steps into minibatches of nearly equal sizes, about the wanted one.

    With `fill`, batches and minibatches are filled up with their first steps again, which weigh nothing.
    """

    def __init__(self, count: int, wanted: int, device: torch.device, *, fill: bool = False) -> None:
        self._count, self._device, self._fill = count, device, fill
        self._parts = max(1, round(count / wanted))
        if fill:
            edges = torch.arange(self._parts + 1, device=device) * count // self._parts
            size = edges.diff()[:, None]
            column = torch.arange(_filled(-(-count // self._parts)), device=device)
            self._places = edges[:-1, None] + torch.where(column < size, column, 0)
            self._share = (column < size) / size

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes of the minibatches."""
        edges = [part * self._count // self._parts for part in range(self._parts + 1)]
        return tuple(after - before for before, after in itertools.pairwise(edges))

    @property
    def one(self) -> bool:
        """Return whether there is a single minibatch."""
        return self._parts == 1

    def draw(self, generator: Generator) -> Order:
        """Draw the order of a pass; a single minibatch needs none."""
        order = None if self.one else torch.randperm(self._count, generator=generator, device=self._device)
        if not self._fill:
            return Order(self.sizes, order, None)
        return Order((), None if order is None else order[self._places], self._share)

    @cached_property
    def whole(self) -> Order:
        """Return the whole batch as one minibatch."""
        if not self._fill:
            return Order((self._count,), None, None)
        column = torch.arange(_filled(self._count), device=self._device)
        return Order((), None, ((column < self._count) / self._count)[None])

    def filled(self, tensors: list[Tensor], dim: int) -> list[Tensor]:
        """Fill tensors up along a dimension, or leave them as they are."""
        return [each.index_select(dim, self._rows) for each in tensors] if self._fill else tensors

    @cached_property
    def _rows(self) -> Tensor:
        column = torch.arange(_filled(self._count), device=self._device)
        return torch.where(column < self._count, column, 0)


@lru_cache(maxsize=16)
def minibatches(count: int, wanted: int, device: torch.device, *, fill: bool = False) -> Minibatches:
    """Return the minibatches of such a batch, made once for all batches of this length."""
    return Minibatches(count, wanted, device, fill=fill)


def spread(values: Tensor, share: Tensor | None) -> Tensor:
    """Divide values [..., N] by N, or weigh them by the share of each step [N]."""
    return values / values.shape[-1] if share is None else values * share


def mean(values: Tensor, share: Tensor | None) -> Tensor:
    """Return the mean [...] of values [..., N], or the sum of them weighed by the share of each step [N]."""
    return values.mean(-1) if share is None else (values * share).sum(-1)


def _filled(count: int) -> int:
    step = max(ROWS, 1 << max(0, count.bit_length() - 4))
    return -(-count // step) * step
