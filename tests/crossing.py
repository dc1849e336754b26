"""A point that must cross a slab to reach its goal: leap across a narrow one, stop before a wide one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from samba_rl.tasks.hazard import tent
from samba_rl.tasks.task import Quantity, Task
from samba_rl.tasks.world import EquationsWorld, World

STEP = 0.25
"""Longest step."""


@final
@dataclass(frozen=True, kw_only=True)
class Crossing(Task):
    """A point starts at 0, and its goal within 0.2 to 1 on either side; the middle half of the way is unsafe.

    At full speed a crossing costs about (half width of the slab) / STEP, which is between 0.2 and 1; to stop before
    the slab costs nothing, but leaves the point three quarters of the way from its goal.
    """

    name: str = "crossing"
    title: str = "Crossing"
    states: tuple[Quantity, ...] = (Quantity("x"), Quantity("goal"))
    observations: tuple[Quantity, ...] = states
    actions: tuple[Quantity, ...] = (Quantity("move", "", -1.0, 1.0),)
    constraints: tuple[str, ...] = ("slab",)
    predicted: tuple[int, ...] = (0,)
    horizon: int = 10
    dt: float = 0.1
    reach: float = 0.0
    """Distance from the goal within which an episode ends; 0: only the horizon ends it."""

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        device = "cpu" if generator is None else generator.device
        unit = 2 * torch.rand(n, generator=generator, device=device, dtype=dtype) - 1
        return torch.stack([torch.zeros_like(unit), unit.sign() * (0.2 + 0.8 * unit.abs())], dim=-1)

    def observe(self, x: Tensor) -> Tensor:
        return x

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat([x[..., :1], u], dim=-1)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        return (x[..., 0] - x[..., 1]).abs()

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        centre, half_width = x[..., 1] / 2, x[..., 1].abs() / 4
        return tent((x[..., 0] - centre).abs() / half_width)[..., None]

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        return safety > 0

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        return (x[..., 0] - x[..., 1]).abs() < self.reach

    def hazard_in_words(self) -> str:
        return "x: the middle half of the way from 0 to the goal"

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.stack([x[..., 0] + STEP * u[..., 0], x[..., 1]], dim=-1)

    def world(self, workers: int | None = None) -> World:
        return EquationsWorld(self, lambda x, u, size: None)  # type: ignore[arg-type,return-value]
