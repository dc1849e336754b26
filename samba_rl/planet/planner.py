"""The cross-entropy method: draw action sequences, rank them by cost, and draw again around the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, final

import torch
from torch import Generator, Tensor

from samba_rl.ranges import Count, In


@dataclass(frozen=True)
class PlannerSettings:
    """Planning of actions on a latent model, by the cross-entropy method."""

    candidates: Annotated[int, In("[2, 1e6]")] = 1000
    """Number of action sequences drawn in each iteration."""
    elites: Count = 100
    """Number of best sequences, from whose mean and standard deviation the next ones are drawn."""
    iterations: Annotated[int, In("[1, 1000]")] = 10
    """Iterations of drawing and ranking for each plan."""
    horizon: Annotated[int, In("[1, 10000]")] = 12
    """Number of steps that a plan looks ahead."""
    std: Annotated[float, In("(0, 100]")] = 1.0
    """Initial standard deviation of the actions, in half widths of their range."""
    warm_start: bool = True
    """Start each plan from the rest of the previous one. Otherwise start from the centre of the action range."""
    noise: Annotated[float, In("[0, 100]")] = 0.3
    """Standard deviation of the exploration noise added to actions in real trials, in half widths of their range."""

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Yield more elites than there are candidates."""
        if self.elites > self.candidates:
            yield "elites", f"at most candidates = {self.candidates}"


Judge = Callable[[Tensor], Tensor]
"""Function from action sequences [B, J, H, nu], in half widths of their range, to their costs [B, J]."""


@final
@dataclass(frozen=True)
class CEMPlanner:
    """Searches for the action sequence of least cost, for B systems at once.

    Actions are in half widths of their range from its centre, so that all of them lie within ±1.
    """

    settings: PlannerSettings

    @torch.no_grad()
    def __call__(self, judge: Judge, mean: Tensor, generator: Generator) -> Tensor:
        """Return a better plan [B, H, nu] than `mean` [B, H, nu]."""
        settings = self.settings
        systems, horizon, actions = mean.shape
        std = torch.full_like(mean, settings.std)
        shape = (systems, settings.candidates, horizon, actions)
        for _ in range(settings.iterations):
            noise = torch.randn(shape, generator=generator, device=mean.device, dtype=mean.dtype)
            drawn = noise.mul_(std[:, None]).add_(mean[:, None]).clamp_(-1, 1)
            # A sequence whose cost is not a number is the worst.
            cost = judge(drawn).nan_to_num(nan=math.inf, posinf=math.inf)
            best = cost.topk(settings.elites, dim=1, largest=False, sorted=False).indices
            elites = drawn.gather(1, best[:, :, None, None].expand(-1, -1, horizon, actions))
            mean = elites.mean(1)
            std = elites.std(1, correction=0)
        return mean


def shifted(plan: Tensor) -> Tensor:
    """Drop the first actions of plans [B, H, nu] and append the centre of the range at the end."""
    return torch.cat([plan[:, 1:], torch.zeros_like(plan[:, :1])], dim=1)
