"""Tasks as Gymnasium environments: `SafeEnv` runs one episode at a time, `SafeVectorEnv` a batch."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.gym.adapters import Info
from samba_rl.tasks.gym.conversion import (
    Clipping,
    action_space,
    as_actions,
    check_render_mode,
    observation_space,
    resolve_task,
    start_states,
)
from samba_rl.tasks.task import Task, no_costs_yet, remember_cost


@final
class SafeEnv(gymnasium.Env[NDArray[np.float64], NDArray[np.float32]]):
    """A task as a Gymnasium environment.

    `info["cost"]` is the safety cost of the step, summed over the constraints; `info["costs"]` has each by name.
    `info["violation"]` is True if the step ended in the unsafe region, `info["clipped"]` if the action was outside its
    bounds. `reset(options={"state": [...]})` starts from a given state.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(
        self, task: str | Task, *, render_mode: str | None = None, size: int = 480, **settings: object
    ) -> None:
        """Create the environment, with pictures `size` pixels wide; `settings` replace fields such as `hazard`."""
        self.task = resolve_task(task, settings)
        self.metadata = {**self.metadata, "render_fps": round(1 / self.task.dt)}
        self.render_mode = check_render_mode(render_mode)
        self.observation_space = observation_space(self.task)
        self.action_space = action_space(self.task)
        self._size = size
        self._world = self.task.world(workers=0)
        self._clipping = Clipping(self.task)
        self._x: Tensor | None = None
        self._u: Tensor | None = None
        self._ended = False

    @property
    def clipped_actions(self) -> int:
        """Return the number of actions outside their bounds since the environment was made."""
        return self._clipping.count

    @property
    def state(self) -> NDArray[np.float64]:
        """Return the state of the system [nx]."""
        return self._running()[0].numpy().copy()

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float64], Info]:
        """Start a new episode, from `options["state"]` [nx] if given."""
        super().reset(seed=seed)
        # Drawn in any case, so that later random numbers do not depend on whether a state was given.
        generator = torch.Generator().manual_seed(int(self.np_random.integers(2**63)))
        given = start_states(self.task, options, 1, (len(self.task.states),))
        self._x = self._world.reset(1, generator, x=given)
        self._u = None
        self._recent = no_costs_yet(self.task, self._x)
        self._t = 0
        self._ended = False
        return self._observation(), {}

    @torch.inference_mode()
    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, bool, bool, Info]:
        """Take one step; Gymnasium's TimeLimit wrapper applies the time limit."""
        x = self._running()
        if self._ended:
            raise UserError(f"{self.task.name}: the episode has ended; call reset() before the next step")
        wanted = as_actions(self.task, action, 1, (len(self.task.actions),))
        self._u, clipped = self._clipping.apply(wanted)
        step = self._world.step(x, self._u)
        self._x = step.x
        cost, safety, violation = step.charges
        remember_cost(self._recent, cost, self._t)
        self._t += 1
        self._ended = bool(step.terminated | self.task.done(step.x, self._recent))
        info = {
            "cost": float(safety.sum()),
            "violation": bool(violation.any()),
            "costs": dict(zip(self.task.constraints, safety[0].tolist(), strict=True)),
            "clipped": bool(clipped[0]),
        }
        return self._observation(), -float(cost), self._ended, bool(step.truncated), info

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture [size, size, 3], with the unsafe region in red and the hazard in orange."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() returns nothing; make the environment with render_mode='rgb_array'")
            return None
        return self._world.render(self._running()[0], None if self._u is None else self._u[0], 0, self._size)

    def close(self) -> None:
        """Release the simulator."""
        self._world.close()

    def _running(self) -> Tensor:
        if self._x is None:
            raise UserError(f"{self.task.name}: no episode is running; call reset() first")
        return self._x

    def _observation(self) -> NDArray[np.float64]:
        observation: NDArray[np.float64] = self.task.observe(self._running())[0].numpy().copy()
        return observation


@final
class SafeVectorEnv(VectorEnv[NDArray[np.float64], NDArray[np.float32], NDArray[Any]]):
    """A batch of episodes of a task that are stepped together; a finished episode restarts with the next step.

    The two pendulums run as one batch in torch, Fetch in processes. The info has the keys of `SafeEnv`, as arrays [n].
    """

    metadata: dict[str, Any] = {
        "render_modes": ["rgb_array"],
        "render_fps": 20,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        task: str | Task,
        *,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        size: int = 480,
        workers: int | None = None,
        **settings: object,
    ) -> None:
        """Create a batch of `num_envs` episodes; simulators run in `workers` processes (None: one per core)."""
        if num_envs < 1:
            raise UserError(f"num_envs = {num_envs}; give at least 1")
        base = resolve_task(task, settings)
        self.task = base if max_episode_steps is None else dataclasses.replace(base, horizon=max_episode_steps)
        self.metadata = {**self.metadata, "render_fps": round(1 / self.task.dt)}
        self.render_mode = check_render_mode(render_mode)
        self.num_envs = num_envs
        self.single_observation_space = observation_space(self.task)
        self.single_action_space = action_space(self.task)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._size = size
        self._world = self.task.world(workers)
        self._clipping = Clipping(self.task)
        self._x: Tensor | None = None
        self._u: Tensor | None = None

    @property
    def clipped_actions(self) -> int:
        """Return the number of actions outside their bounds since the environment was made."""
        return self._clipping.count

    @property
    def state(self) -> NDArray[np.float64]:
        """Return the states of the systems [n, nx]."""
        return self._running().numpy().copy()

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float64], Info]:
        """Start new episodes, from `options["state"]` [n, nx] if given."""
        super().reset(seed=seed)
        n = self.num_envs
        given = start_states(self.task, options, n, (n, len(self.task.states)))
        self._generator = torch.Generator().manual_seed(int(self.np_random.integers(2**63)))
        self._x = self._world.reset(n, self._generator, x=given)
        self._u = None
        self._recent = no_costs_yet(self.task, self._x)
        self._t = 0
        self._age = np.zeros(n, dtype=np.int64)
        self._ended = np.zeros(n, dtype=np.bool_)
        return self.task.observe(self._x).numpy().copy(), {}

    @torch.inference_mode()
    def step(
        self, actions: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Step every episode; one that the last step ended is restarted instead, and its action is ignored."""
        x, n = self._running(), self.num_envs
        wanted = as_actions(self.task, actions, n, (n, len(self.task.actions)))
        self._u, clipped = self._clipping.apply(wanted)
        restart = self._ended
        some_restart = restart.any()
        step = self._world.step(x, self._u, torch.from_numpy(~restart) if some_restart else None)
        x = step.x
        cost, safety, violation = step.charges
        remember_cost(self._recent, cost, self._t)
        self._t += 1
        self._age += 1
        terminated = (step.terminated | self.task.done(x, self._recent)).numpy()
        truncated = step.truncated.numpy() | (self._age >= self.task.horizon)
        reward = -cost.numpy()
        costs = safety.numpy()
        violations = violation.numpy()
        if some_restart:
            rows = restart.nonzero()[0]
            fresh = self._world.reset(len(rows), self._generator, slots=torch.from_numpy(rows))
            # NumPy writes into the memory of the tensors, which is much faster for a few rows.
            x.numpy()[rows] = fresh.numpy()
            self._recent.numpy()[rows] = np.inf
            for array in (self._age, terminated, truncated, reward, costs, violations, clipped):
                array[rows] = 0
        self._x = x
        self._ended = terminated | truncated
        infos = self._infos(costs, violations, clipped, ~restart)
        return self.task.observe(x).numpy(), reward, terminated, truncated, infos

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return a picture [size, size, 3] of every episode."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() returns nothing; make the environment with render_mode='rgb_array'")
            return None
        x, u = self._running(), self._u
        return tuple(self._world.render(x[i], None if u is None else u[i], i, self._size) for i in range(self.num_envs))

    def close_extras(self, **kwargs: object) -> None:
        """Release simulators and processes."""
        self._world.close()

    def _infos(
        self,
        costs: NDArray[np.float64],
        violations: NDArray[np.bool_],
        clipped: NDArray[np.bool_],
        valid: NDArray[np.bool_],
    ) -> Info:
        """Return the info of the batch, each key with Gymnasium's mask of the episodes that it applies to."""
        by_name = {name: costs[:, i] for i, name in enumerate(self.task.constraints)}
        total = costs.sum(1) if len(by_name) > 1 else costs[:, 0]
        unsafe = violations.any(1) if len(by_name) > 1 else violations[:, 0]
        infos = {"cost": total, "violation": unsafe, "costs": by_name, "clipped": clipped}
        return infos | {f"_{key}": valid for key in infos}

    def _running(self) -> Tensor:
        if self._x is None:
            raise UserError(f"{self.task.name}: no episode is running; call reset() first")
        return self._x
