"""Environments and cost functions as users write them, working and broken."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor


class Drift(gymnasium.Env[Any, Any]):
    """A point on a line: the state moves by the action; unsafe beyond 1. `fault` breaks one thing."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-0.5, 0.5, (1,), dtype=np.float32)
        if fault == "discrete":
            self.action_space = gymnasium.spaces.Discrete(3)
        if fault == "unbounded":
            self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), dtype=np.float32)
        if fault == "integers":
            self.action_space = gymnasium.spaces.Box(-5, 5, (1,), dtype=np.int64)
        if fault == "text observation":
            self.observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))
        self.x = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        rng = np.random.default_rng() if self.fault == "unseeded" else self.np_random
        self.x = np.array([rng.uniform(-0.5, 0.5), 0.0])
        if self.fault == "bare reset":
            return self.x.copy()
        if self.fault == "reset raises":
            raise RuntimeError("no power")
        if self.fault == "nan start":
            return np.array([np.nan, 0.0]), {}
        return self.x.copy(), {}

    def step(self, action: Any) -> Any:
        noise = np.random.default_rng().normal() if self.fault == "noisy" else 0.0
        self.x = np.array([self.x[0] + action[0] + 0.01 * noise, action[0]])
        if self.fault == "raises":
            raise RuntimeError("motor fault")
        observation = self.x.copy()
        if self.fault == "nan":
            observation[1] = np.nan
        if self.fault == "shape":
            observation = np.zeros(3)
        reward = np.nan if self.fault == "nan reward" else -abs(self.x[0])
        danger = 0.0 if self.fault == "safe" else max(0.0, abs(self.x[0]) - 1)
        info: dict[str, Any] = {"cost": danger}
        if self.fault in ("no cost", "six"):
            info = {"speed": 1.0}
        if self.fault == "nan cost":
            info["cost"] = np.nan
        if self.fault == "negative cost":
            info["cost"] = -1.0
        if self.fault == "large cost":
            info["cost"] = 5.0
        if self.fault == "text cost":
            info["cost"] = "high"
        if self.fault == "some cost" and danger == 0:
            info = {}
        if self.fault == "violation":
            info["violation"] = abs(self.x[0]) > 1.5
        done = abs(self.x[0]) > 3
        if self.fault == "four":
            return observation, reward, done, info
        if self.fault == "six":
            return observation, reward, danger, done, False, info
        return observation, reward, done, self.fault == "cut off" and abs(self.x[0]) > 1, info


class Goal(gymnasium.Env[Any, Any]):
    """Observations as a dict, actions as a matrix."""

    def __init__(self) -> None:
        box = gymnasium.spaces.Box(-10, 10, (2,), dtype=np.float32)
        self.observation_space = gymnasium.spaces.Dict({"at": box, "goal": box})
        self.action_space = gymnasium.spaces.Box(
            np.array([[-1.0, -2.0]], dtype=np.float32), np.array([[1.0, 2.0]], dtype=np.float32)
        )
        self.at = np.zeros(2, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"at": self.at.copy(), "goal": np.ones(2, dtype=np.float32)}, {}

    def step(self, action: Any) -> Any:
        assert action.shape == (1, 2) and action.dtype == np.float32
        self.at = self.at + action[0]
        return {"at": self.at.copy(), "goal": np.ones(2, dtype=np.float32)}, -1.0, False, False, {"cost": [0.1, 0.0]}


def register() -> None:
    """Give the environments ids."""
    if "OwnDrift-v0" not in gymnasium.registry:
        gymnasium.register("OwnDrift-v0", f"{__name__}:Drift", max_episode_steps=20)
        gymnasium.register("OwnEndless-v0", f"{__name__}:Drift")
        gymnasium.register("OwnSix-v0", f"{__name__}:Drift", max_episode_steps=20, kwargs={"fault": "six"})
        gymnasium.register("OwnPlain-v0", f"{__name__}:Drift", max_episode_steps=20, kwargs={"fault": "no cost"})
        gymnasium.register("OwnMissing-v0", "no_such_module:Env", max_episode_steps=20)


register()


def danger(x: Tensor, u: Tensor) -> Tensor:
    """A correct safety cost."""
    return (x[..., 0].abs() - 1).clamp(0, 1)


def not_batched(x: Tensor, u: Tensor) -> Tensor:
    """Mixes the rows."""
    return (x[..., 0] - x[..., 0].mean()).abs()


def first_row_only(x: Tensor, u: Tensor) -> Tensor:
    """Has the wrong shape for a batch."""
    return x[0].abs()


def with_numpy(x: Tensor, u: Tensor) -> Any:
    """Returns an array instead of a tensor."""
    return np.abs(x[:, 0].numpy())


def raising(x: Tensor, u: Tensor) -> Tensor:
    """Raises an exception."""
    return x[..., 7]


def writing(x: Tensor, u: Tensor) -> Tensor:
    """Modifies its argument."""
    x[..., 0] = 0
    return x[..., 0].clone()


def undefined(x: Tensor, u: Tensor) -> Tensor:
    """Returns NaN."""
    return torch.full((len(x),), torch.nan, dtype=x.dtype)
