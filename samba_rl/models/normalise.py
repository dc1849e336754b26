"""From transitions to the normalised inputs and targets that a model is fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.measured import measured_costs
from samba_rl.types import Transitions

if TYPE_CHECKING:
    from samba_rl.tasks.task import Task

LARGEST = 1e18
"""Largest number that a model learns from: its square still fits into single precision."""

RIDGE = 1e-6
"""Weight of the prior of a trend's slopes against the data."""


@dataclass(frozen=True)
class Normaliser:
    """Shifts and scales columns to mean zero and standard deviation one; a constant column is only shifted."""

    mean: Tensor
    """Means of the columns [k]."""
    scale: Tensor
    """Standard deviations of the columns, 1 for constant ones [k]."""

    @staticmethod
    def of(values: Tensor) -> Normaliser:
        """Measure values [n, k]."""
        mean = values.mean(0)
        scale = (values - mean).square().mean(0).sqrt()
        negligible = scale <= 1e-12 * (1 + mean.abs())
        return Normaliser(mean, torch.where(negligible, torch.ones_like(scale), scale))

    def __call__(self, values: Tensor) -> Tensor:
        """Normalise values [..., k]."""
        return (values - self.mean) / self.scale

    def restored(self, values: Tensor) -> Tensor:
        """Return normalised values [..., k] in their own units."""
        return values * self.scale + self.mean

    def to(self, target: Tensor) -> Normaliser:
        """Return a copy on the device and in the dtype of `target`."""
        return Normaliser(self.mean.to(target), self.scale.to(target))


@dataclass(frozen=True)
class Trend:
    """The part of the targets that a straight line through the data explains; the model learns what is left."""

    rest: Normaliser
    """Shifts and scales what is left."""
    slope: Tensor
    """Change of each target per unit of each normalised input [ni, D]; 0 for a constant trend."""

    @staticmethod
    def of(inputs: Tensor, targets: Tensor, *, linear: int) -> Trend:
        """Fit the trend of targets [n, D] over normalised inputs [n, ni]; that of the first `linear` columns is linear.

        A weak prior keeps slopes near 0 that the data do not determine.
        """
        slope = targets.new_zeros(inputs.shape[1], targets.shape[1])
        if linear:
            centred = targets[:, :linear] - targets[:, :linear].mean(0)
            gram = inputs.T @ inputs + RIDGE * len(inputs) * torch.eye(inputs.shape[1]).to(inputs)
            slope[:, :linear] = torch.linalg.solve(gram, inputs.T @ centred)
        return Trend(Normaliser.of(targets - inputs @ slope), slope)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return what the trend leaves of targets [..., D] at normalised inputs [..., ni], normalised."""
        return self.rest(targets - inputs @ self.slope)

    def restored(self, inputs: Tensor, values: Tensor) -> Tensor:
        """Return normalised values [..., D] at normalised inputs [..., ni] in the units of the targets."""
        return self.rest.restored(values) + inputs @ self.slope

    @property
    def scale(self) -> Tensor:
        """Return the standard deviations of what is left [D]."""
        return self.rest.scale

    def to(self, target: Tensor) -> Trend:
        """Return a copy on the device and in the dtype of `target`."""
        return Trend(self.rest.to(target), self.slope.to(target))


def inputs_and_targets(task: Task, transitions: Transitions, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the model inputs [n, ni] and targets [n, D] in float64; raise UserError for unusable numbers.

    The targets are the changes of the predicted columns of the state, then the costs that are only measured.
    """
    if len(transitions) == 0:
        raise UserError(f"the model of {task.name} was given no transitions; give at least one")
    x, u, x_next = (t.to(device, torch.float64) for t in (transitions.x, transitions.u, transitions.x_next))
    inputs, changes = task.model_inputs(x, u), (x_next - x)[:, list(task.predicted)]
    costs = measured_costs(task, transitions).to(changes)
    for what, values in (("model inputs", inputs), ("changes of state", changes), ("measured costs", costs)):
        bad = ~(values.abs() <= LARGEST)
        if bool(bad.any()):
            row, column = (int(i) for i in bad.nonzero()[0])
            raise UserError(
                f"{task.name}: transition {row} of {len(values)} has {values[row, column].item()} in column "
                f"{column} of its {what}; remove transitions with values that are not finite or beyond {LARGEST:g}"
            )
    return inputs, torch.cat([changes, costs], dim=1)
