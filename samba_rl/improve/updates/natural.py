"""Natural-gradient updates: one step of the policy within a trust region, and the critics' regression."""

from __future__ import annotations

from typing import NamedTuple, Protocol, final

import torch
from torch import Generator

from samba_rl.improve.advantages import Critics
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.minibatches import minibatches
from samba_rl.improve.updates.networks import optimiser_state, restore_optimiser
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.regression import CriticRegression
from samba_rl.types import State


class NaturalStep(NamedTuple):
    """The outcome of one natural-gradient step."""

    kl: float
    """Divergence between the policies before and after."""
    accepted: bool
    """Whether the policy moved."""
    nu: float | None = None
    """Multiplier that the step found by itself; see `UpdateReport.nu`."""


class NaturalStepper(Protocol):
    """Takes natural-gradient steps."""

    std_floor: float
    """Lower bound of the policy's standard deviation, in half widths of the action range."""

    def step(self, batch: Batch) -> NaturalStep:
        """Take one step on a batch."""
        ...


@final
class NaturalUpdate:
    """One step of the policy, and the critics' regression in as many passes as the proximal update makes."""

    def __init__(self, stepper: NaturalStepper, critics: Critics, settings: ProximalSettings) -> None:
        self._stepper, self._settings = stepper, settings
        self.regression = CriticRegression(critics, settings)
        self.std_floor = stepper.std_floor

    @property
    def optimisers(self) -> tuple[torch.optim.Adam, ...]:
        """Return the critics' optimiser, the only one."""
        return (self.regression.optimiser,)

    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        self._stepper.std_floor = self.std_floor
        step = self._stepper.step(batch)
        with torch.no_grad():
            regression = self.regression.of(batch.critic_inputs, batch.targets)
            parts = minibatches(len(batch.inputs), self._settings.minibatch, batch.inputs.device)
            for _ in range(self._settings.epochs):
                regression.epoch(parts.draw(generator))
            losses = regression.losses().tolist()
        return UpdateReport(step.kl, 0.0, int(step.accepted), tuple(losses), step.nu)

    def state_dict(self) -> State:
        """Return the state of the critics' optimiser."""
        return {"critics": optimiser_state(self.regression.optimiser), "std_floor": self.std_floor}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        restore_optimiser(self.regression.optimiser, state["critics"])
        self.std_floor = float(state["std_floor"])
