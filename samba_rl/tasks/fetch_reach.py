"""Safe Fetch Reach: Gymnasium-Robotics' FetchReach on MuJoCo, with an unsafe slab between start and goal."""

from __future__ import annotations

import contextlib
import importlib
import io
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.hazard import tent
from samba_rl.tasks.simulation import Outcome, SimulatedWorld
from samba_rl.tasks.task import Quantity, Task
from samba_rl.tasks.world import World

START = (1.34183340, 0.749101017, 0.534733441, -5.98637494e-06, -8.55928020e-08, 2.13255650e-05)
"""State of the robot after every reset: gripper position [m] and velocity [m/step]."""
GOAL_RANGE = 0.15
"""Largest distance from the start to a goal along each axis [m]."""
MIN_X_DISTANCE = 0.03
"""Smallest distance from the start to a goal along x [m]; for nearer goals the hazard would vanish."""
ENVIRONMENT = "FetchReach-v4"
"""Gymnasium id of the simulated environment."""

_AXES = "xyz"


def import_robots() -> None:
    """Import Gymnasium-Robotics, which registers its environments."""
    # Its first import prints a notice about its hand environments, which are not used here.
    with contextlib.redirect_stderr(io.StringIO()):
        importlib.import_module("gymnasium_robotics")


@final
@dataclass(frozen=True, kw_only=True)
class SafeFetchReach(Task):
    """A seven-joint arm that moves its gripper to a goal; the middle half of the way along x is unsafe.

    The state is gripper position, gripper velocity and goal. FetchReach also reports the two finger joints, which it
    holds still, and takes a fourth action for them, which has no effect. The joints are not part of the state; the
    action is kept, so that policies for FetchReach fit.
    """

    name: str = "safe-fetch-reach"
    title: str = "Safe Fetch Reach"
    states: tuple[Quantity, ...] = (
        *(Quantity(f"gripper {axis}", "m") for axis in _AXES),
        *(Quantity(f"gripper velocity {axis}", "m/step") for axis in _AXES),
        *(Quantity(f"goal {axis}", "m") for axis in _AXES),
    )
    observations: tuple[Quantity, ...] = states
    actions: tuple[Quantity, ...] = (
        *(Quantity(f"move {axis}", "5 cm", -1.0, 1.0) for axis in _AXES),
        Quantity("fingers", "no effect", -1.0, 1.0),
    )
    constraints: tuple[str, ...] = ("hazard",)
    predicted: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    dt: float = 0.04
    known_dynamics: bool = False

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw n start states [n, 9]: the robot at `START`, goals uniform around it with |Δx| of at least 3 cm."""
        device = "cpu" if generator is None else generator.device
        unit = 2 * torch.rand(n, 3, generator=generator, device=device, dtype=dtype) - 1
        along_x = unit[:, :1].sign() * (MIN_X_DISTANCE + (GOAL_RANGE - MIN_X_DISTANCE) * unit[:, :1].abs())
        offset = torch.cat([along_x, GOAL_RANGE * unit[:, 1:]], dim=1)
        robot = torch.tensor(START, device=device, dtype=dtype).expand(n, -1)
        return torch.cat([robot, robot[:, :3] + offset], dim=1)

    def observe(self, x: Tensor) -> Tensor:
        """Return the state [B, 9]."""
        return x

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the state of the robot and the three actions that move it [B, 9], without the goal."""
        return torch.cat([x[..., :6], u[..., :3]], dim=-1)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the distance from gripper to goal [B] [m], the negative of FetchReach's dense reward."""
        return (x[..., :3] - x[..., 6:9]).square().sum(-1).sqrt()

    def slab(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return centre and half-width of the hazard along x [m], each [B]; they depend on the goal only."""
        goal_x = x[..., 6]
        return (goal_x + START[0]) / 2, (goal_x - START[0]).abs() / 4

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the safety costs [B, 1] of the gripper's position."""
        centre, half_width = self.slab(x)
        # A goal straight above the start leaves no slab; the floor avoids 0/0.
        return tent((x[..., 0] - centre).abs() / half_width.clamp(min=1e-12))[..., None]

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        return safety > 0

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """Return False for every episode [B]: only the horizon ends it."""
        return torch.zeros(x.shape[:-1], dtype=torch.bool, device=x.device)

    def hazard_in_words(self) -> str:
        """Describe the unsafe slab."""
        return "gripper x: unsafe = hazard, the middle half of the way from start to goal"

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        raise UserError(f"{self.name}: has no equations of motion; run it on MuJoCo with task.world()")

    def world(self, workers: int | None = None) -> World:
        """Return a world that runs MuJoCo in `workers` processes (None: one per core)."""
        return SimulatedWorld(self, FetchSimulation, workers, start=self.start)


@final
class FetchSimulation:
    """Many episodes on one FetchReach environment, which is put into an episode's saved state before each step.

    Making an environment takes 0.15 s and tens of megabytes; a saved state takes two kilobytes.
    """

    def __init__(self) -> None:
        try:
            import gymnasium
            import mujoco

            import_robots()
        except ImportError as error:
            raise UserError(
                f"safe-fetch-reach needs the package '{error.name}'; install it with: pip install 'samba-rl[fetch]'"
            ) from error
        self._mujoco = mujoco
        self._env: Any = gymnasium.make(ENVIRONMENT, reward_type="dense").unwrapped
        # MuJoCo's integration state is everything that the next step depends on.
        self._signature = int(mujoco.mjtState.mjSTATE_INTEGRATION)
        self._env.reset(seed=0)
        self._start = self._save()
        self._episodes: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def reset(self, slot: int, seed: int, x: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Put the robot at its start, with the goal of state x [9], and return the state [9]."""
        if x is None:
            raise UserError("safe-fetch-reach: an episode needs a start state with a goal; none was given")
        self._load(self._start)
        robot = self._robot()
        # Versions of MuJoCo differ in the last digits of the start; a larger difference is another state.
        if not np.allclose(x[:6], robot, atol=1e-4):
            raise UserError(
                f"safe-fetch-reach: every episode starts with the gripper at {np.round(robot[:3], 4).tolist()} m, "
                f"not {np.round(x[:3], 4).tolist()}; only the goal can be chosen"
            )
        self._episodes[slot] = (self._start, x[6:9].copy())
        return np.concatenate([robot, x[6:9]])

    def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
        """Step episode `slot` with action u [4]."""
        state, goal = self._episodes[slot]
        self._load(state)
        self._env.goal = goal
        # FetchReach's actions are float32, and it computes in the precision it is given.
        self._env.step(u.astype(np.float32))
        self._episodes[slot] = (self._save(), goal)
        return Outcome(np.concatenate([self._robot(), goal]))

    def render(self, slot: int, size: int) -> NDArray[np.uint8]:
        """Draw the robot, the goal and the slab: [size, size, 3]."""
        from samba_rl.tasks.render.robot import draw_fetch

        state, goal = self._episodes[slot]
        self._load(state)
        centre, half_width = SafeFetchReach().slab(torch.tensor([[0.0] * 6 + goal.tolist()], dtype=torch.float64))
        return draw_fetch(
            self._env.model, self._env.data, goal=goal, centre=float(centre), half_width=float(half_width), size=size
        )

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _robot(self) -> NDArray[np.float64]:
        """Return gripper position and velocity [6]."""
        observation = self._env._get_obs()["observation"]
        return np.concatenate([observation[:3], observation[5:8]])

    def _save(self) -> NDArray[np.float64]:
        state = np.empty(self._mujoco.mj_stateSize(self._env.model, self._signature))
        self._mujoco.mj_getState(self._env.model, self._env.data, state, self._signature)
        return state

    def _load(self, state: NDArray[np.float64]) -> None:
        model, data = self._env.model, self._env.data
        self._mujoco.mj_setState(model, data, state, self._signature)
        # The next action builds on the positions and velocities of bodies, which follow from the joints.
        self._mujoco.mj_forward(model, data)
        # The solver's warm start is part of the state, and mj_forward has just changed it.
        self._mujoco.mj_setState(model, data, state, self._signature)
