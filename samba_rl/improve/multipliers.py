"""λ, the Lagrange multipliers of the constraints, and how they follow the measured values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from samba_rl.errors import UserError
from samba_rl.improve.constraints import Constraint
from samba_rl.types import State

LEAST_CAUTION = 0.25
"""Smallest share of the target that caution lets a policy aim at."""
EASING = 1.25
"""Largest factor by which caution eases at a time."""


@dataclass(frozen=True)
class MultiplierSettings:
    """λ, the weight of a constraint, in its targets, against the cost, in standard deviations of its advantage."""

    schedule: Literal["adaptive", "dual-ascent"] = "adaptive"
    """How λ follows the measured value. adaptive multiplies or divides it by `factor`, as PPO's adaptive penalty does;
    dual-ascent adds `rate` times the relative excess over the target."""
    initial: float = 0.5
    """Initial λ."""
    factor: float = 1.05
    """Factor of one change in the adaptive schedule; above 1."""
    steepness: float = 3.0
    """How much faster the adaptive schedule raises λ per unit of relative excess over its aim, and half as much for
    lowering it: λ changes by `factor` to the power 1 + steepness · excess. 0: always by `factor`."""
    reaction: float = 5.0
    """Immediate response to the relative excess, at most 1 either way: an update uses λ · exp(reaction · excess). It
    damps the swings of a λ that only accumulates, and holds a policy back at once that finds a way through the hazard.
    0: an update uses λ itself."""
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
    margin: float = 0.1
    """Safety margin in [0, 1): on the model the value is held this share below the target, since the model errs. It is
    widened while policies look too unsafe to act."""
    slack: float | None = 0.4
    """For a limit that cannot be met: the target is the least value that the model can reach plus this share of it, and
    a notice says so. None: pursue the limit until λ reaches its cap."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.initial <= self.cap:
            raise UserError(
                f"a multiplier's floor = {self.floor}, initial = {self.initial} and cap = {self.cap} must be ordered"
            )
        for name in ("steepness", "reaction"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"a multiplier's {name} is {getattr(self, name)}; give a number of at least 0")
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
