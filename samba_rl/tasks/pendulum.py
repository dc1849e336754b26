"""Safe Pendulum: Gymnasium's Pendulum-v1 with an unsafe range of angles beside upright."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, final

import torch
from torch import Generator, Tensor

from samba_rl.tasks.hazard import AngleHazard, wrap
from samba_rl.tasks.task import EquationsWorld, Quantity, Task, World

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRAVITY = 10.0
"""[m/s²]"""
MASS = 1.0
"""[kg]"""
LENGTH = 1.0
"""[m]"""
MAX_SPEED = 8.0
"""[rad/s]"""
MAX_TORQUE = 2.0
"""[Nm]"""
BALANCED_COST = 0.01
"""An episode ends once the latest `done_window` costs are all at most this."""


@final
@dataclass(frozen=True, kw_only=True)
class SafePendulum(Task):
    """A pendulum to swing up and balance with a torque too weak to lift it. Angle 0 is upright.

    State (θ, θ̇); the angle is not wrapped, so that trajectories stay continuous. States and observations are stacked
    column by column in memory, which is several times faster than row by row.
    """

    name: str = "safe-pendulum"
    title: str = "Safe Pendulum"
    states: tuple[Quantity, ...] = (Quantity("θ", "rad"), Quantity("θ̇", "rad/s", -MAX_SPEED, MAX_SPEED))
    observations: tuple[Quantity, ...] = (
        Quantity("cos θ", "", -1.0, 1.0),
        Quantity("sin θ", "", -1.0, 1.0),
        Quantity("θ̇", "rad/s", -MAX_SPEED, MAX_SPEED),
    )
    actions: tuple[Quantity, ...] = (Quantity("torque", "Nm", -MAX_TORQUE, MAX_TORQUE),)
    constraints: tuple[str, ...] = ("hazard",)
    predicted: tuple[int, ...] = (0, 1)
    dt: float = 0.05
    cost_of: Literal["departure", "arrival"] = "departure"
    done_window: int = 5
    hazard: AngleHazard = field(default_factory=AngleHazard)

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Any angle, speed within ±1 rad/s, both uniform: [n, 2]."""
        device = "cpu" if generator is None else generator.device
        x = torch.empty(n, 2, device=device, dtype=dtype).uniform_(-1, 1, generator=generator)
        x[:, 0].mul_(math.pi)
        return x

    def observe(self, x: Tensor) -> Tensor:
        """(cos θ, sin θ, θ̇) [B, 3], as Pendulum-v1."""
        angle, speed = x.unbind(-1)
        return torch.stack([angle.cos(), angle.sin(), speed]).movedim(0, -1)

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """(cos θ, sin θ, θ̇, torque) [B, 4]."""
        return torch.cat([self.observe(x), u], dim=-1)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        """θ² + 0.1 θ̇² + 0.001 u² with θ in [-π, π]: [B]."""
        angle, speed = x.unbind(-1)
        torque = u[..., 0]
        return wrap(angle).square_().addcmul_(speed, speed, value=0.1).addcmul_(torque, torque, value=0.001)

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """How deep the angle is in the hazard: [B, 1]."""
        return self.hazard.safety(x[..., :1])

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        return self.hazard.violation(safety)

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """Whether the pendulum has been balanced for five steps: [B]."""
        return recent.amax(-1) <= BALANCED_COST

    def hazard_in_words(self) -> str:
        """The unsafe angles."""
        return f"θ: {self.hazard.describe()}"

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        angle, speed = x.unbind(-1)
        acceleration = angle.sin().mul_(3 * GRAVITY / (2 * LENGTH)).add_(u[..., 0], alpha=3 / (MASS * LENGTH**2))
        speed = speed.add(acceleration, alpha=self.dt).clamp_(-MAX_SPEED, MAX_SPEED)
        return torch.stack([angle.add(speed, alpha=self.dt), speed]).T

    def world(self, workers: int | None = None) -> World:
        """The equations themselves."""
        return EquationsWorld(self, self.draw)

    def draw(self, x: Tensor, u: Tensor | None, size: int) -> NDArray[np.uint8]:
        """A picture [size, size, 3] of x [2]: the pendulum over its unsafe (red) and hazard (orange) sector."""
        from samba_rl.tasks.render.drawing import draw_pendulum

        return draw_pendulum(
            float(x[0]),
            None if u is None else float(u[0]),
            unsafe=self.hazard.unsafe,
            hazard=self.hazard.region,
            size=size,
        )
