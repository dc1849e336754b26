"""λ, the Lagrange multipliers of the constraints, and how they follow the measured values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from samba_rl.errors import UserError
from samba_rl.improve.constraints import Constraint
from samba_rl.types import State

FASTEST = 1.5
"""Largest factor by which the adaptive schedule raises λ at a time."""


@dataclass(frozen=True)
class MultiplierSettings:
    """λ, the weight of a constraint against the cost, in units of the mean cost of a step in the first trials."""

    schedule: Literal["adaptive", "dual-ascent"] = "adaptive"
    """How λ follows the measured value. adaptive multiplies or divides it by `factor`, as PPO's adaptive penalty does;
    dual-ascent adds `rate` times the relative excess over the target."""
    initial: float = 0.5
    """Initial λ."""
    factor: float = 1.05
    """Factor of one change in the adaptive schedule; above 1."""
    steepness: float = 10.0
    """How much faster the adaptive schedule raises λ per unit of relative excess over the target, and half as much for
    lowering it: λ changes by `factor` to the power 1 + steepness · excess. 0: always by `factor`."""
    tolerance: float = 1.1
    """Tolerance of the adaptive schedule, at least 1: λ rests while the value lies between target / tolerance and the
    target."""
    rate: float = 0.05
    """Step size of dual ascent. The relative excess is clipped to ±1, so λ changes by at most this much at a time."""
    excess: Literal["relative", "absolute"] = "relative"
    """Units of λ. relative: as above. absolute: as in the paper, cost and constraint are summed in their own units, and
    dual ascent follows the plain excess over the target."""
    floor: float = 0.05
    """Lower bound of λ. A multiplier that shrinks to nothing takes too long to grow back."""
    cap: float = 50.0
    """Upper bound of λ. With a limit that cannot be met λ would grow forever and the cost would be ignored."""
    margin: float = 0.15
    """Safety margin in [0, 1): on the model the value is held this share below the limit, since the model errs."""
    slack: float | None = 0.25
    """For a limit that cannot be met: aim at the least value that the model can reach plus this share of it, and say
    so. None: pursue the limit until λ reaches its cap."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.initial <= self.cap:
            raise UserError(
                f"a multiplier's floor = {self.floor}, initial = {self.initial} and cap = {self.cap} must be ordered"
            )
        if not 0 <= self.steepness < math.inf:
            raise UserError(f"a multiplier's steepness is {self.steepness}; give a number of at least 0")
        if self.factor <= 1 or self.tolerance < 1 or not 0 <= self.margin < 1:
            raise UserError(
                f"a multiplier's factor = {self.factor} must exceed 1, its tolerance = {self.tolerance} be at least 1, "
                f"its margin = {self.margin} lie in [0, 1)"
            )


@final
class Multiplier:
    """λ of one constraint."""

    def __init__(self, settings: MultiplierSettings, limit: float) -> None:
        self.settings = settings
        self.limit = limit
        self.value = settings.initial
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
        """Return the value to aim at: a little below the limit, or a little above the least reachable value."""
        aim = (1 - self.settings.margin) * self.limit
        if self.least is None or self.settings.slack is None:
            return aim
        return max(aim, (1 + self.settings.slack) * self.least) if self.infeasible else max(aim, self.least)

    def update(self, measured: float) -> None:
        """Adapt λ to the measured value of the constraint; ignore a value that is not finite."""
        if not math.isfinite(measured):
            return
        settings, target = self.settings, self.target
        if settings.schedule == "adaptive":
            # Faster the larger the excess: a policy that has just found a way through the hazard is held back at once.
            ratio = min(2.0, measured / target) if target > 0 else 2.0
            if measured > target:
                self.value *= min(settings.factor ** (1 + settings.steepness * (ratio - 1)), FASTEST)
            elif measured < target / settings.tolerance:
                self.value /= settings.factor ** (1 + settings.steepness / 2 * (1 / settings.tolerance - ratio))
        elif settings.excess == "absolute":
            self.value += settings.rate * (measured - target)
        else:
            # Clipped both ways, so that no memory of a long excess has to be worked off.
            self.value += settings.rate * min(1.0, max(-1.0, (measured - target) / max(target, 1e-6)))
        self.value = min(max(self.value, settings.floor), settings.cap)

    def adopt(self, value: float) -> None:
        """Take a λ that an update found by itself, up to the cap."""
        self.value = min(value, self.settings.cap)

    def state_dict(self) -> State:
        """Return λ and the estimate of the least reachable value."""
        return {"value": self.value, "least": self.least, "least_error": self.least_error}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.value = float(state["value"])
        self.least = None if state["least"] is None else float(state["least"])
        self.least_error = float(state["least_error"])


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
        """Return the value that each constraint is held under."""
        return tuple(multiplier.target for multiplier in self.each)

    @property
    def units(self) -> tuple[float, ...]:
        """Return the amount of each constraint that λ = 1 weighs as one standard deviation of the cost's advantage.

        That is its target, so that λ means the same whatever the scales of cost and safety cost; 1 for a target of 0.
        """
        return tuple(target if target > 0 else 1.0 for target in self.targets)

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
        """Return by how much each measured value exceeds its target."""
        return tuple(value - target for value, target in zip(values, self.targets, strict=True))
