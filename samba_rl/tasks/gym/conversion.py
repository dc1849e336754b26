"""Conversions between Gymnasium's spaces, actions and options and those of a task."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, final

import gymnasium
import numpy as np
import torch
from torch import Tensor

from samba_rl.errors import UserError, did_you_mean
from samba_rl.tasks import make_task
from samba_rl.tasks.task import Task

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_OPTIONS = ("state",)


def observation_space(task: Task) -> gymnasium.Space[NDArray[np.float64]]:
    """Return the space of the observations, in float64."""
    low = np.array([quantity.low for quantity in task.observations])
    high = np.array([quantity.high for quantity in task.observations])
    return gymnasium.spaces.Box(low, high, dtype=np.float64)


def action_space(task: Task) -> gymnasium.Space[NDArray[np.float32]]:
    """Return the space of the actions, in float32."""
    low, high = (bound.numpy().astype(np.float32) for bound in task.action_bounds())
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def resolve_task(task: str | Task, settings: dict[str, object]) -> Task:
    """Return the given task, or make the one of that name, with its settings replaced."""
    if isinstance(task, str):
        if "horizon" in settings:
            raise UserError(f"{task}: give the length of an episode as max_episode_steps, not horizon")
        return make_task(task, **settings)
    return dataclasses.replace(task, **settings) if settings else task  # type: ignore[arg-type]


def check_render_mode(mode: str | None) -> str | None:
    """Return the render mode; raise if it is not supported."""
    if mode not in (None, "rgb_array"):
        raise UserError(f"render_mode = {mode!r}; use 'rgb_array', or None for no pictures")
    return mode


def start_states(task: Task, options: dict[str, object] | None, n: int, shape: tuple[int, ...]) -> Tensor | None:
    """Return the states [n, nx] given to reset in `options["state"]`, of the given shape, or None."""
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


def as_actions(task: Task, actions: ArrayLike, n: int, shape: tuple[int, ...]) -> Tensor:
    """Return the actions given to step, of the given shape, as [n, nu] in float64."""
    try:
        array = np.asarray(actions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{task.name}: {actions!r} is not an action; expected numbers of shape {list(shape)}"
        ) from error
    if array.shape != shape:
        raise UserError(f"{task.name}: actions of shape {list(array.shape)}; expected {list(shape)}")
    return torch.from_numpy(array.reshape(n, -1))


@final
class Clipping:
    """Clips actions to their bounds, counts those that were outside and warns about the first."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.count = 0
        """Number of actions clipped so far."""

    def apply(self, wanted: Tensor) -> tuple[Tensor, NDArray[np.bool_]]:
        """Return the clipped actions [n, nu] and which of them were outside their bounds [n]."""
        applied = self._task.admit(wanted, len(wanted))
        if applied is wanted:
            return applied, np.zeros(len(wanted), dtype=np.bool_)
        moved = (applied != wanted).any(-1)
        if self.count == 0:
            bounds = ", ".join(action.describe() for action in self._task.actions)
            gymnasium.logger.warn(
                f"{self._task.name}: action {wanted[moved][0].tolist()} lies outside the bounds ({bounds}) and was "
                "clipped. Later ones are only counted in env.unwrapped.clipped_actions and marked in info['clipped']."
            )
        self.count += int(moved.sum())
        return applied, moved.numpy()
