"""How much of a model's noise is measurement noise, which does not move the system.

A model is fitted to the differences of successive measurements. An error ε of one measurement enters two of them with
opposite signs, -ε now and +ε before, so the residuals of successive steps are correlated by -½ where all noise is
measurement noise, and not at all where it moves the system.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

if TYPE_CHECKING:
    from samba_rl.models.posterior import Posterior
    from samba_rl.tasks.task import Task

SIGNIFICANT = 2.0
"""Standard errors that a correlation must differ from zero by."""


@final
@dataclass(frozen=True)
class ImaginedNoise:
    """The noise of imagined steps, as variances in the units of the outputs."""

    motion: Tensor
    """Noise that moves the system, by output [D]; none on measured costs."""
    measured: Tensor | None
    """Noise of the measurements of the predicted columns of the state; None if all noise moves the system."""

    @staticmethod
    def of(noise: Tensor, share: Tensor | None, columns: int) -> ImaginedNoise:
        """Split the noise [D] by the share of measurement noise [D]; the first `columns` outputs move the state."""
        moving = torch.arange(len(noise), device=noise.device) < columns
        if share is None:
            return ImaginedNoise(noise * moving, None)
        each = share.to(noise)
        return ImaginedNoise(noise * (1 - each) * moving, (noise * each / 2)[:columns])

    def measure(self, task: Task, earlier: Tensor, x: Tensor, normal: Tensor) -> Tensor:
        """Return states x [B, nx] as measured, with what was measured `earlier` in the columns that are not predicted.

        `normal` [B, nx] are standard normal numbers.
        """
        assert self.measured is not None
        measured, columns = earlier.clone(), list(task.predicted)
        measured[:, columns] = x[:, columns] + self.measured.sqrt() * normal[:, columns]
        return measured


def share_of(posterior: Posterior, episode: Tensor) -> Tensor:
    """Return the share of measurement noise in the noise of each output [D], from steps with their `episode` [n]."""
    return measurement_share(posterior.loo_errors(), episode)


def measurement_share(errors: Tensor, episode: Tensor) -> Tensor:
    """Return the share of the noise variance of each output that is measurement noise [D].

    `errors` [n, D] are those of successive steps that were left out, with their `episode` [n]. Of fewer errors than
    steps nothing can be told: then the share is zero.
    """
    if len(errors) != len(episode):
        return torch.zeros_like(errors[0])
    together = (episode[1:] == episode[:-1]).to(errors)[:, None]
    count = max(1.0, float(together.sum()))
    variance = errors.square().mean(0)
    covariance = (errors[1:] * errors[:-1] * together).sum(0) / count
    correlation = torch.where(variance > 0, covariance / variance, 0.0)
    seen = -correlation > SIGNIFICANT / math.sqrt(count)
    return torch.where(seen, (-2 * correlation).clamp(0, 1), 0.0)
