"""Environments that end their process; in a module of its own, which a process imports quickly."""

from __future__ import annotations

import ctypes
import os
import random
from typing import Any

import gymnasium
import numpy as np
import torch


class Deadly(gymnasium.Env[Any, Any]):
    """A point on a line that ends its process in step 3 of each episode, or in reset."""

    def __init__(self, how: str) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
        self.how, self.steps, self.x = how, 0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if self.how == "reset":
            os._exit(5)
        self.steps, self.x = 0, float(self.np_random.uniform(-3.0, -1.5))
        return np.array([self.x]), {}

    def step(self, action: Any) -> Any:
        self.steps, self.x = self.steps + 1, self.x + float(action[0])
        if self.steps == 4 and self.how == "exit":
            os._exit(3)
        if self.steps == 4 and self.how == "abort":
            os.abort()
        if self.steps == 4 and self.how == "segfault":
            ctypes.string_at(0)
        return np.array([self.x]), 0.0, False, False, {}


class Dice(Deadly):
    """Starts where the random numbers of the whole process say."""

    def __init__(self) -> None:
        super().__init__("")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x = random.random() + float(np.random.uniform()) + float(torch.rand(()))
        return np.array([self.x]), {}
