"""The types that rooms hand to each other: batches of trajectories, transitions, faults and the policy protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

State: TypeAlias = "dict[str, Any]"
"""State that a checkpoint can hold: tensors, numbers, strings, None, and lists and dicts of those."""


class Policy(Protocol):
    """Anything that maps observations to actions."""

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return actions [B, nu] for observations [B, no], drawn with the generator alone."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A policy that keeps a memory of each episode."""

    camera: Callable[[Tensor], Tensor] | None
    """Function of states [B, nx] that replaces the task's observation; None: the policy sees the observation."""

    def begin(self, n: int) -> Policy:
        """Return the policy for n episodes that start now; call it at every one of their steps."""
        ...


@runtime_checkable
class Choosing(Protocol):
    """A policy during some episodes that has chosen a way of acting for each, which an update must know."""

    def noted(self, observation: Tensor) -> Tensor:
        """Return observations [B, no] with the choice as further columns; not before the first action."""
        ...


@runtime_checkable
class Scripted(Protocol):
    """A policy whose actions were fixed in advance, separately for each episode."""

    def episode(self, index: int) -> Policy:
        """Return the policy of the episode with this index, from 0."""
        ...


class Source(Protocol):
    """A place to run a policy: the real system, or a model of it."""

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """Run n trajectories under the policy and return their traces."""
        ...


@dataclass(frozen=True)
class Fault:
    """A failure that ended a real episode early; the steps before it are kept."""

    episode: int
    """Index of the episode among those that ran together, from 0."""
    step: int
    """Index of the step that failed, from 0; that step is not counted."""
    text: str
    """Description for the user."""
    stopped: bool = False
    """Whether the program was stopped, as opposed to a failure of the system."""


@dataclass(frozen=True)
class Transitions:
    """N steps in the order in which they were taken, each with its episode and its place in it."""

    x: Tensor
    """States before the steps [N, nx]."""
    u: Tensor
    """Actions as they were applied, inside the bounds [N, nu]."""
    x_next: Tensor
    """States after the steps [N, nx]."""
    cost: Tensor
    """Cost of each step [N]."""
    safety: Tensor
    """Safety cost of each step, one column for each constraint [N, m]."""
    violation: Tensor
    """Whether the step ended inside the unsafe region, by constraint [N, m] (bool)."""
    terminated: Tensor
    """Whether the system ended the episode with this step [N] (bool)."""
    episode: Tensor
    """Index of the episode [N] (int64)."""
    step: Tensor
    """Index of the step within its episode, from 0 [N] (int64)."""

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Traces:
    """B trajectories of at most T steps.

    Step t goes from `x[:, t]` to `x[:, t + 1]`. An episode that ends early stays where it ended: from there on
    `active` is False and its costs are zero, so sums over time need no mask.
    """

    x: Tensor
    """States [B, T + 1, nx]."""
    observation: Tensor
    """Observation before each step [B, T, no], with the columns that a policy of several experts adds."""
    u: Tensor
    """Actions as they were applied, inside the bounds [B, T, nu]."""
    cost: Tensor
    """Cost of each step [B, T], the negative of a Gymnasium reward."""
    safety: Tensor
    """Safety cost of each step, one column for each constraint [B, T, m]."""
    violation: Tensor
    """Whether the step ended inside the unsafe region, by constraint [B, T, m] (bool)."""
    active: Tensor
    """Whether the step took place [B, T] (bool)."""
    terminated: Tensor
    """Whether the system ended the episode itself, as opposed to time running out [B] (bool)."""
    wanted: Tensor
    """Actions as the policy chose them, before they were clipped to the bounds [B, T, nu]."""
    zeta: Tensor | None = None
    """Exploration signal ζ of each step [B, T]; None unless a model measured it."""

    @property
    def steps(self) -> int:
        """Return how many steps took place, over all trajectories."""
        return int(self.active.sum())

    @property
    def finite(self) -> bool:
        """Return whether the cost and the safety cost of every step are finite."""
        return bool((self.cost.sum() + self.safety.sum()).isfinite())

    @property
    def clipped(self) -> Tensor:
        """Return whether the policy chose an action outside the bounds [B, T] (bool)."""
        return (self.u != self.wanted).any(-1) & self.active

    @property
    def returns(self) -> Tensor:
        """Return the sum of rewards (negative costs) of each trajectory [B]."""
        return -self.cost.sum(1)

    @property
    def safety_costs(self) -> Tensor:
        """Return the safety cost of each trajectory, by constraint [B, m]."""
        return self.safety.sum(1)

    @staticmethod
    def joined(parts: Sequence[Traces]) -> Traces:
        """Concatenate batches of trajectories with the same number of steps; drop ζ unless all of them have it."""
        import torch

        names = [part.name for part in fields(Traces) if all(getattr(one, part.name) is not None for one in parts)]
        return Traces(**{name: torch.cat([getattr(one, name) for one in parts]) for name in names})

    def to(self, device: torch.device) -> Traces:
        """Return a copy on the device; tensors that are already there are shared."""
        return self._each(lambda tensor: tensor.to(device))

    def begun(self) -> Traces:
        """Return the trajectories that have at least one step."""
        on = self.active.any(1)
        return self if bool(on.all()) else self.where(on)

    def where(self, chosen: Tensor) -> Traces:
        """Return the trajectories that are chosen [B] (bool)."""
        return self._each(lambda tensor: tensor[chosen])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Traces:
        """Return traces whose tensors have all been changed in the same way."""
        return Traces(**{name: change(tensor) for name, tensor in vars(self).items() if tensor is not None})

    def transitions(self, first_episode: int = 0) -> Transitions:
        """Return the steps that took place, episode after episode, numbered from `first_episode`."""
        # Imported here, so that the command line's help does not wait for torch.
        import torch

        on = self.active
        n, horizon = on.shape
        last = torch.zeros_like(on)
        last[torch.arange(n, device=on.device), on.sum(1) - 1] = self.terminated
        episode = torch.arange(first_episode, first_episode + n, device=on.device)[:, None].expand(n, horizon)
        step = torch.arange(horizon, device=on.device).expand(n, horizon)
        return Transitions(
            x=self.x[:, :-1][on],
            u=self.u[on],
            x_next=self.x[:, 1:][on],
            cost=self.cost[on],
            safety=self.safety[on],
            violation=self.violation[on],
            terminated=last[on],
            episode=episode[on],
            step=step[on],
        )
