"""What is minimised: functions from traces to a value for each step [B, T]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.types import Traces

ObjectiveName = Literal["cost", "information", "safety"]
Objective = Callable[[Traces], Tensor]


def cost(traces: Traces) -> Tensor:
    """What the steps cost."""
    return traces.cost


def information(traces: Traces) -> Tensor:
    """-ζ: what the steps would teach, negative because it is minimised."""
    if traces.zeta is None:
        raise UserError("these traces carry no ζ; information is gained on a model that was asked for it")
    return -traces.zeta


def safety(traces: Traces) -> Tensor:
    """What the steps cost in safety, all constraints together."""
    return traces.safety.sum(-1)


OBJECTIVES: dict[ObjectiveName, Objective] = {"cost": cost, "information": information, "safety": safety}
