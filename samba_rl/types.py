"""What the rooms hand to each other: batches of trajectories, the policy protocol, and the error a user can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Generator, Tensor


class UserError(ValueError):
    """A mistake in what was asked for; the message names the thing, the value and the way out."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest ones, or all there are if they are few."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=3)
    if near:
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    return f"there are: {', '.join(names)}" if len(names) <= 20 else f"none of the {len(names)} known names is near"


class Policy(Protocol):
    """Anything that maps observations to actions."""

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Actions [B, nu] for observations [B, no]; randomness comes from the generator alone."""
        ...


@dataclass(frozen=True)
class Traces:
    """B trajectories of at most T steps.

    Step t goes from `x[:, t]` to `x[:, t + 1]`. An episode that ends early stays where it ended: from there on
    `active` is False and its costs are zero, so sums over time need no mask.
    """

    x: Tensor
    """States [B, T + 1, nx]."""
    u: Tensor
    """Actions as they were applied, inside the bounds [B, T, nu]."""
    cost: Tensor
    """What each step cost [B, T]; a Gymnasium reward is its negative."""
    safety: Tensor
    """Safety cost of each step, one column for each constraint [B, T, m]."""
    violation: Tensor
    """Whether the step ended inside the unsafe region, by constraint [B, T, m] (bool)."""
    active: Tensor
    """Whether the step took place [B, T] (bool)."""
    terminated: Tensor
    """Whether the system ended the episode itself, as opposed to time running out [B] (bool)."""
    clipped: Tensor
    """Whether the policy had asked for an action outside the bounds [B, T] (bool)."""

    @property
    def steps(self) -> int:
        """How many steps took place, over all trajectories."""
        return int(self.active.sum())

    @property
    def returns(self) -> Tensor:
        """Sum of rewards (negative costs) of each trajectory [B]."""
        return -self.cost.sum(1)

    @property
    def safety_costs(self) -> Tensor:
        """Safety cost of each trajectory, by constraint [B, m]."""
        return self.safety.sum(1)
