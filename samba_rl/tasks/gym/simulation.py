"""Numbered Gymnasium environments as a `Simulation`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import SupportsFloat, final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces.utils import flatten
from numpy.typing import NDArray

from samba_rl.errors import UserError
from samba_rl.tasks.gym.adapters import AnyEnv, Info, Source, make_env
from samba_rl.tasks.gym.history import History
from samba_rl.tasks.gym.persistence import restore_state, saved_state
from samba_rl.tasks.gym.registered import register_all, registered_here
from samba_rl.tasks.simulation import Outcome


@dataclass(frozen=True)
class Measures:
    """Costs that are measured by the environment rather than computed by functions."""

    cost: bool
    """True if the cost is the negative reward."""
    safety: bool
    """True if the safety cost is `info["cost"]`."""
    violation: bool
    """True if a violation is `info["violation"]` or, without it, a positive safety cost."""


@dataclass(frozen=True)
class GymSimulationFactory:
    """Makes a `GymSimulation` in the process in which it is called."""

    source: Source
    """Environments to simulate."""
    measures: Measures
    """Costs that the environments measure."""
    constraints: tuple[str, ...]
    """Names of the safety costs."""
    history: int = 1
    """Number of observations in the state."""

    def __call__(self) -> GymSimulation:
        """Make a simulation without episodes."""
        return GymSimulation(self.source, self.measures, self.constraints, self.history)

    def __reduce__(self) -> tuple[Callable[..., GymSimulationFactory], tuple[object, ...]]:
        """Take along what is registered here, since an id may be that of a user's own environment."""
        return _received, (registered_here(), self.source, self.measures, self.constraints, self.history)


def _received(
    specs: Sequence[EnvSpec], source: Source, measures: Measures, constraints: tuple[str, ...], history: int
) -> GymSimulationFactory:
    """Make a factory in another process."""
    register_all(specs)
    return GymSimulationFactory(source, measures, constraints, history)


@final
class GymSimulation:
    """Numbered Gymnasium environments, made when they are first needed."""

    def __init__(self, source: Source, measures: Measures, constraints: tuple[str, ...], history: int = 1) -> None:
        self._source, self._history = source, history
        self._measures = measures
        self._constraints = constraints
        self._envs: dict[int, AnyEnv] = {}

    def prepare(self, slot: int) -> None:
        """Make environment `slot`."""
        self._env(slot)

    def reset(self, slot: int, seed: int, x: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Reset environment `slot` with the seed and return its state [nx]."""
        if x is not None:
            raise UserError("a Gymnasium environment chooses its own start states; it cannot start in a given state")
        env = self._env(slot)
        result: object = env.reset(seed=seed)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise UserError(f"{env}: reset returned a {type(result).__name__}; expected (observation, info)")
        return self._state(env, result[0])

    def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
        """Step environment `slot` with action u [nu]."""
        env = self._envs[slot]
        box = env.action_space
        assert isinstance(box, gymnasium.spaces.Box)
        observation, reward, terminated, truncated, info = env.step(u.reshape(box.shape).astype(box.dtype))
        cost = -_finite(env, "reward", reward) if self._measures.cost else None
        safety = self._safety(env, info) if self._measures.safety else None
        violation = self._violation(info, safety or ()) if self._measures.violation else None
        return Outcome(self._state(env, observation), cost, safety, violation, bool(terminated), bool(truncated))

    def render(self, slot: int, size: int) -> NDArray[np.uint8]:
        """Return the environment's own picture, in its own size."""
        picture = self._envs[slot].render()
        if not isinstance(picture, np.ndarray):
            raise UserError(f"{self._envs[slot]}: returned no picture; make it with render_mode='rgb_array'")
        return picture

    def close(self) -> None:
        """Close the environments that were made here."""
        if not isinstance(self._source, gymnasium.Env):
            for env in self._envs.values():
                env.close()
        self._envs.clear()

    def state(self, slot: int) -> dict[str, NDArray[np.generic]] | None:
        """Return what environment `slot` keeps across resets, by name, or None if it keeps nothing."""
        return saved_state(self._env(slot))

    def set_state(self, slot: int, state: dict[str, NDArray[np.generic]]) -> None:
        """Restore what environment `slot` kept across resets."""
        restore_state(self._env(slot), state)

    def _env(self, slot: int) -> AnyEnv:
        """Return environment `slot`, making it on first use."""
        if slot not in self._envs:
            if isinstance(self._source, gymnasium.Env) and slot > 0:
                raise UserError(
                    "a single environment runs one episode at a time; to run several at once, give an id or a function "
                    "that makes environments"
                )
            env = make_env(self._source)
            self._envs[slot] = env if self._history == 1 else History(env, self._history)
        return self._envs[slot]

    def _safety(self, env: AnyEnv, info: Info) -> tuple[float, ...]:
        """Return the measured safety costs [m]."""
        if "cost" not in info:
            raise UserError(
                f'{env}: no safety cost: info has no "cost" (it has {sorted(info)}). Give a function with safety=..., '
                'or add info["cost"]'
            )
        values = np.asarray(info["cost"], dtype=np.float64).ravel()
        if len(values) != len(self._constraints):
            raise UserError(f'{env}: info["cost"] has {len(values)} numbers for {len(self._constraints)} constraint(s)')
        named = zip(self._constraints, values, strict=True)
        return tuple(_finite(env, 'info["cost"]', value, f" for '{name}'") for name, value in named)

    def _violation(self, info: Info, safety: tuple[float, ...]) -> tuple[bool, ...]:
        """Return the measured violations [m], or True for positive safety costs [m] if they are not measured."""
        given = info.get("violation")
        if given is None:
            return tuple(value > 0 for value in safety)
        return tuple(bool(v) for v in np.broadcast_to(np.asarray(given).ravel(), (len(self._constraints),)))

    def _state(self, env: AnyEnv, observation: object) -> NDArray[np.float64]:
        """Return the flattened observation [nx]; raise if it is not finite."""
        state = np.asarray(flatten(env.observation_space, observation), dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(state))
        if bad.size:
            raise UserError(
                f"{env}: the observation holds NaN or infinity: observation {bad[0]} is {state.ravel()[bad[0]]}"
            )
        return state


def _finite(env: AnyEnv, what: str, value: SupportsFloat, of: str = "") -> float:
    number = float(value)
    if not np.isfinite(number):
        raise UserError(f"{env}: {what} is {number}{of}; a cost must be a finite number")
    return number
