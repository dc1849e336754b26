"""The generality suite: systems of different kinds that nobody tuned for, each with what counts as solved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError, did_you_mean
from samba_rl.tasks.gym.adapters import AnyEnv, FiveTuple, Info, SixTuple
from samba_rl.tasks.gym.task import Function, GymTask

NOISY = "-noisy"
"""Ending of the names of systems with measurement noise."""


@dataclass(frozen=True)
class System:
    """A system of the suite."""

    make: Callable[[], AnyEnv]
    """Makes the environment, without a time limit."""
    title: str
    """Name in tables."""
    horizon: int
    """Number of decisions per episode."""
    repeat: int
    """Steps of the environment for which each decision is held."""
    solved: float
    """Mean return of an episode from which on the system counts as solved."""
    limit: float
    """Limit on CVaR of an episode's safety cost at level 0.9, for learners with a limit."""
    noise: tuple[float, ...]
    """Standard deviation of the measurement noise, by observation."""
    safety: Function | None
    """Safety cost; None: measured."""
    done: Callable[[Tensor], Tensor] | None = None
    """States that end an imagined episode."""


@final
class Repeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Holds each action for some steps, and sums their rewards and costs."""

    def __init__(self, env: AnyEnv, times: int) -> None:
        super().__init__(env)
        self._times = times

    def step(self, action: object) -> FiveTuple:
        """Take up to so many steps, fewer if the episode ends."""
        rewards, costs = 0.0, 0.0
        info: Info = {}
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            rewards, costs = rewards + float(reward), costs + float(info.get("cost", 0.0))
            if terminated or truncated:
                break
        return observation, rewards, terminated, truncated, {**info, **({"cost": costs} if "cost" in info else {})}


@final
class Noisy(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds normal noise to each observation."""

    def __init__(self, env: AnyEnv, deviations: tuple[float, ...]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, dtype=np.float64)
        self._deviations = np.array(deviations)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float64], Info]:
        """Start an episode with noise of this seed."""
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        return self._measured(observation), info

    def step(self, action: object) -> FiveTuple:
        """Take a step; reward and cost have no noise."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._measured(observation), reward, terminated, truncated, info

    def _measured(self, observation: NDArray[np.float64]) -> NDArray[np.float64]:
        return observation + self._deviations * self._rng.normal(size=observation.shape)


@final
class Course(gymnasium.Env[Any, Any]):
    """A robot on a plane that should go to a goal behind a hazard, with the interface of Safety-Gymnasium.

    The reward is the progress towards the goal; the cost is 1 inside the hazard and 0 elsewhere, and the third of six
    values that `step` returns.
    """

    GOAL, HAZARD, RADIUS = np.array([1.0, 0.0]), np.array([0.0, 0.1]), 0.35

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float64], Info]:
        """Place the robot left of the hazard."""
        super().reset(seed=seed)
        self._x = np.array([-1.0, 0.0]) + self.np_random.uniform(-0.15, 0.15, 2)
        self._v = np.zeros(2)
        return np.concatenate([self._x, self._v]), {}

    def step(self, action: NDArray[np.float64]) -> SixTuple:  # type: ignore[override]
        """Push the robot, whose speed decays."""
        before = float(np.linalg.norm(self._x - self.GOAL))
        self._v = 0.7 * self._v + 0.3 * np.clip(action, -1.0, 1.0)
        self._x = self._x + 0.15 * self._v
        progress = before - float(np.linalg.norm(self._x - self.GOAL))
        cost = float(np.linalg.norm(self._x - self.HAZARD) < self.RADIUS)
        return np.concatenate([self._x, self._v]), progress, cost, False, False, {}


def _beyond(column: int, free: float, width: float) -> Function:
    """Return a safety cost that rises from 0 to 1 over a width where a column of the state leaves ±free."""
    return lambda x, u: ((x[..., column].abs() - free) / width).clamp(0, 1)


def _reacher_speed(x: Tensor, u: Tensor) -> Tensor:
    """Return the safety cost of joints faster than 8 rad/s."""
    return ((x[..., 6:8].abs().amax(-1) - 8) / 8).clamp(0, 1)


def _fallen(x: Tensor) -> Tensor:
    """Return whether the tip of the double pendulum is below 1 m."""
    first, both = (
        torch.atan2(x[..., 1], x[..., 3]),
        torch.atan2(x[..., 1], x[..., 3]) + torch.atan2(x[..., 2], x[..., 4]),
    )
    return 0.6 * (first.cos() + both.cos()) <= 1


def _registered(env_id: str) -> Callable[[], AnyEnv]:
    def make() -> AnyEnv:
        env: AnyEnv = gymnasium.make(env_id, disable_env_checker=True).unwrapped
        return env

    return make


SYSTEMS: dict[str, System] = {
    "pendulum": System(
        _registered("Pendulum-v1"), "Pendulum-v1", horizon=50, repeat=4, solved=-250.0, limit=2.0,
        noise=(0.02, 0.02, 0.1), safety=lambda x, u: ((x[..., 1] - 0.95) / 0.05).clamp(0, 1),
    ),
    "mountain-car": System(
        _registered("MountainCarContinuous-v0"), "MountainCarContinuous-v0", horizon=40, repeat=10, solved=85.0,
        limit=0.5, noise=(0.01, 0.001), safety=lambda x, u: ((-1.0 - x[..., 0]) / 0.2).clamp(0, 1),
        done=lambda x: x[..., 0] >= 0.45,
    ),
    "inverted-pendulum": System(
        _registered("InvertedPendulum-v5"), "InvertedPendulum-v5", horizon=50, repeat=1, solved=47.5, limit=0.5,
        noise=(0.005, 0.005, 0.05, 0.05), safety=_beyond(0, 0.3, 0.2), done=lambda x: x[..., 1].abs() > 0.2,
    ),
    "inverted-double-pendulum": System(
        _registered("InvertedDoublePendulum-v5"), "InvertedDoublePendulum-v5", horizon=50, repeat=1, solved=440.0,
        limit=0.5, noise=(0.005,) * 5 + (0.05,) * 3 + (0.0,), safety=_beyond(0, 0.3, 0.2), done=_fallen,
    ),
    "reacher": System(
        _registered("Reacher-v5"), "Reacher-v5", horizon=25, repeat=2, solved=-10.0, limit=0.5,
        noise=(0.005,) * 4 + (0.0,) * 2 + (0.05,) * 2 + (0.002,) * 2, safety=_reacher_speed,
    ),
    "course": System(
        Course, "Course (Safety-Gymnasium style)", horizon=30, repeat=1, solved=1.7, limit=0.75,
        noise=(0.02, 0.02, 0.05, 0.05), safety=None,
    ),
}  # fmt: skip
"""The systems of the suite by name."""


def names(*, noise: bool) -> tuple[str, ...]:
    """Return the names of the suite's systems, with or without measurement noise."""
    return tuple(name + NOISY * noise for name in SYSTEMS)


def find_system(name: str) -> System:
    """Return the system of that name, which may end with "-noisy"."""
    bare = name.removesuffix(NOISY)
    if bare not in SYSTEMS:
        raise UserError(f"the suite has no system '{name}'; {did_you_mean(name, SYSTEMS)}")
    return SYSTEMS[bare]


@dataclass(frozen=True)
class _Maker:
    """Makes the environment of a system of that name."""

    name: str

    @property
    def __name__(self) -> str:
        """Return the name that the task has."""
        return self.name

    def __call__(self) -> AnyEnv:
        """Make the environment."""
        system = find_system(self.name)
        from samba_rl.tasks.gym.adapters import make_env

        env: AnyEnv = make_env(system.make())
        if system.repeat > 1:
            env = Repeat(env, system.repeat)
        return Noisy(env, system.noise) if self.name.endswith(NOISY) else env


def make_system(name: str) -> GymTask:
    """Make the task of that name, which may end with "-noisy"."""
    system = find_system(name)
    return GymTask(_Maker(name), horizon=system.horizon, safety=system.safety, done=system.done)
