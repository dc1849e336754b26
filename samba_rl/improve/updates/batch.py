"""Advantages, the batch that an update learns from, the report it returns, and the protocol of updates."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from samba_rl.types import State


class Batch(NamedTuple):
    """N steps with everything an update needs. Advantages are of costs: lower is better."""

    inputs: Tensor
    """Normalised observations [N, no]."""
    raw: Tensor
    """Actions in half widths of their range [N, nu]."""
    objective: Tensor
    """Weighted sum of the objectives' advantages [N]."""
    tails: Tensor
    """Advantages on the constraints [m, N]."""
    critic_inputs: Tensor
    """Inputs of the K critics [K, N, nc]."""
    targets: Tensor
    """Monte-Carlo targets of the critics [K, N]."""
    multipliers: tuple[float, ...] = ()
    """λ of each constraint."""
    units: tuple[float, ...] | None = ()
    """Amount of each constraint that weighs as much as one standard deviation of the objective's advantage at λ = 1.
    None: the paper's plain sum, in which λ weighs the constraint itself."""
    excess: tuple[float, ...] = ()
    """By how much each constraint exceeds its target; negative below it."""
    first: Tensor | None = None
    """Whether a step is the first of its trajectory [N] (bool); a policy of several experts needs it."""
    shares: Tensor | None = None
    """Share of each λ that weighs on a step [N], while experts are improved apart. None: all of it."""
    steps: float = 1.0
    """Mean number of steps of a trajectory: that many advantages add up to a change of a constraint."""

    @property
    def lagrangian(self) -> Tensor:
        """Return the advantage of objective and constraints together, each weighed by its λ [N].

        It has no unit, except for a plain sum.
        """
        shares = 1.0 if self.shares is None else self.shares
        if self.units is None:
            exact = torch.tensor(self.multipliers, dtype=torch.float64)
            return self.objective + shares * torch.einsum("m,mn->n", exact.to(self.tails), self.tails)
        spread = self.objective.std(correction=0)
        total = torch.where(spread > 0, self.objective / spread, 0.0)
        for multiplier, unit, tail in zip(self.multipliers, self.units, self.tails, strict=True):
            total = total + multiplier / unit * shares * tail
        # Without the division a large λ would be a large step as well.
        return total / (1 + shares * sum(self.multipliers))


class Advantages(NamedTuple):
    """Advantages of the N steps that took place in a batch of traces; lower is better."""

    inputs: Tensor
    """Normalised observations [N, no]."""
    raw: Tensor
    """Actions in half widths of their range [N, nu]."""
    objectives: Tensor
    """Advantages on the objectives [k, N]."""
    tails: Tensor
    """Advantages on the constraints [m, N]."""
    critic_inputs: Tensor
    """Inputs of the k + m critics [k + m, N, nc]."""
    targets: Tensor
    """Monte-Carlo targets of the critics [k + m, N]."""
    first: Tensor
    """Whether a step is the first of its trajectory [N] (bool)."""
    shares: Tensor | None
    """Share of each multiplier that weighs on a step [N]; None: all of it."""
    steps: float
    """Mean number of steps of a trajectory."""

    def combined(
        self,
        weights: tuple[float, ...],
        multipliers: tuple[float, ...],
        units: tuple[float, ...] | None,
        excess: tuple[float, ...] = (),
    ) -> Batch:
        """Return the batch of an update: objectives weighed by `weights`, constraints beside their multipliers."""
        objective = torch.zeros_like(self.targets[0])
        if weights:
            exact = torch.tensor(weights, dtype=torch.float64)
            objective = torch.einsum("k,kn->n", exact.to(self.objectives), self.objectives)
        return Batch(
            inputs=self.inputs,
            raw=self.raw,
            objective=objective,
            tails=self.tails,
            critic_inputs=self.critic_inputs,
            targets=self.targets,
            multipliers=multipliers,
            units=units,
            excess=excess,
            first=self.first,
            shares=self.shares,
            steps=self.steps,
        )


class UpdateReport(NamedTuple):
    """The outcome of an update."""

    kl: float
    """Divergence between the policies before and after."""
    clipped: float
    """Share of steps whose action probability changed by more than `clip`."""
    epochs: int
    """Passes over the batch in which the policy moved."""
    critic_loss: tuple[float, ...]
    """Mean squared error of each critic, in variances of its targets."""
    nu: float | None = None
    """Multiplier that the update found by itself, in units of the advantage per unit of the constraint; infinite if
    only the constraint was followed. None: the update uses the given multipliers."""


class Update(Protocol):
    """Moves a policy and fits its critics. Nothing else writes their parameters."""

    std_floor: float
    """Lower bound of the policy's standard deviation, in half widths of the action range."""

    @property
    def optimisers(self) -> tuple[torch.optim.Adam, ...]:
        """Return the optimisers, which remember past gradients."""
        ...

    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        ...

    def state_dict(self) -> State:
        """Return the state of the optimisers."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        ...
