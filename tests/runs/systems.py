"""Systems for runs that are disturbed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from samba_rl.runs import Run
from samba_rl.tasks.gym.task import GymTask

LOG = "SAMBA_TEST_RIG_LOG"
"""The variable that says where a rig notes every step that it takes."""


class CountingRig(gymnasium.Env[Any, Any]):
    """A point on a line, which notes every step beside the program that learns from it."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
        self._x = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._x = float(self.np_random.uniform(-3.0, -1.5))
        return np.array([self._x]), {}

    def step(self, action: Any) -> Any:
        before, self._x = self._x, self._x + float(action[0])
        if LOG in os.environ:
            with open(os.environ[LOG], "ab", buffering=0) as file:
                file.write(f"{before!r} {self._x!r}\n".encode())
        return np.array([self._x]), 0.0, False, False, {}


def cost(x: Tensor, u: Tensor) -> Tensor:
    """The squared distance from zero."""
    return x[..., 0].square()


def edge(x: Tensor, u: Tensor) -> Tensor:
    """Beyond 0.5 it gets dangerous."""
    return ((x[..., 0] - 0.5) / 0.5).clamp(0, 1)


def counting_rig() -> GymTask:
    """A rig, which runs one episode at a time."""
    return GymTask(CountingRig(), cost=cost, safety=edge, horizon=10)


def rig_steps(path: Path) -> list[tuple[float, float]]:
    """The states before and after each step that the rig has noted."""
    return [tuple(map(float, line.split())) for line in path.read_text().splitlines()]  # type: ignore[misc]


def same_bits(a: Tensor, b: Tensor) -> bool:
    """NaN equals NaN, and 0 is not -0."""
    return a.dtype == b.dtype and a.shape == b.shape and bytes(a.numpy().tobytes()) == bytes(b.numpy().tobytes())


def same_policy(a: Run, b: Run) -> bool:
    """Whether two runs ended with the same parameters."""
    mine, other = a.policy.state_dict(), b.policy.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)
