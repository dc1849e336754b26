"""The cross-entropy planner: action sequences drawn, judged, and drawn again around the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError


@dataclass(frozen=True)
class PlannerSettings:
    """How actions are planned on a latent model."""

    candidates: int = 1000
    """Action sequences that are judged in each iteration."""
    elites: int = 100
    """The best of them, whose mean and standard deviation the next ones are drawn from."""
    iterations: int = 10
    horizon: int = 12
    """Steps that a plan looks ahead."""
    std: float = 1.0
    """Standard deviation of the actions at first, in half widths of their range."""
    warm_start: bool = True
    """Whether a plan begins with what is left of the one before; else with the centre of the action range."""
    noise: float = 0.3
    """Standard deviation of what is added to actions while collecting, in half widths of their range."""

    def __post_init__(self) -> None:
        def check(name: str, fine: bool, must: str) -> None:
            if not fine:
                raise UserError(f"planner.{name} = {getattr(self, name)}; it must be {must}")

        check("candidates", self.candidates >= 2, "at least 2; the paper has 1000")
        check("elites", 1 <= self.elites <= self.candidates, f"between 1 and the {self.candidates} candidates")
        check("iterations", self.iterations >= 1, "at least 1; the paper has 10")
        check("horizon", self.horizon >= 1, "at least 1 step; the paper has 12")
        check("std", 0 < self.std < math.inf, "positive; 1 reaches all of the action range")
        check("noise", 0 <= self.noise < math.inf, "at least zero; 0.3 is usual")


Judge = Callable[[Tensor], Tensor]
"""Action sequences [B, J, H, nu], in half widths of their range, to what each costs [B, J]."""


@final
@dataclass(frozen=True)
class CEMPlanner:
    """Minimises what a judge says of action sequences, for B systems at once.

    Actions are in half widths of their range from its centre, so that all lie within ±1.
    """

    settings: PlannerSettings

    @torch.no_grad()
    def __call__(self, judge: Judge, mean: Tensor, generator: Generator) -> Tensor:
        """A better plan [B, H, nu] than `mean` [B, H, nu]."""
        settings = self.settings
        systems, horizon, actions = mean.shape
        std = torch.full_like(mean, settings.std)
        shape = (systems, settings.candidates, horizon, actions)
        for _ in range(settings.iterations):
            noise = torch.randn(shape, generator=generator, device=mean.device, dtype=mean.dtype)
            drawn = noise.mul_(std[:, None]).add_(mean[:, None]).clamp_(-1, 1)
            # What cannot be judged is the worst.
            cost = judge(drawn).nan_to_num(nan=math.inf, posinf=math.inf)
            best = cost.topk(settings.elites, dim=1, largest=False, sorted=False).indices
            elites = drawn.gather(1, best[:, :, None, None].expand(-1, -1, horizon, actions))
            mean = elites.mean(1)
            std = elites.std(1, correction=0)
        return mean


def shifted(plan: Tensor) -> Tensor:
    """What is left of plans [B, H, nu] once their first actions are taken, with the centre of the range at the end."""
    return torch.cat([plan[:, 1:], torch.zeros_like(plan[:, :1])], dim=1)
