"""What an update gets, and what it tells."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Limit(NamedTuple):
    """A limit that a step keeps to by itself."""

    advantage: Tensor
    """Of the actions on the constraint [N]; lower is better."""
    excess: float
    """By how much the constraint is above what it is to stay under; negative: below."""
    steps: float
    """Of a trajectory, on average: so many advantages add up to a change of the constraint."""


class Batch(NamedTuple):
    """N steps with what there is to learn from them."""

    inputs: Tensor
    """Normalised observations [N, no]."""
    raw: Tensor
    """Actions in half widths [N, nu]."""
    advantage: Tensor
    """[N]; lower is better."""
    critic_inputs: Tensor
    """[K, N, nc]"""
    targets: Tensor
    """What the critics should have said [K, N]."""
    limit: Limit | None = None


class UpdateReport(NamedTuple):
    """How an update went."""

    kl: float
    """How far the policy moved."""
    clipped: float
    """Share of steps whose probability has changed by more than `clip` in the end."""
    epochs: int
    """Passes in which the policy moved."""
    critic_loss: tuple[float, ...]
    """In variances of the targets, by critic."""
    nu: float | None = None
    """What a unit of the constraint weighed, in units of the advantage, where the step found that by itself; infinity
    where it heard the constraint alone."""
