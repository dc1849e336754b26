"""`World`: where the episodes of a task run, one step at a time for a whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, final

import torch
from torch import Generator, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from samba_rl.tasks.task import Task


class Charges(NamedTuple):
    """Costs of one step of B episodes with m constraints."""

    cost: Tensor
    """Cost of the step [B]."""
    safety: Tensor
    """Safety cost of the step, by constraint [B, m]."""
    violation: Tensor
    """True where the step ended in the unsafe region, by constraint [B, m] (bool)."""


class Step(NamedTuple):
    """Result of one step of B episodes."""

    x: Tensor
    """States reached [B, nx]."""
    charges: Charges
    """Costs of the step."""
    terminated: Tensor
    """True where the system itself ended the episode [B] (bool)."""
    truncated: Tensor
    """True where the system cut the episode short without ending it [B] (bool)."""
    zeta: Tensor | None = None
    """Exploration signal ζ of an imagined step [B]; None where it was not computed."""
    failed: Tensor | None = None
    """True where the system failed: the step did not happen and the episode is over [B] (bool)."""


class World(Protocol):
    """A place where episodes of a task run: the equations of motion, a simulator, a rig or a learned model."""

    @property
    def task(self) -> Task:
        """Return the task whose episodes run here."""
        ...

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n new episodes and return their states [n, nx].

        They occupy slots 0 to n-1, or the given `slots` [n] of a running batch. They start in the states `x` [n, nx],
        if given.
        """
        ...

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Take one step in every episode, or only where `active` [B] (bool) is True.

        x [B, nx] are the states returned by the previous step, u [B, nu] the actions returned by `Task.admit`.
        """
        ...

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """Return a picture [size, size, 3] of episode `slot`, in state x [nx] after action u [nu]."""
        ...

    def close(self) -> None:
        """Release simulators and processes."""
        ...


@final
@dataclass(frozen=True)
class EquationsWorld:
    """World of a task whose equations of motion are known; all episodes run as one batch."""

    task: Task
    """Task whose episodes run here."""
    picture: Callable[[Tensor, Tensor | None, int], NDArray[np.uint8]]
    """Function from (state [nx], action [nu] or None, size) to a picture [size, size, 3]."""

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n new episodes and return their states [n, nx]."""
        return self.task.start(n, generator) if x is None else x

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Step every episode, including finished ones: in a batch that is cheaper than leaving them out."""
        x_next = self.task._step(x, u)
        never = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return Step(x_next, self.task.charge(x, u, x_next), never, never)

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """Return a picture [size, size, 3] of state x [nx] after action u [nu]."""
        return self.picture(x, u, size)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
