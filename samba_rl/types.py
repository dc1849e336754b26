"""The types that rooms hand to each other: batches of trajectories, transitions, faults and the policy protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

State: TypeAlias = "dict[str, Any]"
"""What something must remember to go on exactly: tensors, numbers, texts, None, and lists and dicts of those."""


class Policy(Protocol):
    """Anything that maps observations to actions."""

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Actions [B, nu] for observations [B, no]; randomness comes from the generator alone."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A policy that remembers what it has seen of an episode."""

    camera: Callable[[Tensor], Tensor] | None
    """What it sees of states [B, nx] in place of the observation, if it sees something else."""

    def begin(self, n: int) -> Policy:
        """The policy for n episodes that begin now, to be asked at every step of theirs."""
        ...


@runtime_checkable
class Scripted(Protocol):
    """A policy whose actions were fixed beforehand, episode by episode."""

    def episode(self, index: int) -> Policy:
        """Give the policy of one of the episodes."""
        ...


class Source(Protocol):
    """Gives traces of a policy: the real system, or a model of it."""

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """Run n trajectories under the policy."""
        ...


@dataclass(frozen=True)
class Fault:
    """What broke a real episode off; it is kept up to there."""

    episode: int
    """Its place among the episodes that ran together, from 0."""
    step: int
    """The step that failed, from 0; it counts as not taken."""
    text: str
    stopped: bool = False
    """The program was stopped: the system is not to blame."""


@dataclass(frozen=True)
class Transitions:
    """N steps in the order in which they were taken, each with where it belongs."""

    x: Tensor
    """The states that the steps left [N, nx]."""
    u: Tensor
    """The actions as they were applied [N, nu]."""
    x_next: Tensor
    """The states that they reached [N, nx]."""
    cost: Tensor
    """[N]"""
    safety: Tensor
    """[N, m]"""
    violation: Tensor
    """[N, m] (bool)"""
    terminated: Tensor
    """Whether the system ended the episode with this step [N] (bool)."""
    episode: Tensor
    """The number of the episode [N] (int64)."""
    step: Tensor
    """The number of the step within it, from 0 [N] (int64)."""

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
    """What the policy saw before each step [B, T, no]."""
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
    wanted: Tensor
    """Actions as the policy asked for them [B, T, nu]; those outside the bounds were clipped."""
    zeta: Tensor | None = None
    """How much each step would teach, for imagined trajectories on which that was asked for [B, T]."""

    @property
    def steps(self) -> int:
        """How many steps took place, over all trajectories."""
        return int(self.active.sum())

    @property
    def clipped(self) -> Tensor:
        """Whether the policy had asked for an action outside the bounds [B, T] (bool)."""
        return (self.u != self.wanted).any(-1) & self.active

    @property
    def returns(self) -> Tensor:
        """Sum of rewards (negative costs) of each trajectory [B]."""
        return -self.cost.sum(1)

    @property
    def safety_costs(self) -> Tensor:
        """Safety cost of each trajectory, by constraint [B, m]."""
        return self.safety.sum(1)

    @staticmethod
    def joined(parts: Sequence[Traces]) -> Traces:
        """Trajectories of the same length, one batch after the other."""
        import torch

        def cat(name: str) -> Tensor:
            return torch.cat([getattr(one, name) for one in parts])

        zeta = None if any(one.zeta is None for one in parts) else cat("zeta")
        return Traces(**{part.name: cat(part.name) for part in fields(Traces) if part.name != "zeta"}, zeta=zeta)

    def to(self, device: torch.device) -> Traces:
        """The same on another device."""
        zeta = None if self.zeta is None else self.zeta.to(device)
        return Traces(
            **{p.name: getattr(self, p.name).to(device) for p in fields(Traces) if p.name != "zeta"}, zeta=zeta
        )

    def begun(self) -> Traces:
        """The trajectories in which a step took place."""
        on = self.active.any(1)
        if bool(on.all()):
            return self
        zeta = None if self.zeta is None else self.zeta[on]
        return Traces(**{p.name: getattr(self, p.name)[on] for p in fields(Traces) if p.name != "zeta"}, zeta=zeta)

    def transitions(self, first_episode: int = 0) -> Transitions:
        """The steps that took place, episode after episode; the first trajectory is episode `first_episode`."""
        # Here and not above: the command line's help must not wait for torch.
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
