"""Objectives: what a policy minimises, as frozen values that map traces to a number for each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, final

from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.types import Traces

if TYPE_CHECKING:
    from samba_rl.models.zeta import Zeta


class Objective(Protocol):
    """Something to minimise along trajectories."""

    label: ClassVar[str]

    def __call__(self, traces: Traces) -> Tensor:
        """Return the value of each step [B, T]; lower is better."""
        ...


@final
@dataclass(frozen=True)
class Cost:
    """The task's cost."""

    label: ClassVar[str] = "cost"

    def __call__(self, traces: Traces) -> Tensor:
        """Return the cost of each step [B, T]."""
        return traces.cost


@final
@dataclass(frozen=True)
class Information:
    """-ζ: the information that a step would add to the model, negative because objectives are minimised."""

    label: ClassVar[str] = "information"
    zeta: Zeta
    """Measure of information."""

    def __call__(self, traces: Traces) -> Tensor:
        """Return -ζ of each step [B, T]."""
        if traces.zeta is None:
            raise UserError("these traces carry no ζ; only a model that was asked for it measures information")
        return -traces.zeta


@final
@dataclass(frozen=True)
class Safety:
    """The safety cost itself, summed over all constraints; a planner weighs it against the cost."""

    label: ClassVar[str] = "safety"

    def __call__(self, traces: Traces) -> Tensor:
        """Return the safety cost of each step [B, T]."""
        return traces.safety.sum(-1)
