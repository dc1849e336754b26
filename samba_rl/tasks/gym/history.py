"""Observations that contain those of earlier steps, and the actions in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium.spaces.utils import flatten
from numpy.typing import NDArray

from samba_rl.tasks.gym.adapters import AnyEnv, FiveTuple, Info, observed
from samba_rl.tasks.task import Quantity


@final
class History(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observes the last k observations, newest first, and then the k - 1 actions between them, newest first.

    At the start of an episode the first observation stands for the earlier ones, and the earlier actions are zero.
    """

    def __init__(self, env: AnyEnv, k: int) -> None:
        super().__init__(env)
        box = env.action_space
        assert isinstance(box, gymnasium.spaces.Box)
        self._width = box.low.size
        self._observations: deque[NDArray[np.float64]] = deque(maxlen=k)
        self._actions: deque[NDArray[np.float64]] = deque(maxlen=k - 1)
        states = with_history(observed(env, str(env)), k, box.low.ravel().tolist(), box.high.ravel().tolist())
        low, high = (np.array([getattr(each, end) for each in states]) for end in ("low", "high"))
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float64], Info]:
        """Start an episode with a history of its first observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        k = self._observations.maxlen or 1
        self._observations.extend([self._flat(observation)] * k)
        self._actions.extend([np.zeros(self._width)] * (k - 1))
        return self._stacked(), info

    def step(self, action: Any) -> FiveTuple:
        """Step the environment and add the action and the observation to the history."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._actions.appendleft(np.asarray(action, dtype=np.float64).ravel())
        self._observations.appendleft(self._flat(observation))
        return self._stacked(), reward, terminated, truncated, info

    def _flat(self, observation: object) -> NDArray[np.float64]:
        return np.asarray(flatten(self.env.observation_space, observation), dtype=np.float64)

    def _stacked(self) -> NDArray[np.float64]:
        return np.concatenate([*self._observations, *self._actions])


def with_history(
    now: tuple[Quantity, ...], k: int, low: Sequence[float], high: Sequence[float]
) -> tuple[Quantity, ...]:
    """Return the components of a state that holds k observations `now` and the actions between them."""
    past = [
        Quantity(f"{one.name}, {age} step{'s' * (age > 1)} ago", one.unit, one.low, one.high)
        for age in range(1, k)
        for one in now
    ]
    actions = [
        # Zero, which stands for actions before the start, may lie outside the bounds.
        Quantity(f"action {i}, {age} step{'s' * (age > 1)} ago", "", min(low[i], 0.0), max(high[i], 0.0))
        for age in range(1, k)
        for i in range(len(low))
    ]
    return (*now, *past, *actions)


def carried(observations: int, actions: int, k: int) -> tuple[int, ...]:
    """Return, for each column of the next state, the column of (state, action) that it holds before the prediction.

    The newest observation is predicted, so it begins from itself; everything else moves back by one step.
    """
    newest, past = range(observations), range(observations * (k - 1))
    state = observations * k + actions * (k - 1)
    given = range(state, state + actions) if k > 1 else ()
    earlier = range(observations * k, observations * k + actions * max(0, k - 2))
    return (*newest, *past, *given, *earlier)
