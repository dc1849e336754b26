"""What samba_rl knows of the rig: its quantities, what is costly, what is unsafe."""

from __future__ import annotations

from torch import Tensor

from samba_rl import Quantity, RigTask


def cost(x: Tensor, u: Tensor) -> Tensor:
    """Return the squared distance from 1 m, and a little for effort; x [B, 3] and u [B, 1] to [B]."""
    return (x[..., 0] - 1.0).square() + 0.001 * u[..., 0].square()


def safety(x: Tensor, _u: Tensor) -> Tensor:
    """Return 0 up to 1.0 m, rising to 1 at the wall, 1.2 m; x [B, 3] to [B]."""
    return ((x[..., 0] - 1.0) / 0.2).clamp(0, 1)


def task() -> RigTask:
    """Describe the rig: 25 steps of 0.1 s."""
    return RigTask(
        # A command acts one step late, so what was commanded before is part of the state.
        states=[Quantity("position", "m"), Quantity("velocity", "m/s"), Quantity("before", "N")],
        actions=[Quantity("force", "N", -4.0, 4.0)],
        cost=cost,
        safety=safety,
        horizon=25,
        dt=0.1,
        name="cart",
    )
