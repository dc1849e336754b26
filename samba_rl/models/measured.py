"""Costs that a task only measures: a model learns them beside the dynamics, as further outputs of the same inputs.

An imagined cost is the value of the learned function, which is uncertain where little has been measured. The noise of a
measurement is left out, because it averages out along a trajectory. Where the data are at least zero, so is what is
imagined, and a value smaller than the error of the model counts as zero: functions drawn from the posterior ripple
around zero, and every ripple would be a violation. A cost that was always the same is imagined as just that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from samba_rl.tasks.task import Task
    from samba_rl.types import Transitions


def measured_costs(task: Task, transitions: Transitions) -> Tensor:
    """Return the measured costs of n steps [n, k], in the order of `Task.measured`."""
    cost = [] if task.known_cost else [transitions.cost[:, None]]
    safety = [] if task.known_safety else [transitions.safety]
    return torch.cat([transitions.x[:, :0], *cost, *safety], dim=1)


@final
@dataclass(frozen=True)
class Plausible:
    """What values an imagined cost can have, in the light of the measured ones."""

    low: Tensor
    """Lower bounds [k]: zero where no measured cost was negative."""
    high: Tensor
    """Upper bounds [k]: infinite unless all measured costs were the same."""
    least: Tensor
    """Smallest costs that can be told from zero [k], where no measured cost was negative."""

    @staticmethod
    def of(measured: Tensor, errors: Tensor) -> Plausible:
        """Judge by measured costs [n, k], and by how much they miss their predictions when left out [l, k]."""
        low, high = measured.amin(0), measured.amax(0)
        rounding = 1e-9 * torch.maximum(low.abs(), high.abs())
        constant, positive = high - low <= rounding, low >= -rounding
        nothing = torch.zeros_like(low)
        return Plausible(
            low=torch.where(constant, low, torch.where(positive, nothing, nothing - torch.inf)),
            high=torch.where(constant, low, nothing + torch.inf),
            least=torch.where(positive & ~constant, errors.square().mean(0).sqrt(), nothing - torch.inf),
        )

    def __call__(self, costs: Tensor) -> Tensor:
        """Return imagined costs [B, k] as they can be."""
        return costs.where(costs > self.least, 0.0).clamp(self.low, self.high)


def unknown(task: Task, plausible: Plausible, transitions: Transitions) -> list[str]:
    """Return a sentence about each measured cost that was always the same, and about ends that the task cannot tell."""
    sentences = []
    for name, low, high in zip(task.measured, plausible.low.tolist(), plausible.high.tolist(), strict=True):
        always = f"was {low:.4g} at every step so far"
        if low == high and name == "cost":
            sentences.append(f"the cost {always}: there is nothing to improve until a step costs something else")
        elif low == high:
            sentences.append(
                f"the safety cost '{name}' {always}: the model knows of no danger, and a limit restrains nothing, "
                "until a step measures another value. Earlier data, or a function safety=..., would tell it before"
            )
    ends = transitions.x_next[transitions.terminated]
    theirs = not task.known_dynamics and not task.done_window
    if theirs and len(ends) and not bool(task.done(ends, ends[:, :0]).any()):
        count = f"{len(ends)} episode{'s' * (len(ends) > 1)}"
        sentences.append(
            f"the system itself has ended {count}, but imagined ones go on there; tell with done=... in which states "
            "an episode ends"
        )
    return sentences
