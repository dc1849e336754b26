"""How low a constraint can be brought at all: a policy that minimises nothing else, on the same model."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from torch import Generator

from samba_rl.events import Log, Notice
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import Constraint, Multiplier
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.step import Control
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.types import Source, State


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


@final
class Feasibility:
    """Estimates the least values that constraints can have, where it is open whether their limits can be met."""

    def __init__(
        self,
        constraints: tuple[Constraint, ...],
        multipliers: tuple[Multiplier, ...],
        make: Callable[[Constraint], Safest],
        iterations: int,
        trajectories: int,
        log: Log,
    ) -> None:
        """`make` gives a policy that looks for the least value of a constraint, when it is first needed."""
        self._constraints, self._multipliers, self._make = constraints, multipliers, make
        self._iterations, self._trajectories, self._log = iterations, trajectories, log
        self._safest: dict[int, Safest] = {}

    def check(self, source: Source, reached: tuple[float, ...], generator: Generator, last: bool) -> None:
        """Tell the multipliers the least values, from the `source` and from what the policy has `reached`.

        They are looked for when a limit is first missed and at the `last`, and an eighth as long while a limit seems
        out of reach. The user is told of that, and if it changes.
        """
        for i, (constraint, multiplier) in enumerate(zip(self._constraints, self._multipliers, strict=True)):
            first, known = multiplier.least is None, multiplier.infeasible
            if not (last or known or (first and reached[i] > constraint.limit)):
                continue
            iterations = self._iterations if first or last else -(-self._iterations // 8)
            least = self._policy(i).least(source, iterations, self._trajectories, generator)
            multiplier.least = min(least, reached[i])
            if multiplier.infeasible and not known:
                self._log(Notice(_infeasible(constraint, multiplier)))
            elif known and not multiplier.infeasible:
                self._log(Notice(f"{constraint.in_words()}: the limit {constraint.limit:g} can be met after all"))

    def state_dict(self) -> State:
        """How far each of the policies has come."""
        return {str(index): safest.state_dict() for index, safest in self._safest.items()}

    def load_state_dict(self, state: State) -> None:
        """Go on as the one that gave this state would have."""
        for index, safest in state.items():
            self._policy(int(index)).load_state_dict(safest)

    def _policy(self, index: int) -> Safest:
        if index not in self._safest:
            self._safest[index] = self._make(self._constraints[index])
        return self._safest[index]


def _infeasible(constraint: Constraint, multiplier: Multiplier) -> str:
    """What to tell the user of a limit that seems out of reach."""
    relaxed = "" if multiplier.settings.slack is None else f" {multiplier.target:.3g} is aimed at instead."
    return (
        f"{constraint.in_words()}: the limit {constraint.limit:g} looks infeasible; the safest policy found on the "
        f"model so far reaches {multiplier.least:.3g}.{relaxed} Raise the limit, or change where the system starts"
    )
