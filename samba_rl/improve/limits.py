"""Settings of limits: the constrained value and its multiplier λ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from samba_rl.ranges import In, Share

Per = Literal["trajectory", "step"]


@dataclass(frozen=True)
class ConstraintSettings:
    """The limit on the safety cost."""

    limit: Annotated[float, In("[0, 1e12]")] = 0.75
    """Limit ξ, in units of the safety cost (for a chance constraint: a probability)."""
    per: Per = "trajectory"
    """Constrain the sum over a trajectory, or the mean over the steps of the horizon."""
    alpha: Annotated[float, In("[0, 1)")] = 0.9
    """Level α of CVaR: CVaR is the mean of the worst share 1 - α of the trajectories."""
    nu_floor: Share = 0.0
    """Lower bound of ν in CVaR's gradient, as a share of the limit. Trajectories that cost less are left alone even
    while nearly all cost nothing. Every ν bounds CVaR from above, so this errs on the safe side. 0: the quantile."""
    nu_ceiling: Annotated[float, In("(0, inf]")] = math.inf
    """Upper bound of ν in CVaR's gradient, as a share of the limit. Where most trajectories exceed the limit, the
    quantile does too, and only the few beyond it would be held back. inf: the quantile, or 1 for several experts, since
    the gate judges every start by the same ν."""
    gamma: Annotated[float, In("(0, 1]")] = 1.0
    """Discount of the safety cost along a trajectory. Probabilities have none."""
    of: str = ""
    """Name of the constrained safety cost. Empty: the system's only one, or each of them."""

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Yield an upper bound of ν below its lower bound."""
        if self.nu_ceiling < self.nu_floor:
            yield "nu_ceiling", f"at least nu_floor = {self.nu_floor}"


@dataclass(frozen=True)
class FurtherConstraint(ConstraintSettings):
    """A limit beside the learner's own."""

    kind: Literal["cvar", "expectation", "chance"] = "cvar"
    """Kind of limit. cvar: the mean of the worst share 1 - α of the trajectories. expectation: the mean of all. chance:
    the share of trajectories that enter the unsafe region (per step: the share of steps inside it)."""


@dataclass(frozen=True)
class MultiplierSettings:
    """λ, the weight of a constraint, in its targets, against the cost, in standard deviations of its advantage."""

    schedule: Literal["adaptive", "dual-ascent"] = "adaptive"
    """How λ follows the measured value. adaptive multiplies or divides it by `factor`, as PPO's adaptive penalty does;
    dual-ascent adds `rate` times the relative excess over the target."""
    initial: Annotated[float, In("[0, 1e9]")] = 0.5
    """Initial λ."""
    factor: Annotated[float, In("(1, 10]")] = 1.05
    """Factor of one change in the adaptive schedule."""
    steepness: Annotated[float, In("[0, 100]")] = 3.0
    """How much faster the adaptive schedule raises λ per unit of relative excess over its aim, and half as much for
    lowering it: λ changes by `factor` to the power 1 + steepness · excess. 0: always by `factor`."""
    reaction: Annotated[float, In("[0, 100]")] = 5.0
    """Immediate response to the relative excess, at most 1 either way: an update uses λ · exp(reaction · excess). It
    damps the swings of a λ that only accumulates, and holds a policy back at once that finds a way through the hazard.
    0: an update uses λ itself."""
    tolerance: Annotated[float, In("[1, 100]")] = 1.1
    """Tolerance of the adaptive schedule: λ rests while the value lies between target / tolerance and the
    target."""
    rate: Annotated[float, In("[0, 1e9]")] = 0.05
    """Step size of dual ascent. The relative excess is clipped to ±1, so λ changes by at most this much at a time."""
    excess: Literal["relative", "absolute"] = "relative"
    """Units of λ. relative: as above. absolute: as in the paper, cost and constraint are summed in their own units, and
    dual ascent follows the plain excess over the target."""
    floor: Annotated[float, In("[0, 1e9]")] = 0.05
    """Lower bound of λ. A multiplier that shrinks to nothing takes too long to grow back."""
    cap: Annotated[float, In("(0, inf]")] = 50.0
    """Upper bound of λ. With a limit that cannot be met λ would grow forever and the cost would be ignored. inf: no
    bound, for dual ascent only."""
    margin: Annotated[float, In("[0, 1)")] = 0.1
    """Safety margin: on the model the value is held this share below the target, since the model errs. It is
    widened while policies look too unsafe to act."""
    slack: Annotated[float, In("[0, 100]")] | None = 0.3
    """For a limit that cannot be met: the target is the least value that the model can reach plus this share of it, and
    a notice says so. None: pursue the limit until λ reaches its cap."""

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Yield what is out of order, or would leave λ at 0 or let it grow beyond all bounds."""
        if self.floor > self.initial:
            yield "floor", f"at most initial = {self.initial}"
        if self.initial > self.cap:
            yield "initial", f"at most cap = {self.cap}"
        if self.schedule == "adaptive" and math.isinf(self.cap):
            yield "cap", "finite with the adaptive schedule, under which λ grows exponentially"
        if self.schedule == "adaptive" and self.initial == 0:
            yield "initial", "above 0 with the adaptive schedule, which multiplies it"
