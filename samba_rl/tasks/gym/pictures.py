"""Environments that draw themselves, where they can."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING

import gymnasium

from samba_rl.tasks.gym.adapters import AnyEnv, Source, find_spec, make_env

if TYPE_CHECKING:
    from samba_rl.tasks.gym.task import GymTask

MODE = "rgb_array"


def drawing(task: GymTask) -> GymTask | None:
    """Return the task with environments that return pictures; None if they cannot."""
    if isinstance(task.env, gymnasium.Env):
        # A rig: it draws what it was made to draw.
        return task if task.env.render_mode == MODE else None
    source = partial(_made, task.env)
    probe = source()
    draws = probe.render_mode == MODE
    probe.close()
    if not draws:
        return None
    drawn = copy.copy(task)
    object.__setattr__(drawn, "env", source)
    return drawn


def _made(source: Source) -> AnyEnv:
    """Make an environment that draws itself if its class says that it can."""
    if isinstance(source, str):
        spec = copy.deepcopy(find_spec(source))
        spec.max_episode_steps = None
        made = gymnasium.make(spec, disable_env_checker=True)
        if MODE in made.metadata.get("render_modes", ()):
            made.close()
            made = gymnasium.make(spec, disable_env_checker=True, render_mode=MODE)
        return made
    made = make_env(source)
    if made.render_mode is None and MODE in made.metadata.get("render_modes", ()):
        # The function that makes it takes no arguments, and environments look at their mode when they draw.
        made.unwrapped.render_mode = MODE
    return made
