"""Limits on the safety cost: the constrained value, its per-step decomposition, and what a critic of it must see.

The policy gradient of a function f of a trajectory's safety cost weighs the whole trajectory by f. These constraints
decompose f into its growth along the trajectory instead. The growth sums to f, so the gradient keeps its expectation,
and what happened before an action drops out of that action's weight, so its variance is smaller. Together with the
amount accumulated so far (`progress`) the growth is Markovian, and a critic can learn it, for CVaR too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from samba_rl.errors import UserError, did_you_mean
from samba_rl.improve.limits import ConstraintSettings
from samba_rl.improve.results import ConstraintResult, Estimate
from samba_rl.types import Traces


@dataclass(frozen=True, kw_only=True)
class Constraint(ABC):
    """One limit on one safety cost."""

    label: ClassVar[str]
    name: str
    """Name of the safety cost."""
    limit: float
    """Limit on the value."""
    column: int = 0
    """Column of the safety cost in the traces."""
    per_step: bool = False
    """Whether the value is a mean over the steps of the horizon instead of a sum over the trajectory."""
    gamma: float = 1.0
    """Discount of the safety cost."""

    @staticmethod
    @abstractmethod
    def make(settings: ConstraintSettings, name: str, column: int) -> Constraint:
        """Make the constraint that the settings describe, for the safety cost in a column of the traces."""

    @abstractmethod
    def amounts(self, traces: Traces) -> Tensor:
        """Return the constrained amount of each trajectory [B]."""

    @abstractmethod
    def value(self, amounts: Tensor) -> Tensor:
        """Return the value to hold under the limit, from the trajectories' amounts [B]."""

    @abstractmethod
    def contributions(self, amounts: Tensor) -> Tensor:
        """Return what each trajectory contributes to the value, from the amounts [B]; their mean is the value."""

    @abstractmethod
    def growth(self, traces: Traces, among: Traces | None = None) -> Tensor:
        """Return by how much each step raises its trajectory's contribution to the value [B, T].

        That is the value of the traces `among`; None: of these.
        """

    @abstractmethod
    def progress(self, traces: Traces, among: Traces | None = None) -> Tensor:
        """Return what a critic of `growth` must see beside the state: the amount before each step [B, T]."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Return a short label, such as "CVaR 0.9"."""

    @abstractmethod
    def in_words(self) -> str:
        """Describe the constrained value, such as "CVaR 0.9 of the hazard cost of a trajectory"."""

    @final
    def measure(self, traces: Traces) -> float:
        """Return the value on these traces."""
        return float(self.value(self.amounts(traces)))

    @final
    def result(self, amounts: Tensor) -> ConstraintResult:
        """Return the value of amounts [B] beside the limit."""
        return ConstraintResult(self.kind, self.in_words(), float(self.value(amounts)), self.limit)

    @final
    def _share(self, traces: Traces) -> float:
        """Return the weight of one step's safety cost."""
        return 1 / traces.cost.shape[1] if self.per_step else 1.0

    @final
    def _costs(self, traces: Traces) -> Tensor:
        """Return the discounted safety cost of each step [B, T]."""
        costs = traces.safety[..., self.column]
        return costs * self.gamma ** torch.arange(costs.shape[1], device=costs.device, dtype=costs.dtype)

    @final
    def _before(self, steps: Tensor) -> Tensor:
        """Return the sums of values [B, T] over all earlier steps [B, T]."""
        return steps.cumsum(1) - steps

    @final
    def _cost_in_words(self) -> str:
        kind = "" if self.gamma == 1 else "discounted "
        return f"the {kind}{self.name} cost " + ("per step" if self.per_step else "of a trajectory")


@final
@dataclass(frozen=True, kw_only=True)
class Expectation(Constraint):
    """E[L] ≤ limit."""

    label: ClassVar[str] = "expectation"

    @staticmethod
    def make(settings: ConstraintSettings, name: str, column: int) -> Expectation:
        """Make the constraint that the settings describe."""
        per_step, gamma = settings.per == "step", settings.gamma
        return Expectation(name=name, limit=settings.limit, column=column, per_step=per_step, gamma=gamma)

    def amounts(self, traces: Traces) -> Tensor:
        """Return the safety costs of the trajectories [B]."""
        return self._costs(traces).sum(1) * self._share(traces)

    def value(self, amounts: Tensor) -> Tensor:
        """Return the mean."""
        return amounts.mean()

    def contributions(self, amounts: Tensor) -> Tensor:
        """Return the amounts themselves [B]."""
        return amounts

    def growth(self, traces: Traces, among: Traces | None = None) -> Tensor:  # noqa: ARG002
        """Return the safety cost of each step [B, T]."""
        return self._costs(traces) * self._share(traces)

    def progress(self, traces: Traces, among: Traces | None = None) -> Tensor:  # noqa: ARG002
        """Return zeros [B, T]: the expected cost to go depends on the state alone."""
        return torch.zeros_like(traces.cost)

    @property
    def kind(self) -> str:
        """Return a short label."""
        return "mean"

    def in_words(self) -> str:
        """Describe the mean."""
        return f"mean of {self._cost_in_words()}"


@final
@dataclass(frozen=True, kw_only=True)
class CVaR(Constraint):
    """CVaR_α(L) = min over ν of ν + E[(L - ν)⁺] / (1 - α) ≤ limit: the mean of the worst share 1 - α."""

    label: ClassVar[str] = "cvar"
    alpha: float = 0.9
    """Level α."""
    nu_floor: float = 0.0
    """Lower bound of ν in the gradient, as a share of the limit."""
    nu_ceiling: float = math.inf
    """Upper bound of ν in the gradient, as a share of the limit."""

    @staticmethod
    def make(settings: ConstraintSettings, name: str, column: int) -> CVaR:
        """Make the constraint that the settings describe."""
        s, per = settings, settings.per == "step"
        return CVaR(
            name=name, limit=s.limit, column=column, per_step=per, gamma=s.gamma, alpha=s.alpha, nu_floor=s.nu_floor,
            nu_ceiling=s.nu_ceiling,
        )  # fmt: skip

    def amounts(self, traces: Traces) -> Tensor:
        """Return the safety costs of the trajectories [B]."""
        return self._costs(traces).sum(1) * self._share(traces)

    def nu(self, amounts: Tensor) -> Tensor:
        """Return ν, the α-quantile of amounts [B]: the least one that a share α of them does not exceed."""
        rank = min(max(math.ceil(self.alpha * len(amounts) - 1e-9), 1), len(amounts))
        return amounts.kthvalue(rank).values

    def value(self, amounts: Tensor) -> Tensor:
        """Return ν + mean((L - ν)⁺) / (1 - α)."""
        nu = self.nu(amounts)
        return nu + (amounts - nu).clamp(min=0).mean() / (1 - self.alpha)

    def contributions(self, amounts: Tensor) -> Tensor:
        """Return ν + (L - ν)⁺ / (1 - α) of each trajectory [B]."""
        nu = self.nu(amounts)
        return nu + (amounts - nu).clamp(min=0) / (1 - self.alpha)

    def growth(self, traces: Traces, among: Traces | None = None) -> Tensor:
        """Return by how much each step raises (L - ν)⁺ / (1 - α) [B, T], with the ν of `among`."""
        steps = self._costs(traces) * self._share(traces)
        nu = self._held_nu(traces if among is None else among)
        after = (steps.cumsum(1) - nu).clamp(min=0)
        return torch.diff(after, dim=1, prepend=torch.zeros_like(after[:, :1])) / (1 - self.alpha)

    def progress(self, traces: Traces, among: Traces | None = None) -> Tensor:
        """Return the distance of the trajectory from ν, in units of ν (or of the limit, if ν is smaller) [B, T]."""
        steps = self._costs(traces) * self._share(traces)
        nu = self._held_nu(traces if among is None else among)
        return (self._before(steps) - nu) / nu.clamp(min=self.limit or 1e-6)

    @property
    def kind(self) -> str:
        """Return a short label."""
        return f"CVaR {self.alpha:g}"

    def in_words(self) -> str:
        """Describe the tail."""
        return f"{self.kind} of {self._cost_in_words()}"

    def _held_nu(self, traces: Traces) -> Tensor:
        """Return the ν that stays fixed while the policy moves."""
        steps = self._costs(traces) * self._share(traces)
        ceiling = self.nu_ceiling * self.limit if self.limit > 0 else math.inf
        return self.nu(steps.sum(1)).clamp(min=self.nu_floor * self.limit, max=ceiling)


@final
@dataclass(frozen=True, kw_only=True)
class Chance(Constraint):
    """P(the trajectory enters the unsafe region) ≤ limit; per step, the share of steps inside it."""

    label: ClassVar[str] = "chance"

    @staticmethod
    def make(settings: ConstraintSettings, name: str, column: int) -> Chance:
        """Make the constraint that the settings describe."""
        return Chance(name=name, limit=settings.limit, column=column, per_step=settings.per == "step")

    def amounts(self, traces: Traces) -> Tensor:
        """Return whether each trajectory was unsafe, or its share of unsafe steps [B]."""
        unsafe = traces.violation[..., self.column]
        return unsafe.to(traces.cost).mean(1) if self.per_step else unsafe.any(1).to(traces.cost)

    def value(self, amounts: Tensor) -> Tensor:
        """Return the mean."""
        return amounts.mean()

    def contributions(self, amounts: Tensor) -> Tensor:
        """Return the amounts themselves [B]."""
        return amounts

    def growth(self, traces: Traces, among: Traces | None = None) -> Tensor:  # noqa: ARG002
        """Return one at the first unsafe step; per step, the step's share at each unsafe one [B, T]."""
        unsafe = traces.violation[..., self.column].to(traces.cost)
        return unsafe * self._share(traces) if self.per_step else unsafe * (self._before(unsafe) == 0)

    def progress(self, traces: Traces, among: Traces | None = None) -> Tensor:  # noqa: ARG002
        """Return whether the trajectory was unsafe before [B, T]."""
        unsafe = traces.violation[..., self.column].to(traces.cost)
        return torch.zeros_like(unsafe) if self.per_step else (self._before(unsafe) > 0).to(unsafe)

    @property
    def kind(self) -> str:
        """Return a short label."""
        return "share"

    def in_words(self) -> str:
        """Describe the probability."""
        return f"share of {'steps' if self.per_step else 'trajectories'} that are unsafe ({self.name})"


KINDS: dict[str, type[Constraint]] = {kind.label: kind for kind in (CVaR, Expectation, Chance)}
"""Kinds of constraints, by the word that files and flags use."""


def estimate(constraint: Constraint, traces: Traces) -> Estimate:
    """Return the value of a constraint on independent traces, with its standard error."""
    each = constraint.contributions(constraint.amounts(traces))
    return Estimate(float(each.mean()), float(each.std()) / math.sqrt(len(each)))


def bind(kind: type[Constraint], settings: ConstraintSettings, names: tuple[str, ...]) -> tuple[Constraint, ...]:
    """Make a constraint for the safety cost that the settings name, or for each of the system's `names`."""
    if settings.of and settings.of not in names:
        raise UserError(f"no safety cost is called '{settings.of}'; {did_you_mean(settings.of, names)}")
    return tuple(
        kind.make(settings, name, column) for column, name in enumerate(names) if settings.of in ("", name)
    )  # fmt: skip
