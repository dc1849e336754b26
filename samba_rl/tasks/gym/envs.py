"""Our tasks as Gymnasium environments, one episode at a time and as a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from samba_rl.errors import UserError, did_you_mean
from samba_rl.tasks import make_task
from samba_rl.tasks.task import Quantity, Task, no_costs_yet, remember_cost

_OPTIONS = ("state",)


def space(quantities: Sequence[Quantity], dtype: type[np.floating[Any]]) -> Any:
    """The box that the quantities range over."""
    low = np.array([quantity.low for quantity in quantities], dtype=dtype)
    high = np.array([quantity.high for quantity in quantities], dtype=dtype)
    return gymnasium.spaces.Box(low, high, dtype=dtype)


def _resolve(task: str | Task, settings: dict[str, Any]) -> Task:
    """The task of that name with its settings, or the given one."""
    if isinstance(task, str):
        if "horizon" in settings:
            raise UserError(f"{task}: give the length of an episode as max_episode_steps, not horizon")
        return make_task(task, **settings)
    return dataclasses.replace(task, **settings) if settings else task


def _check_render_mode(mode: str | None) -> str | None:
    if mode not in (None, "rgb_array"):
        raise UserError(f"render_mode = {mode!r}; there is 'rgb_array', or None for no pictures")
    return mode


def _start_state(task: Task, options: dict[str, Any] | None, n: int, shape: tuple[int, ...]) -> Tensor | None:
    """The states [n, nx] that reset's options ask for, or None."""
    for option in options or {}:
        if option not in _OPTIONS:
            raise UserError(f"{task.name}: reset has no option '{option}'; {did_you_mean(option, _OPTIONS)}")
    if not options or options.get("state") is None:
        return None
    state = np.array(options["state"], dtype=np.float64)
    if state.shape != shape or not np.isfinite(state).all():
        raise UserError(
            f"{task.name}: reset's option 'state' is {state.tolist()}; expected finite numbers of shape {list(shape)}"
        )
    return torch.from_numpy(state.reshape(n, -1))


def _as_actions(task: Task, actions: ArrayLike, n: int, shape: tuple[int, ...]) -> Tensor:
    """What the caller of `step` gave as actions [n, nu] in float64."""
    try:
        array = np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{task.name}: {actions!r} is no action; expected numbers of shape {list(shape)}") from error
    if array.shape != shape:
        raise UserError(f"{task.name}: actions of shape {list(array.shape)}; expected {list(shape)}")
    return torch.from_numpy(array.reshape(n, -1))


class _Clipping:
    """Counts the actions that were outside their bounds, and tells of the first."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.count = 0

    def apply(self, wanted: Tensor) -> tuple[Tensor, NDArray[np.bool_]]:
        """The actions [n, nu] inside their bounds, and which of them had to be moved there [n]."""
        applied = self._task.admit(wanted, len(wanted))
        if applied is wanted:
            return applied, np.zeros(len(wanted), dtype=np.bool_)
        moved = (applied != wanted).any(-1)
        if self.count == 0:
            bounds = ", ".join(action.describe() for action in self._task.actions)
            gymnasium.logger.warn(
                f"{self._task.name}: action {wanted[moved][0].tolist()} lies outside the bounds ({bounds}) and was "
                "clipped. Further ones are counted in env.unwrapped.clipped_actions and shown in info['clipped'] only."
            )
        self.count += int(moved.sum())
        return applied, moved.numpy()


@final
class SafeEnv(gymnasium.Env[NDArray[np.float64], NDArray[np.float32]]):
    """One episode of a task.

    `info["cost"]` is the safety cost of the step (the sum where there are several constraints; `info["costs"]` has each
    by name), `info["violation"]` whether it ended in the unsafe region, `info["clipped"]` whether the action was
    outside its bounds. `reset(options={"state": [...]})` starts from a given state.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, task: str | Task, *, render_mode: str | None = None, size: int = 480, **settings: Any) -> None:
        """`size` is the edge of a picture in pixels; `settings` change fields of the task, such as `hazard`."""
        self.task = _resolve(task, settings)
        self.metadata = {**self.metadata, "render_fps": round(1 / self.task.dt)}
        self.render_mode = _check_render_mode(render_mode)
        self.observation_space = space(self.task.observations, np.float64)
        self.action_space = space(self.task.actions, np.float32)
        self._size = size
        self._world = self.task.world(workers=0)
        self._clipping = _Clipping(self.task)
        self._x: Tensor | None = None
        self._u: Tensor | None = None
        self._ended = False

    @property
    def clipped_actions(self) -> int:
        """How many actions were outside their bounds since the environment was made."""
        return self._clipping.count

    @property
    def state(self) -> NDArray[np.float64]:
        """The state of the system [nx]."""
        return self._running()[0].numpy().copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Start a new episode, from `options["state"]` if it is given."""
        super().reset(seed=seed)
        # Drawn in any case, so that what follows does not depend on whether a state was given.
        generator = torch.Generator().manual_seed(int(self.np_random.integers(2**63)))
        given = _start_state(self.task, options, 1, (len(self.task.states),))
        self._x = self._world.reset(1, generator, x=given)
        self._u = None
        self._recent = no_costs_yet(self.task, self._x)
        self._t = 0
        self._ended = False
        return self._observation(), {}

    @torch.inference_mode()
    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Take one step; the time limit is Gymnasium's wrapper's."""
        x = self._running()
        if self._ended:
            raise UserError(f"{self.task.name}: the episode has ended; call reset() before the next step")
        wanted = _as_actions(self.task, action, 1, (len(self.task.actions),))
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
        """The system as a picture, the unsafe region in red and the hazard in orange."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() gives nothing: make the environment with render_mode='rgb_array'")
            return None
        return self._world.render(self._running()[0], None if self._u is None else self._u[0], 0, self._size)

    def close(self) -> None:
        """Let go of the simulator."""
        self._world.close()

    def _running(self) -> Tensor:
        if self._x is None:
            raise UserError(f"{self.task.name}: there is no episode yet; call reset() first")
        return self._x

    def _observation(self) -> NDArray[np.float64]:
        observation: NDArray[np.float64] = self.task.observe(self._running())[0].numpy().copy()
        return observation


@final
class SafeVectorEnv(VectorEnv[NDArray[np.float64], NDArray[np.float32], NDArray[Any]]):
    """A batch of episodes of a task, stepped together; an episode that has ended restarts with the next step.

    The two pendulums run as one batch in torch, Fetch in processes. Infos are those of `SafeEnv` as arrays [n].
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
        **settings: Any,
    ) -> None:
        """`workers` is the number of processes for a system that needs them (None: every core)."""
        if num_envs < 1:
            raise UserError(f"num_envs = {num_envs}; a batch has at least one episode")
        base = _resolve(task, settings)
        self.task = base if max_episode_steps is None else dataclasses.replace(base, horizon=max_episode_steps)
        self.metadata = {**self.metadata, "render_fps": round(1 / self.task.dt)}
        self.render_mode = _check_render_mode(render_mode)
        self.num_envs = num_envs
        self.single_observation_space = space(self.task.observations, np.float64)
        self.single_action_space = space(self.task.actions, np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._size = size
        self._world = self.task.world(workers)
        self._clipping = _Clipping(self.task)
        self._x: Tensor | None = None
        self._u: Tensor | None = None

    @property
    def clipped_actions(self) -> int:
        """How many actions were outside their bounds since the environment was made."""
        return self._clipping.count

    @property
    def state(self) -> NDArray[np.float64]:
        """The states of the systems [n, nx]."""
        return self._running().numpy().copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Start all episodes anew, from `options["state"]` [n, nx] if it is given."""
        super().reset(seed=seed)
        n = self.num_envs
        given = _start_state(self.task, options, n, (n, len(self.task.states)))
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
    ) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Step every episode, or restart it if the last step ended it (then its action counts for nothing)."""
        x, n = self._running(), self.num_envs
        wanted = _as_actions(self.task, actions, n, (n, len(self.task.actions)))
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
            # Through NumPy, which writes into the tensors' memory: for a few rows that is much the faster.
            x.numpy()[rows] = fresh.numpy()
            self._recent.numpy()[rows] = np.inf
            for array in (self._age, terminated, truncated, reward, costs, violations, clipped):
                array[rows] = 0
        self._x = x
        self._ended = terminated | truncated
        infos = self._infos(costs, violations, clipped, ~restart)
        return self.task.observe(x).numpy(), reward, terminated, truncated, infos

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """A picture of every system."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() gives nothing: make the environment with render_mode='rgb_array'")
            return None
        x, u = self._running(), self._u
        return tuple(self._world.render(x[i], None if u is None else u[i], i, self._size) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of simulators and processes."""
        self._world.close()

    def _infos(
        self, costs: NDArray[Any], violations: NDArray[Any], clipped: NDArray[Any], valid: NDArray[Any]
    ) -> dict[str, Any]:
        """`SafeEnv`'s info for the batch, each key with Gymnasium's mask of the episodes that it speaks of."""
        by_name = {name: costs[:, i] for i, name in enumerate(self.task.constraints)}
        total = costs.sum(1) if len(by_name) > 1 else costs[:, 0]
        unsafe = violations.any(1) if len(by_name) > 1 else violations[:, 0]
        infos = {"cost": total, "violation": unsafe, "costs": by_name, "clipped": clipped}
        return infos | {f"_{key}": valid for key in infos}

    def _running(self) -> Tensor:
        if self._x is None:
            raise UserError(f"{self.task.name}: there is no episode yet; call reset() first")
        return self._x
