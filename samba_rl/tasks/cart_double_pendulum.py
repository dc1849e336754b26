"""Safe Cart-Pole Double Pendulum: PILCO's cart with two links, swung up by a horizontal force.

Angles are absolute, zero upright and positive counter-clockwise; the links are thin rods of mass m and length l.
The equations of motion M(q) q̈ = f(q, q̇, u) for q = (x, θ₁, θ₂) follow from Lagrange's equations; `docs/systems.md`
derives them. With h₁ = 3ml/2, h₂ = ml/2, k = ml²/2, J₁ = 4ml²/3, J₂ = ml²/3 and δ = θ₁ - θ₂:

    ⎡  3m (cart + 2 links)   -h₁ cos θ₁   -h₂ cos θ₂ ⎤       ⎡ u - b ẋ - h₁ θ̇₁² sin θ₁ - h₂ θ̇₂² sin θ₂ ⎤
    ⎢     -h₁ cos θ₁             J₁         k cos δ   ⎥ q̈  =  ⎢       h₁ g sin θ₁ - k θ̇₂² sin δ          ⎥
    ⎣     -h₂ cos θ₂          k cos δ         J₂      ⎦       ⎣       h₂ g sin θ₂ + k θ̇₁² sin δ          ⎦
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

import torch
from torch import Generator, Tensor

from samba_rl.tasks.hazard import AngleHazard
from samba_rl.tasks.task import Quantity, Task
from samba_rl.tasks.world import EquationsWorld, World

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MASS = 0.5
"""Mass of the cart and of each link [kg]."""
LINK = 0.6
"""Length of each link [m]."""
GRAVITY = 9.82
"""Gravitational acceleration [m/s²]."""
FRICTION = 0.1
"""Friction of the cart on its rail [Ns/m]."""
MAX_FORCE = 20.0
"""Bound of the force [N]."""
COST_WIDTH = 0.5
"""Distance from the target at which the cost is 1 - 1/√e [m]."""
START_MEAN = (0.0, 0.0, 0.0, 0.0, math.pi, math.pi)
"""Mean of the start state [6]."""
START_STD = (0.1, 0.1, 0.1, 0.1, 0.01, 0.01)
"""Standard deviation of the start state [6]."""

_TOTAL = 3 * MASS
_H1, _H2 = 1.5 * MASS * LINK, 0.5 * MASS * LINK
_K = 0.5 * MASS * LINK**2
_J1, _J2 = 4 / 3 * MASS * LINK**2, 1 / 3 * MASS * LINK**2


@final
@dataclass(frozen=True, kw_only=True)
class SafeCartPoleDoublePendulum(Task):
    """Two links on a cart, to be swung up from hanging.

    The state is (x, ẋ, θ̇₁, θ̇₂, θ₁, θ₂), where θ₁ is the angle of the inner link.
    """

    name: str = "safe-cart-pole-double-pendulum"
    title: str = "Safe Cart-Pole Double Pendulum"
    states: tuple[Quantity, ...] = (
        Quantity("x", "m"),
        Quantity("ẋ", "m/s"),
        Quantity("θ̇₁", "rad/s"),
        Quantity("θ̇₂", "rad/s"),
        Quantity("θ₁", "rad"),
        Quantity("θ₂", "rad"),
    )
    observations: tuple[Quantity, ...] = (
        Quantity("x", "m"),
        Quantity("ẋ", "m/s"),
        Quantity("θ̇₁", "rad/s"),
        Quantity("θ̇₂", "rad/s"),
        Quantity("sin θ₁", "", -1.0, 1.0),
        Quantity("cos θ₁", "", -1.0, 1.0),
        Quantity("sin θ₂", "", -1.0, 1.0),
        Quantity("cos θ₂", "", -1.0, 1.0),
    )
    actions: tuple[Quantity, ...] = (Quantity("force", "N", -MAX_FORCE, MAX_FORCE),)
    constraints: tuple[str, ...] = ("hazard",)
    predicted: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    dt: float = 0.05
    hazard: AngleHazard = field(default_factory=AngleHazard)
    """Unsafe and hazard region of θ₁ [rad]."""
    friction: float = FRICTION
    """Friction of the cart on its rail [Ns/m]; without friction and force the energy is constant."""
    substeps: int = 20
    """Number of Runge-Kutta steps per step; `docs/systems.md` shows why 20."""

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw n start states [n, 6], hanging and nearly at rest, Gaussian around `START_MEAN`."""
        device = "cpu" if generator is None else generator.device
        noise = torch.randn(n, 6, generator=generator, device=device, dtype=dtype)
        columns = [mean + std * noise[:, i] for i, (mean, std) in enumerate(zip(START_MEAN, START_STD, strict=True))]
        return torch.stack(columns, dim=1)

    def observe(self, x: Tensor) -> Tensor:
        """Return (x, ẋ, θ̇₁, θ̇₂, sin θ₁, cos θ₁, sin θ₂, cos θ₂) [B, 8]."""
        angles = x[..., 4:]
        trigonometric = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
        return torch.cat([x[..., :4], trigonometric], dim=-1)

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the observation and the force [B, 9]."""
        return torch.cat([self.observe(x), u], dim=-1)

    def tip(self, x: Tensor) -> Tensor:
        """Return the horizontal and vertical position [B, 2] of the tip of the outer link [m]."""
        angles = x[..., 4:]
        return torch.stack([x[..., 0] - LINK * angles.sin().sum(-1), LINK * angles.cos().sum(-1)], dim=-1)

    def energy(self, x: Tensor) -> Tensor:
        """Return the kinetic plus potential energy [B] [J], which is zero for horizontal links at rest."""
        _, velocity, speed1, speed2, angle1, angle2 = x.unbind(-1)
        cos1, cos2 = angle1.cos(), angle2.cos()
        kinetic = (
            0.5 * (_TOTAL * velocity.square() + _J1 * speed1.square() + _J2 * speed2.square())
            - velocity * (_H1 * cos1 * speed1 + _H2 * cos2 * speed2)
            + _K * (angle1 - angle2).cos() * speed1 * speed2
        )
        return kinetic + GRAVITY * (_H1 * cos1 + _H2 * cos2)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        """Return 1 - exp(-d² / (2·0.5²)) [B], where d is the distance from the tip to its target above x = 0."""
        horizontal, vertical = self.tip(x).unbind(-1)
        squared_distance = horizontal.square() + (vertical - 2 * LINK).square()
        return -torch.expm1(-squared_distance / (2 * COST_WIDTH**2))

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the safety costs [B, 1] of θ₁."""
        return self.hazard.safety(x[..., 4:5])

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        return self.hazard.violation(safety)

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """Return False for every episode [B]: only the horizon ends it."""
        return torch.zeros(x.shape[:-1], dtype=torch.bool, device=x.device)

    def hazard_in_words(self) -> str:
        """Describe the unsafe and the hazard angles of the inner link."""
        return f"θ₁: {self.hazard.describe()}"

    def derivative(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the time derivative [6, B] of states [6, B] under forces [B].

        With the components first, each of them is contiguous in memory.
        """
        _, velocity, speed1, speed2 = x[:4]
        sin, cos = x[4:].sin(), x[4:].cos()
        cos_delta = (cos[0] * cos[1]).addcmul(sin[0], sin[1])
        sin_delta = (sin[0] * cos[1]).addcmul(cos[0], sin[1], value=-1)
        square1, square2 = speed1.square(), speed2.square()
        # The mass matrix [[T, a, b], [a, J1, c], [b, c, J2]] and the right-hand side (f, f1, f2).
        a, b, c = -_H1 * cos[0], -_H2 * cos[1], _K * cos_delta
        f = u - self.friction * velocity - _H1 * sin[0] * square1 - _H2 * sin[1] * square2
        f1 = _H1 * GRAVITY * sin[0] - _K * sin_delta * square2
        f2 = _H2 * GRAVITY * sin[1] + _K * sin_delta * square1
        # Cramer's rule with cofactors is accurate here: the masses keep the symmetric matrix well conditioned.
        aa, ab, ac = _J1 * _J2 - c * c, b * c - a * _J2, a * c - b * _J1
        bb, bc = _TOTAL * _J2 - b * b, a * b - _TOTAL * c
        cc = _TOTAL * _J1 - a * a
        determinant = _TOTAL * aa + a * ab + b * ac
        accelerations = torch.stack(
            [aa * f + ab * f1 + ac * f2, ab * f + bb * f1 + bc * f2, ac * f + bc * f1 + cc * f2]
        )
        return torch.cat([x[1:2], accelerations / determinant, x[2:4]])

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        state, force = x.T, u[:, 0]
        h = self.dt / self.substeps
        for _ in range(self.substeps):
            k1 = self.derivative(state, force)
            k2 = self.derivative(state + h / 2 * k1, force)
            k3 = self.derivative(state + h / 2 * k2, force)
            k4 = self.derivative(state + h * k3, force)
            state = state + h / 6 * (k1 + 2 * (k2 + k3) + k4)
        return state.T

    def world(self, workers: int | None = None) -> World:
        """Return a world that runs the equations of motion."""
        return EquationsWorld(self, self.draw)

    def draw(self, x: Tensor, u: Tensor | None, size: int) -> NDArray[np.uint8]:
        """Draw state x [6] with the unsafe (red) and the hazard (orange) sector of θ₁: [size, size, 3]."""
        from samba_rl.tasks.render.drawing import draw_cart_double_pendulum

        return draw_cart_double_pendulum(
            float(x[0]),
            float(x[4]),
            float(x[5]),
            None if u is None else float(u[0]),
            unsafe=self.hazard.unsafe,
            hazard=self.hazard.region,
            link=LINK,
            force_limit=MAX_FORCE,
            size=size,
        )
