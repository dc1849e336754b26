"""Settings of limits: the constrained value and its multiplier λ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from samba_rl.errors import UserError, did_you_mean

Per = Literal["trajectory", "step"]
_KINDS = ("cvar", "expectation", "chance")


@dataclass(frozen=True)
class ConstraintSettings:
    """The limit on the safety cost."""

    limit: float = 0.75
    """Limit ξ, in units of the safety cost (for a chance constraint: a probability)."""
    per: Per = "trajectory"
    """Constrain the sum over a trajectory, or the mean over the steps of the horizon."""
    alpha: float = 0.9
    """Level α of CVaR, in [0, 1): CVaR is the mean of the worst share 1 - α of the trajectories."""
    nu_floor: float = 0.0
    """Lower bound of ν in CVaR's gradient, as a share of the limit. Trajectories that cost less are left alone even
    while nearly all cost nothing. Every ν bounds CVaR from above, so this errs on the safe side. 0: the quantile."""
    nu_ceiling: float = math.inf
    """Upper bound of ν in CVaR's gradient, as a share of the limit. Where most trajectories exceed the limit, the
    quantile does too, and only the few beyond it would be held back. inf: the quantile, or 1 for several experts, since
    the gate judges every start by the same ν."""
    gamma: float = 1.0
    """Discount of the safety cost along a trajectory, in (0, 1]. Probabilities have none."""
    of: str = ""
    """Name of the constrained safety cost. Empty: the system's only one, or each of them."""

    def __post_init__(self) -> None:
        if self.per not in ("trajectory", "step"):
            raise UserError(f"a constraint's per is '{self.per}'; {did_you_mean(self.per, ('trajectory', 'step'))}")
        if not (math.isfinite(self.limit) and self.limit >= 0):
            raise UserError(f"a constraint's limit is {self.limit}; give a number of at least 0")
        if not 0 <= self.alpha < 1:
            raise UserError(f"a constraint's α is {self.alpha}; it lies in [0, 1)")
        if not 0 < self.gamma <= 1:
            raise UserError(f"a constraint's gamma is {self.gamma}; it lies in (0, 1]")
        if not 0 <= self.nu_floor <= 1:
            raise UserError(f"a constraint's nu_floor is {self.nu_floor}; it lies in [0, 1]")
        if not self.nu_ceiling >= max(self.nu_floor, 1e-9):
            raise UserError(
                f"a constraint's nu_ceiling is {self.nu_ceiling}; it must be positive and at least its nu_floor = "
                f"{self.nu_floor}"
            )


@dataclass(frozen=True)
class FurtherConstraint(ConstraintSettings):
    """A limit beside the learner's own."""

    kind: Literal["cvar", "expectation", "chance"] = "cvar"
    """Kind of limit. cvar: the mean of the worst share 1 - α of the trajectories. expectation: the mean of all. chance:
    the share of trajectories that enter the unsafe region (per step: the share of steps inside it)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in _KINDS:
            raise UserError(f"a constraint's kind is '{self.kind}'; {did_you_mean(self.kind, _KINDS)}")


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
    slack: float | None = 0.3
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
