"""Limits on the safety cost: what is constrained, its value, its gradient's step-by-step weights, its multiplier.

The policy gradient of a function f of a trajectory's amount weighs the whole trajectory by f. Here f's growth along the
trajectory is given instead, step by step: it sums to the same, and what happened before an action drops out of that
action's weight, which leaves the gradient's expectation as it was and makes its variance smaller. Together with what
has been incurred so far (`progress`) the growth is Markovian, so that a critic can learn it, also for CVaR.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, final, get_args

import torch
from torch import Tensor

from samba_rl.errors import UserError, did_you_mean
from samba_rl.types import State, Traces

Kind = Literal["none", "expectation", "cvar", "chance"]


@dataclass(frozen=True)
class ConstraintSettings:
    """A limit on the safety cost."""

    kind: Kind = "cvar"
    """cvar: the mean of the worst share 1 - α of the trajectories. expectation: the mean of all. chance: the share of
    trajectories that enter the unsafe region (per step: of steps inside it). none: no limit."""
    limit: float = 0.75
    """ξ."""
    per: Literal["trajectory", "step"] = "trajectory"
    """Whether the limit is on the sum over a trajectory or on the mean over the steps of the horizon."""
    alpha: float = 0.9
    """α of CVaR."""
    nu_floor: float = 0.0
    """For the gradient of CVaR, ν is at least this share of the limit: trajectories that cost less are left alone, even
    while nearly all cost nothing. Any ν bounds CVaR from above, so this errs on the safe side. 0: the quantile."""
    of: str = ""
    """The name of the safety cost; empty: the system's only one, or each of them."""

    def __post_init__(self) -> None:
        for what, given, known in (("kind", self.kind, get_args(Kind)), ("per", self.per, ("trajectory", "step"))):
            if given not in known:
                raise UserError(f"a constraint's {what} is '{given}'; {did_you_mean(given, known)}")
        if not (math.isfinite(self.limit) and self.limit >= 0):
            raise UserError(f"a constraint's limit is {self.limit}; give a number of at least 0")
        if not 0 <= self.alpha < 1:
            raise UserError(f"a constraint's α is {self.alpha}; it lies in [0, 1)")
        if not 0 <= self.nu_floor <= 1:
            raise UserError(f"a constraint's nu_floor is {self.nu_floor}; it lies in [0, 1]")


@dataclass(frozen=True, kw_only=True)
class Constraint(ABC):
    """One limit on one safety cost."""

    name: str
    limit: float
    column: int = 0
    """Which of the safety costs."""
    per_step: bool = False

    @abstractmethod
    def amounts(self, traces: Traces) -> Tensor:
        """What is constrained, of each trajectory [B]."""

    @abstractmethod
    def value(self, amounts: Tensor) -> Tensor:
        """What is held under the limit, from the trajectories' amounts [B]."""

    @abstractmethod
    def growth(self, traces: Traces) -> Tensor:
        """For each step, by how much it raises what its trajectory contributes to the value [B, T]."""

    @abstractmethod
    def progress(self, traces: Traces) -> Tensor:
        """What a critic of `growth` must know beside the state: what was incurred before each step [B, T]."""

    @abstractmethod
    def in_words(self) -> str:
        """As "CVaR 0.9 of the trajectory's hazard cost"."""

    @final
    def measure(self, traces: Traces) -> float:
        """The value on these traces."""
        return float(self.value(self.amounts(traces)))

    @final
    def _share(self, traces: Traces) -> float:
        """What a step's safety cost counts."""
        return 1 / traces.cost.shape[1] if self.per_step else 1.0

    @final
    def _before(self, steps: Tensor) -> Tensor:
        """Sums of values [B, T] over the earlier steps [B, T]."""
        return steps.cumsum(1) - steps

    @final
    def _what(self) -> str:
        return f"the {self.name} cost " + ("per step" if self.per_step else "of a trajectory")


@final
@dataclass(frozen=True, kw_only=True)
class Expectation(Constraint):
    """E[L] ≤ limit."""

    def amounts(self, traces: Traces) -> Tensor:
        """Safety costs [B]."""
        return traces.safety[..., self.column].sum(1) * self._share(traces)

    def value(self, amounts: Tensor) -> Tensor:
        """Their mean."""
        return amounts.mean()

    def growth(self, traces: Traces) -> Tensor:
        """The safety cost of each step."""
        return traces.safety[..., self.column] * self._share(traces)

    def progress(self, traces: Traces) -> Tensor:
        """Nothing: the expected cost to go depends on the state alone."""
        return torch.zeros_like(traces.cost)

    def in_words(self) -> str:
        """The mean."""
        return f"mean of {self._what()}"


@final
@dataclass(frozen=True, kw_only=True)
class CVaR(Constraint):
    """CVaR_α(L) = min over ν of ν + E[(L - ν)⁺] / (1 - α) ≤ limit: the mean of the worst share 1 - α."""

    alpha: float = 0.9
    nu_floor: float = 0.0
    """For the gradient, ν is at least this share of the limit."""

    def amounts(self, traces: Traces) -> Tensor:
        """Safety costs [B]."""
        return traces.safety[..., self.column].sum(1) * self._share(traces)

    def nu(self, amounts: Tensor) -> Tensor:
        """ν: the α-quantile of amounts [B], the least one that a share α of them does not exceed."""
        rank = min(max(math.ceil(self.alpha * len(amounts) - 1e-9), 1), len(amounts))
        return amounts.kthvalue(rank).values

    def value(self, amounts: Tensor) -> Tensor:
        """ν + mean((L - ν)⁺) / (1 - α)."""
        nu = self.nu(amounts)
        return nu + (amounts - nu).clamp(min=0).mean() / (1 - self.alpha)

    def _held_nu(self, steps: Tensor) -> Tensor:
        """The ν that is held fixed while the policy moves, from what the steps cost [B, T]."""
        return self.nu(steps.sum(1)).clamp(min=self.nu_floor * self.limit)

    def growth(self, traces: Traces) -> Tensor:
        """By how much a step raises (L - ν)⁺ / (1 - α)."""
        steps = traces.safety[..., self.column] * self._share(traces)
        nu = self._held_nu(steps)
        after = (steps.cumsum(1) - nu).clamp(min=0)
        return torch.diff(after, dim=1, prepend=torch.zeros_like(after[:, :1])) / (1 - self.alpha)

    def progress(self, traces: Traces) -> Tensor:
        """How far the trajectory is from ν, in units of ν (or of the limit, where ν is smaller)."""
        steps = traces.safety[..., self.column] * self._share(traces)
        nu = self._held_nu(steps)
        return (self._before(steps) - nu) / nu.clamp(min=max(self.limit, 1e-6))

    def in_words(self) -> str:
        """The tail."""
        return f"CVaR {self.alpha:g} of {self._what()}"


@final
@dataclass(frozen=True, kw_only=True)
class Chance(Constraint):
    """P(the trajectory enters the unsafe region) ≤ limit; per step: the share of steps inside it."""

    def amounts(self, traces: Traces) -> Tensor:
        """Whether each trajectory was unsafe, or its share of unsafe steps [B]."""
        unsafe = traces.violation[..., self.column]
        return unsafe.to(traces.cost).mean(1) if self.per_step else unsafe.any(1).to(traces.cost)

    def value(self, amounts: Tensor) -> Tensor:
        """Their mean."""
        return amounts.mean()

    def growth(self, traces: Traces) -> Tensor:
        """One at the first unsafe step; per step, its share at each."""
        unsafe = traces.violation[..., self.column].to(traces.cost)
        return unsafe * self._share(traces) if self.per_step else unsafe * (self._before(unsafe) == 0)

    def progress(self, traces: Traces) -> Tensor:
        """Whether the trajectory was unsafe before."""
        unsafe = traces.violation[..., self.column].to(traces.cost)
        return torch.zeros_like(unsafe) if self.per_step else (self._before(unsafe) > 0).to(unsafe)

    def in_words(self) -> str:
        """The probability."""
        return f"share of {'steps' if self.per_step else 'trajectories'} that are unsafe ({self.name})"


def make_constraints(settings: tuple[ConstraintSettings, ...], names: tuple[str, ...]) -> tuple[Constraint, ...]:
    """The constraints of a system whose safety costs have these names."""
    made: list[Constraint] = []
    for one in settings:
        if one.kind == "none":
            continue
        if one.of and one.of not in names:
            raise UserError(f"no safety cost is called '{one.of}'; {did_you_mean(one.of, names)}")
        for column, name in enumerate(names):
            if one.of in ("", name):
                per_step = one.per == "step"
                if one.kind == "cvar":
                    tail = CVaR(name=name, limit=one.limit, column=column, per_step=per_step, alpha=one.alpha)
                    made.append(replace(tail, nu_floor=one.nu_floor))
                else:
                    kind = Expectation if one.kind == "expectation" else Chance
                    made.append(kind(name=name, limit=one.limit, column=column, per_step=per_step))
    return tuple(made)


@dataclass(frozen=True)
class MultiplierSettings:
    """λ: how heavily a constraint weighs against the cost. Its unit is the mean cost of a step in the first trials."""

    schedule: Literal["adaptive", "dual-ascent"] = "adaptive"
    """adaptive: as PPO's penalty, times or over `factor` when the value leaves the limit's neighbourhood. dual-ascent:
    up by `rate` times the relative excess."""
    initial: float = 0.5
    factor: float = 1.05
    """Of the adaptive schedule."""
    tolerance: float = 1.1
    """Of the adaptive schedule: λ rests while the value lies between the target and the target over this."""
    rate: float = 0.05
    """Of dual ascent; the excess counts as at most ±1, so that λ moves no faster than this."""
    floor: float = 0.05
    """λ never falls below this: what shrinks to nothing takes too long to come back."""
    cap: float = 50.0
    """λ never exceeds this: with a limit that cannot be met it would grow for ever, and the cost be forgotten."""
    margin: float = 0.15
    """On the model the value is held this share below the limit, since the real system differs from the model."""
    slack: float | None = 0.05
    """A limit that cannot be met is replaced by the least value that the model can reach and this share of it, and the
    user is told. None: it is pursued to the cap of λ."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.initial <= self.cap:
            raise UserError(
                f"a multiplier's floor = {self.floor}, initial = {self.initial} and cap = {self.cap} must be ordered"
            )
        if self.factor <= 1 or self.tolerance < 1 or not 0 <= self.margin < 1:
            raise UserError(
                f"a multiplier's factor = {self.factor} must exceed 1, its tolerance = {self.tolerance} be at least 1, "
                f"its margin = {self.margin} lie in [0, 1)"
            )


@final
class Multiplier:
    """λ of one constraint; the only thing here that holds state."""

    def __init__(self, settings: MultiplierSettings, limit: float) -> None:
        self.settings = settings
        self.limit = limit
        self.value = settings.initial
        self.least: float | None = None
        """The least value of the constraint that the model seems able to reach, once it has been estimated."""

    @property
    def infeasible(self) -> bool:
        """Whether the limit seems to lie below what can be reached."""
        return self.least is not None and self.least > self.limit

    @property
    def target(self) -> float:
        """What is aimed at: a little below the limit, or a little above the least value if the limit cannot be met."""
        aim = (1 - self.settings.margin) * self.limit
        if self.least is None or self.settings.slack is None:
            return aim
        return max(aim, (1 + self.settings.slack) * self.least) if self.infeasible else max(aim, self.least)

    def state_dict(self) -> State:
        """λ, and what is known of the limit."""
        return {"value": self.value, "least": self.least}

    def load_state_dict(self, state: State) -> None:
        """Go on as the one that gave this state would have."""
        self.value = float(state["value"])
        self.least = None if state["least"] is None else float(state["least"])

    def set(self, value: float) -> None:
        """Take a λ that was found elsewhere, up to the cap."""
        self.value = min(value, self.settings.cap)

    def update(self, measured: float) -> None:
        """Adapt λ to the measured value of the constraint; one that is not finite says nothing."""
        if not math.isfinite(measured):
            return
        settings, target = self.settings, self.target
        if settings.schedule == "adaptive":
            if measured > target:
                self.value *= settings.factor
            elif measured < target / settings.tolerance:
                self.value /= settings.factor
        else:
            # Both ways by at most `rate`: no memory of a long excess that would have to be worked off.
            self.value += settings.rate * min(1.0, max(-1.0, (measured - target) / max(target, 1e-6)))
        self.value = min(max(self.value, settings.floor), settings.cap)
