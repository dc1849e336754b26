"""Adapters for Gymnasium environments: make them, read their spaces, convert between 5-tuple and 6-tuple steps."""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Callable
from typing import Any, SupportsFloat, TypeAlias, cast, final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces.utils import flatdim, flatten_space

from samba_rl.errors import UserError, did_you_mean
from samba_rl.tasks.fetch_reach import import_robots
from samba_rl.tasks.gym.names import default_names
from samba_rl.tasks.task import Quantity

AnyEnv: TypeAlias = gymnasium.Env[Any, Any]
"""A Gymnasium environment with any observations and actions."""
Source: TypeAlias = str | Callable[[], object] | AnyEnv
"""A Gymnasium id, a function that makes an environment, or an environment."""
Info: TypeAlias = dict[str, Any]
"""Info dict of a Gymnasium environment."""
FiveTuple: TypeAlias = tuple[Any, SupportsFloat, bool, bool, Info]
"""Result of Gymnasium's step: observation, reward, terminated, truncated, info."""
SixTuple: TypeAlias = tuple[Any, SupportsFloat, Any, bool, bool, Info]
"""Result of Safety-Gymnasium's step: observation, reward, cost, terminated, truncated, info."""


@final
class FromSixTuple(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Converts the 6-tuple step of a Safety-Gymnasium environment to Gymnasium's 5-tuple.

    The cost moves to `info["cost"]`. The step of a 5-tuple environment is passed through unchanged.
    """

    def step(self, action: object) -> FiveTuple:
        """Step the environment and move the cost into the info."""
        result: object = self.env.step(action)
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            size = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
            raise UserError(
                f"{self.env}: step returned {size}; expected Gymnasium's 5 (observation, reward, terminated, "
                "truncated, info) or Safety-Gymnasium's 6 (with the cost after the reward)"
            )
        if len(result) == 5:
            return cast("FiveTuple", result)
        observation, reward, cost, terminated, truncated, info = cast("SixTuple", result)
        return observation, reward, terminated, truncated, {**info, "cost": cost}


@final
class ToSixTuple(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Converts the step of a Gymnasium environment with `info["cost"]` to Safety-Gymnasium's 6-tuple."""

    def step(self, action: object) -> SixTuple:  # type: ignore[override]
        """Step the environment and return the cost from the info as the third value."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise UserError(
                f'{self.env}: info has no "cost" to return as the third value (it has {sorted(info)}); add it to info'
            )
        return observation, reward, info["cost"], terminated, truncated, info


def make_env(source: Source) -> AnyEnv:
    """Make the environment that `source` describes, with a 5-tuple step and without a time limit."""
    if isinstance(source, str):
        spec = copy.deepcopy(find_spec(source))
        # Rollouts count their steps themselves, and Gymnasium's own wrappers cannot unpack six values.
        spec.max_episode_steps = None
        try:
            env: object = gymnasium.make(spec, disable_env_checker=True)
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise UserError(f"{source}: cannot be made: {error}") from error
    else:
        env = source if isinstance(source, gymnasium.Env) else source()
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{name_of(source)}: made a {type(env).__name__}; expected a gymnasium.Env")
    return FromSixTuple(env)


def find_spec(env_id: str) -> EnvSpec:
    """Return the registered spec of an id; 'package:Id-v0' imports the package first."""
    module, _, bare = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UserError(f"{env_id}: the package '{module}' cannot be imported: {why}") from error
    elif bare not in gymnasium.registry:
        # Gymnasium-Robotics registers its ids when it is imported, if it is installed.
        with contextlib.suppress(ImportError):
            import_robots()
    if bare not in gymnasium.registry:
        raise UserError(
            f"Gymnasium knows no environment '{bare}' (write one from your own package as 'package:{bare}'); "
            f"{did_you_mean(bare, gymnasium.registry)}"
        )
    return gymnasium.registry[bare]


def name_of(source: Source) -> str:
    """Return the name of an environment for messages."""
    if isinstance(source, str):
        return source.rpartition(":")[2]
    if isinstance(source, gymnasium.Env):
        return source.spec.id if source.spec is not None else type(source.unwrapped).__name__
    return getattr(source, "__name__", repr(source))


def action_box(env: AnyEnv, name: str) -> gymnasium.spaces.Box:
    """Return the action space; raise unless it is a bounded box of floating-point numbers."""
    actions = env.action_space
    if not isinstance(actions, gymnasium.spaces.Box):
        raise UserError(
            f"{name}: its actions are {actions}, not continuous; only a Box of floating-point numbers is supported. "
            "Wrap the environment so that it takes such actions, if that makes sense for it"
        )
    if not np.issubdtype(actions.dtype, np.floating):
        raise UserError(
            f"{name}: its actions are integers ({actions}); only a Box of floating-point numbers is supported"
        )
    if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
        raise UserError(
            f"{name}: its actions have no finite bounds ({actions}); wrap it with gymnasium.wrappers.RescaleAction or "
            "give the action space bounds"
        )
    return actions


def observed(env: AnyEnv, name: str) -> tuple[Quantity, ...]:
    """Return the components of the flattened observation."""
    try:
        size = flatdim(env.observation_space)
        box = flatten_space(env.observation_space)
    except (NotImplementedError, ValueError) as error:
        raise UserError(
            f"{name}: its observations ({env.observation_space}) cannot be flattened to a fixed number of values"
        ) from error
    assert isinstance(box, gymnasium.spaces.Box)
    if size == 0:
        raise UserError(f"{name}: its observations ({env.observation_space}) are empty")
    low, high = box.low.ravel(), box.high.ravel()
    names = default_names(env.observation_space, "observation")
    return tuple(Quantity(names[i], "", float(low[i]), float(high[i])) for i in range(size))


def time_limit(source: Source, env: AnyEnv) -> int | None:
    """Return the number of steps per episode of the environment, or None if it has no limit."""
    spec = find_spec(source) if isinstance(source, str) else env.spec
    return None if spec is None else spec.max_episode_steps
