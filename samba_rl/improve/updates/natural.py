"""Natural gradient updates: a step of the policy within a trust region, and the critics' regression."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Generator

from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.networks import optimiser_state, part_sizes, random_order, restore_optimiser
from samba_rl.improve.updates.projection import Projection
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.regression import CriticRegression
from samba_rl.improve.updates.trust_region import TrustRegion, TrustRegionSettings
from samba_rl.types import State


@final
class TrustRegionUpdate:
    """TRPO's step, or CPO's where a batch has a limit; and the critics' regression, in as many passes as PPO makes."""

    def __init__(
        self, policy: GaussianPolicy, critics: Critics, settings: TrustRegionSettings, regression: ProximalSettings
    ) -> None:
        self._trust_region, self._projection = TrustRegion(policy, settings), Projection(policy, settings)
        self._settings = regression
        self.regression = CriticRegression(critics, regression)
        self.std_floor = policy.settings.std_floor
        """The policy's standard deviation is lifted to this after every step."""

    @property
    def optimisers(self) -> tuple[torch.optim.Adam, ...]:
        """What remembers past gradients: the critics'."""
        return (self.regression.optimiser,)

    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        self._trust_region.std_floor = self._projection.std_floor = self.std_floor
        if batch.limit is None:
            step = self._trust_region(batch.inputs, batch.raw, batch.advantage)
            kl, accepted, nu = step.kl, step.accepted, None
        else:
            limit = batch.limit
            projected = self._projection(
                batch.inputs, batch.raw, batch.advantage, limit.advantage, limit.excess, limit.steps
            )
            kl, accepted = projected.kl, projected.accepted
            nu = math.inf if projected.case == "recovery" else projected.nu * float(batch.advantage.std(correction=0))
        with torch.no_grad():
            regression = self.regression.of(batch.critic_inputs, batch.targets)
            count = len(batch.inputs)
            sizes = part_sizes(count, self._settings.minibatch)
            for _ in range(self._settings.epochs):
                regression.epoch(random_order(count, len(sizes), generator, batch.inputs.device), sizes)
            losses = regression.losses().tolist()
        return UpdateReport(kl, 0.0, int(accepted), tuple(losses), nu)

    def state_dict(self) -> State:
        """What the critics' optimiser remembers."""
        return {"critics": optimiser_state(self.regression.optimiser), "std_floor": self.std_floor}

    def load_state_dict(self, state: State) -> None:
        """Go on as the one that gave this state would have."""
        restore_optimiser(self.regression.optimiser, state["critics"])
        self.std_floor = float(state["std_floor"])
