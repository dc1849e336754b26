"""How low a constraint can be brought at all: a policy that minimises nothing else, on the same model."""

from __future__ import annotations

from typing import final

from torch import Generator

from samba_rl.advantages import AdvantageSettings
from samba_rl.constraints import Constraint
from samba_rl.control import Control
from samba_rl.policies import GaussianPolicy
from samba_rl.sources import Source
from samba_rl.types import State
from samba_rl.updates.proximal import ProximalSettings


@final
class Safest:
    """A policy on the way to the least value of a constraint; it goes on from where it was, from model to model."""

    def __init__(
        self,
        start: GaussianPolicy,
        constraint: Constraint,
        advantage: AdvantageSettings,
        update: ProximalSettings,
        generator: Generator,
    ) -> None:
        """`start` is best a policy that does next to nothing: that is often safe."""
        self._constraint = constraint
        self._control = Control(start, (), (constraint,), advantage, update, generator)

    def state_dict(self) -> State:
        """How far it has come."""
        return self._control.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Go on as the one that gave this state would have."""
        self._control.load_state_dict(state)

    def least(self, source: Source, iterations: int, trajectories: int, generator: Generator) -> float:
        """The least value seen in up to so many control iterations; once the limit is met there is nothing to find."""
        least = float("inf")
        for _ in range(iterations):
            traces = source(self._control.policy, trajectories, generator)
            least = min(least, self._constraint.measure(traces))
            if least <= self._constraint.limit:
                break
            before = self._control.state_dict()
            self._control(traces, (1.0,), 1.0, 1.0, generator)
            if not self._control.finite:
                self._control.load_state_dict(before)
        return least
