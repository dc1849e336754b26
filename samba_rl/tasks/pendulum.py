"""Safe Pendulum: Gymnasium's Pendulum-v1 with an unsafe range of angles next to upright."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, final

import torch
from torch import Generator, Tensor

from samba_rl.tasks.hazard import AngleHazard, wrap
from samba_rl.tasks.task import Quantity, Task
from samba_rl.tasks.world import EquationsWorld, World

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRAVITY = 10.0
"""Gravitational acceleration [m/s²]."""
MASS = 1.0
"""Mass of the rod [kg]."""
LENGTH = 1.0
"""Length of the rod [m]."""
MAX_SPEED = 8.0
"""Bound of the angular velocity [rad/s]."""
MAX_TORQUE = 2.0
"""Bound of the torque [Nm]."""
BALANCED_COST = 0.01
"""Cost that the last `done_window` steps must not exceed for the episode to end."""


@final
@dataclass(frozen=True, kw_only=True)
class SafePendulum(Task):
    """A pendulum to swing up and balance with a torque that is too weak to lift it directly.

    The state is (θ, θ̇), with θ = 0 upright; θ is not wrapped, so that trajectories stay continuous. States and
    observations are stored column by column, which is several times faster than row by row.
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
    """Unsafe and hazard region of θ [rad]."""

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw n start states [n, 2], uniform over all angles and speeds within ±1 rad/s."""
        device = "cpu" if generator is None else generator.device
        x = torch.empty(n, 2, device=device, dtype=dtype).uniform_(-1, 1, generator=generator)
        x[:, 0].mul_(math.pi)
        return x

    def observe(self, x: Tensor) -> Tensor:
        """Return (cos θ, sin θ, θ̇) [B, 3], as Pendulum-v1 does."""
        angle, speed = x.unbind(-1)
        return torch.stack([angle.cos(), angle.sin(), speed]).movedim(0, -1)

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """Return (cos θ, sin θ, θ̇, torque) [B, 4]."""
        return torch.cat([self.observe(x), u], dim=-1)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        """Return θ² + 0.1 θ̇² + 0.001 u² [B], with θ in [-π, π]."""
        angle, speed = x.unbind(-1)
        torque = u[..., 0]
        return wrap(angle).square_().addcmul_(speed, speed, value=0.1).addcmul_(torque, torque, value=0.001)

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the safety costs [B, 1] of the angles."""
        return self.hazard.safety(x[..., :1])

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        return self.hazard.violation(safety)

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """Return [B] (bool), True where the pendulum has been balanced for `done_window` steps."""
        return recent.amax(-1) <= BALANCED_COST

    def hazard_in_words(self) -> str:
        """Describe the unsafe and the hazard angles."""
        return f"θ: {self.hazard.describe()}"

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        angle, speed = x.unbind(-1)
        acceleration = angle.sin().mul_(3 * GRAVITY / (2 * LENGTH)).add_(u[..., 0], alpha=3 / (MASS * LENGTH**2))
        speed = speed.add(acceleration, alpha=self.dt).clamp_(-MAX_SPEED, MAX_SPEED)
        return torch.stack([angle.add(speed, alpha=self.dt), speed]).T

    def world(self, workers: int | None = None) -> World:
        """Return a world that runs the equations of motion."""
        return EquationsWorld(self, self.draw)

    def draw(self, x: Tensor, u: Tensor | None, size: int) -> NDArray[np.uint8]:
        """Draw state x [2] over the unsafe (red) and the hazard (orange) sector: [size, size, 3]."""
        from samba_rl.tasks.render.drawing import draw_pendulum

        return draw_pendulum(
            float(x[0]),
            None if u is None else float(u[0]),
            unsafe=self.hazard.unsafe,
            hazard=self.hazard.region,
            size=size,
        )
