"""λ, the Lagrange multipliers of the constraints, and how they follow the measured values."""

from __future__ import annotations

import math
from typing import final

from samba_rl.improve.constraints import Constraint
from samba_rl.improve.limits import MultiplierSettings
from samba_rl.improve.results import Estimate
from samba_rl.types import State

LEAST_CAUTION = 0.25
"""Smallest share of the target that caution lets a policy aim at."""
EASING = 1.25
"""Largest factor by which caution eases at a time."""


@final
class Multiplier:
    """λ of one constraint."""

    def __init__(self, settings: MultiplierSettings, limit: float) -> None:
        self.settings = settings
        self.limit = limit
        self.slow = settings.initial
        """The part of λ that accumulates."""
        self.value = settings.initial
        """λ, with its immediate response to the last measured value."""
        self.caution = 1.0
        """Share of the usual aim, lowered while policies look too unsafe to act."""
        self.least: float | None = None
        """Least value of the constraint that the model seems able to reach; None until it has been estimated."""
        self.least_error = 0.0
        """Standard error of that estimate."""

    @property
    def infeasible(self) -> bool:
        """Return whether the limit seems to lie below every value that can be reached."""
        return self.least is not None and self.least > self.limit

    @property
    def target(self) -> float:
        """Return the value to keep to: the limit or, where it is infeasible, a little above the least value."""
        if self.least is None or self.settings.slack is None or not self.infeasible:
            return self.limit
        return (1 + self.settings.slack) * self.least

    @property
    def relaxed(self) -> bool:
        """Return whether the target follows the least value, because the limit seems infeasible."""
        return self.infeasible and self.settings.slack is not None

    def note_least(self, estimate: Estimate) -> None:
        """Take a fresh estimate of the least value, unless the limit would silently become feasible."""
        if estimate.value > self.limit:
            self.least, self.least_error = estimate

    @property
    def aim(self) -> float:
        """Return the value that is pursued on the model: below the target by the margin, and by caution."""
        aim = (1 - self.settings.margin) * self.caution * self.target
        return aim if self.least is None else max(aim, min(self.least, self.target))

    def update(self, measured: float) -> None:
        """Adapt λ to the measured value of the constraint; ignore a value that is not finite."""
        if not math.isfinite(measured):
            return
        settings, aim = self.settings, self.aim
        # Clipped both ways, so that no memory of a long excess has to be worked off.
        excess = min(1.0, max(-1.0, measured / aim - 1)) if aim > 0 else float(measured > 0)
        if settings.schedule == "adaptive":
            if measured > aim:
                self.slow *= settings.factor ** (1 + settings.steepness * excess)
            elif measured < aim / settings.tolerance:
                self.slow /= settings.factor ** (1 + settings.steepness / 2 * (1 / settings.tolerance - 1 - excess))
        elif settings.excess == "absolute":
            self.slow += settings.rate * (measured - aim)
        else:
            self.slow += settings.rate * excess
        self.slow = min(max(self.slow, settings.floor), settings.cap)
        self.value = min(self.slow * math.exp(settings.reaction * excess), settings.cap)

    def adapt_caution(self, bound: float, ceiling: float) -> None:
        """Lower the aim in the ratio by which an upper bound on the policy's value exceeds its ceiling, or ease it."""
        ratio = ceiling / bound if bound > 0 else EASING
        self.caution = min(1.0, max(LEAST_CAUTION, self.caution * min(EASING, ratio)))

    def adopt(self, value: float) -> None:
        """Take a λ that an update found by itself, up to the cap."""
        self.slow = self.value = min(value, self.settings.cap)

    def state_dict(self) -> State:
        """Return λ, caution and the estimate of the least reachable value."""
        return {name: value for name, value in vars(self).items() if name not in ("settings", "limit")}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        for name, value in state.items():
            setattr(self, name, None if value is None else float(value))


@final
class Multipliers:
    """The multipliers of all constraints, and the units in which they weigh against the cost."""

    def __init__(self, settings: MultiplierSettings, constraints: tuple[Constraint, ...]) -> None:
        self.each = tuple(Multiplier(settings, constraint.limit) for constraint in constraints)
        self._plain = settings.excess == "absolute"

    @property
    def values(self) -> tuple[float, ...]:
        """Return λ of each constraint."""
        return tuple(multiplier.value for multiplier in self.each)

    @property
    def targets(self) -> tuple[float, ...]:
        """Return the value that each constraint is to keep to."""
        return tuple(multiplier.target for multiplier in self.each)

    @property
    def units(self) -> tuple[float, ...]:
        """Return the amount of each constraint that λ = 1 weighs as one standard deviation of the cost's advantage.

        That is its target, so that λ means the same whatever the scales of cost and safety cost; 1 for a target of 0.
        """
        return tuple(target if target > 0 else 1.0 for target in self.targets)

    @property
    def explored(self) -> bool:
        """Return whether the least reachable value of every constraint has been estimated."""
        return all(multiplier.least is not None for multiplier in self.each)

    def start_afresh(self) -> None:
        """Forget what λ has accumulated, for a policy that starts afresh."""
        for multiplier in self.each:
            multiplier.slow = multiplier.value = multiplier.settings.initial

    @property
    def scales(self) -> tuple[float, ...] | None:
        """Return the units for an update; None where cost and constraints are summed as they are."""
        return None if self._plain else self.units

    def update(self, values: tuple[float, ...]) -> None:
        """Adapt each λ to the measured value of its constraint."""
        for multiplier, value in zip(self.each, values, strict=True):
            multiplier.update(value)

    def adopt(self, nu: float | None) -> None:
        """Take the multiplier of the only constraint that an update found by itself."""
        if nu is not None:
            self.each[0].adopt(nu)

    def excess(self, values: tuple[float, ...]) -> tuple[float, ...]:
        """Return by how much each measured value exceeds its aim."""
        return tuple(value - multiplier.aim for value, multiplier in zip(values, self.each, strict=True))
