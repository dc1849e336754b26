"""What `GymTask` and `check-env` need of other people's environments: making them, reading their spaces, converters."""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Callable
from typing import Any, cast, final

import gymnasium
import numpy as np
from gymnasium.spaces.utils import flatdim, flatten_space

from samba_rl.errors import UserError, did_you_mean
from samba_rl.tasks.fetch_reach import import_robots
from samba_rl.tasks.task import Quantity

Source = str | Callable[[], Any] | gymnasium.Env[Any, Any]
"""An id, a function that makes an environment, or an environment."""


@final
class FromSixTuple(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives an environment of Safety-Gymnasium, whose step has the cost as third of six, Gymnasium's step of five.

    The cost is then `info["cost"]`. An environment that gives five already goes through unchanged.
    """

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and put the cost into the info."""
        result: tuple[Any, ...] = self.env.step(action)
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            size = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
            raise UserError(
                f"{self.env}: step gave {size}. Gymnasium's step gives 5 (observation, reward, terminated, truncated, "
                "info), Safety-Gymnasium's 6 (with the cost after the reward)"
            )
        if len(result) == 5:
            return cast("tuple[Any, Any, bool, bool, dict[str, Any]]", result)
        observation, reward, cost, terminated, truncated, info = result
        return observation, reward, terminated, truncated, {**info, "cost": cost}


@final
class ToSixTuple(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives a Gymnasium environment with `info["cost"]` the step of Safety-Gymnasium, with the cost as third of six."""

    def step(self, action: Any) -> tuple[Any, Any, Any, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """Step the environment and take the cost out of the info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise UserError(
                f'{self.env}: info has no "cost" (it has {sorted(info)}), so there is none to give as third'
            )
        return observation, reward, info["cost"], terminated, truncated, info


def make_env(source: Source) -> gymnasium.Env[Any, Any]:
    """An environment without a time limit of its own, from whatever describes it, as a 5-tuple environment."""
    if isinstance(source, str):
        spec = copy.deepcopy(find_spec(source))
        # Rollouts count their steps themselves; and Gymnasium's own wrappers cannot unpack six values.
        spec.max_episode_steps = None
        try:
            env = gymnasium.make(spec, disable_env_checker=True)
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise UserError(f"{source}: cannot be made: {error}") from error
    else:
        env = source if isinstance(source, gymnasium.Env) else source()
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{name_of(source)}: made a {type(env).__name__}; a gymnasium.Env is needed")
    return FromSixTuple(env)


def find_spec(env_id: str) -> Any:
    """What Gymnasium has registered under an id; 'package:Id-v0' imports the package first."""
    module, _, bare = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UserError(f"{env_id}: the package '{module}' cannot be imported: {error}") from error
    elif bare not in gymnasium.registry:
        # Gymnasium-Robotics registers its ids when it is imported; without it there are fewer to find.
        with contextlib.suppress(ImportError):
            import_robots()
    if bare not in gymnasium.registry:
        raise UserError(
            f"Gymnasium knows no environment '{bare}' (one of your own package is written 'package:{bare}'); "
            f"{did_you_mean(bare, gymnasium.registry)}"
        )
    return gymnasium.registry[bare]


def name_of(source: Source) -> str:
    """What to call an environment in messages."""
    if isinstance(source, str):
        return source.rpartition(":")[2]
    if isinstance(source, gymnasium.Env):
        return source.spec.id if source.spec is not None else type(source.unwrapped).__name__
    return getattr(source, "__name__", repr(source))


def action_box(env: gymnasium.Env[Any, Any], name: str) -> gymnasium.spaces.Box:
    """The action space, if it is a bounded box."""
    actions = env.action_space
    if not isinstance(actions, gymnasium.spaces.Box):
        raise UserError(
            f"{name}: its actions are {actions}, not continuous; only a Box of numbers will do (torques, forces, "
            "positions). Wrap the environment so that it takes numbers, if that makes sense for it"
        )
    if not np.issubdtype(actions.dtype, np.floating):
        raise UserError(f"{name}: its actions are whole numbers ({actions}); only a Box of floating numbers will do")
    if not (np.isfinite(actions.low).all() and np.isfinite(actions.high).all()):
        raise UserError(
            f"{name}: its actions have no finite bounds ({actions}); wrap it with gymnasium.wrappers.RescaleAction or "
            "give the action space bounds"
        )
    return actions


def observed(env: gymnasium.Env[Any, Any], name: str) -> tuple[Quantity, ...]:
    """The numbers of the flattened observation."""
    try:
        size = flatdim(env.observation_space)
        box = flatten_space(env.observation_space)
    except (NotImplementedError, ValueError) as error:
        raise UserError(f"{name}: its observations ({env.observation_space}) are no fixed list of numbers") from error
    assert isinstance(box, gymnasium.spaces.Box)
    if size == 0:
        raise UserError(f"{name}: its observations ({env.observation_space}) hold no numbers")
    low, high = box.low.ravel(), box.high.ravel()
    return tuple(Quantity(f"observation {i}", "", float(low[i]), float(high[i])) for i in range(size))


def time_limit(source: Source, env: gymnasium.Env[Any, Any]) -> int | None:
    """How many steps an episode of the environment has, if it says so."""
    spec = find_spec(source) if isinstance(source, str) else env.spec
    return None if spec is None else spec.max_episode_steps
