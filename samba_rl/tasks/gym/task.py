"""Any Gymnasium environment with continuous actions as a `Task`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import gymnasium
import numpy as np
import torch
from gymnasium.spaces.utils import flatten
from numpy.typing import NDArray
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.gym.adapters import Source, action_box, make_env, name_of, observed, time_limit
from samba_rl.tasks.gym.carried import carried, carry_on
from samba_rl.tasks.simulation import Outcome, SimulatedWorld
from samba_rl.tasks.task import Quantity, Task, World

Function = Callable[[Tensor, Tensor], Tensor]
"""(states [B, nx], actions [B, nu]) -> [B], or [B, m] for a safety with m constraints."""


@final
@dataclass(frozen=True, init=False)
class GymTask(Task):
    """A Gymnasium environment as a task; its state is the flattened observation.

    What is not given as a function is measured: the cost is the negative reward, the safety cost `info["cost"]` or the
    cost of a 6-tuple environment, a violation `info["violation"]` or else any positive safety cost.
    """

    env: Source
    cost_function: Function | None
    safety_function: Function | None
    violation_function: Function | None
    done_function: Callable[[Tensor], Tensor] | None

    def __init__(
        self,
        env: Source,
        *,
        safety: Function | None = None,
        cost: Function | None = None,
        violation: Function | None = None,
        done: Callable[[Tensor], Tensor] | None = None,
        constraints: tuple[str, ...] = ("safety",),
        horizon: int | None = None,
        dt: float | None = None,
        cost_of: Literal["departure", "arrival"] = "arrival",
    ) -> None:
        """Describe the environment.

        Args:
            env: An id, a function that makes an environment, or one environment (a rig: one episode at a time).
            safety: The safety cost of states and actions, in [0, 1]; None: measured.
            cost: The cost of states and actions; None: the negative reward.
            violation: Whether states and actions are unsafe; None: measured, or a positive safety cost.
            done: Whether states [B, nx] end an episode [B], for trajectories in a model; the environment itself says
                when its own episodes end.
            constraints: The names of the safety costs.
            horizon: Steps in an episode; None: the environment's time limit.
            dt: Seconds between two steps; None: what the environment says, else 1.
            cost_of: Whether a step is charged for the state it leaves or the one it reaches.
        """
        probe, name = make_env(env), name_of(env)
        box, states = action_box(probe, name), observed(probe, name)
        steps = time_limit(env, probe) if horizon is None else horizon
        if steps is None:
            raise UserError(f"{name}: has no time limit; give the steps in an episode with horizon=...")
        seconds = dt if dt is not None else float(getattr(probe.unwrapped, "dt", 1.0))
        if not isinstance(env, gymnasium.Env):
            probe.close()
        low, high = box.low.ravel(), box.high.ravel()
        super().__init__(
            name=name,
            title=name,
            states=states,
            observations=states,
            actions=tuple(Quantity(f"action {i}", "", float(low[i]), float(high[i])) for i in range(low.size)),
            constraints=tuple(constraints),
            predicted=tuple(range(len(states))),
            horizon=steps,
            dt=seconds,
            cost_of=cost_of,
            parallel=not isinstance(env, gymnasium.Env),
            pure_start=False,
            known_dynamics=False,
        )
        own = {
            "env": env,
            "cost_function": cost,
            "safety_function": safety,
            "violation_function": violation,
            "done_function": done,
        }
        for key, value in own.items():
            object.__setattr__(self, key, value)

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Reset the environment n times: [n, nx]."""
        source = generator if generator is not None else torch.Generator().manual_seed(torch.seed())
        world = self.world(workers=0)
        try:
            states = [world.reset(1, source) for _ in range(n)]
        finally:
            if not isinstance(self.env, gymnasium.Env):
                world.close()
        return torch.cat(states).to(device=source.device, dtype=dtype)

    def observe(self, x: Tensor) -> Tensor:
        """The state: [B, nx]."""
        return x

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """The state and the action: [B, nx + nu]."""
        return torch.cat([x, u], dim=-1)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        """The cost function's: [B]."""
        if self.cost_function is None:
            raise UserError(f"{self.name}: its cost is measured, not known as a function; give one with cost=...")
        return self._checked("cost", self.cost_function(x, u), (len(x),))

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """The safety function's: [B, m]."""
        if self.safety_function is None:
            raise UserError(
                f"{self.name}: its safety cost is measured, not known as a function; give one with safety=..."
            )
        return self._columns("safety", self.safety_function, x, u)

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        if self.violation_function is None:
            return safety > 0
        return self._columns("violation", self.violation_function, x, u).bool()

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """What the done function says, else never: [B]."""
        if self.done_function is None:
            return torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return self._checked("done", self.done_function(x), (len(x),)).bool()

    def hazard_in_words(self) -> str:
        """Where the safety cost comes from."""
        if self.safety_function is None:
            return 'measured: info["cost"] or the cost of the 6-tuple'
        return f"the function {getattr(self.safety_function, '__name__', self.safety_function)!s}"

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        raise UserError(f"{self.name}: has no equations of motion; run the environment with task.world()")

    def world(self, workers: int | None = None) -> World:
        """The environment, spread over processes; a single given environment runs in this one."""
        rig = isinstance(self.env, gymnasium.Env)
        factory = GymSimulationFactory(self.env, self._measures(), self.constraints)
        return SimulatedWorld(self, factory, 0 if rig else workers, rig=rig)

    def _measures(self) -> Measures:
        return Measures(
            cost=self.cost_function is None,
            safety=self.safety_function is None,
            violation=self.violation_function is None and self.safety_function is None,
        )

    def _columns(self, what: str, function: Function, x: Tensor, u: Tensor | None) -> Tensor:
        """What a function gives for each constraint, [B, m]; with one constraint it may give [B]."""
        actions = x.new_zeros(len(x), len(self.actions)) if u is None else u
        value = function(x, actions)
        m = len(self.constraints)
        if isinstance(value, Tensor) and m == 1 and value.shape == (len(x),):
            value = value[:, None]
        return self._checked(what, value, (len(x), m))

    def _checked(self, what: str, value: Any, shape: tuple[int, ...]) -> Tensor:
        """A user's function's value, if it is a tensor of the right shape."""
        if not isinstance(value, Tensor):
            raise UserError(
                f"{self.name}: the {what} function gave a {type(value).__name__}; write it with torch operations on "
                "whole batches, so that it gives a tensor"
            )
        if value.shape != shape:
            raise UserError(
                f"{self.name}: the {what} function gave shape {list(value.shape)} for a batch of {shape[0]}; expected "
                f"{list(shape)}. Index columns as x[..., i], not x[i]"
            )
        return value


@dataclass(frozen=True)
class Measures:
    """Which figures are taken from the environment rather than from functions."""

    cost: bool
    safety: bool
    violation: bool


@dataclass(frozen=True)
class GymSimulationFactory:
    """Makes a `GymSimulation`, in whichever process it is called."""

    env: Any
    measures: Measures
    constraints: tuple[str, ...]

    def __call__(self) -> GymSimulation:
        """A simulation without episodes yet."""
        return GymSimulation(self.env, self.measures, self.constraints)


@final
class GymSimulation:
    """Numbered Gymnasium environments, made when they are first needed."""

    def __init__(self, env: Any, measures: Measures, constraints: tuple[str, ...]) -> None:
        self._source = env
        self._measures = measures
        self._constraints = constraints
        self._envs: dict[int, gymnasium.Env[Any, Any]] = {}

    def prepare(self, slot: int) -> None:
        """Make environment `slot`."""
        self._env(slot)

    def reset(self, slot: int, seed: int, x: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Reset environment `slot` with the seed."""
        if x is not None:
            raise UserError(
                "a Gymnasium environment chooses its start states itself; it cannot be put into a given one"
            )
        env = self._env(slot)
        result = env.reset(seed=seed)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise UserError(f"reset of {env} gave {type(result).__name__}; Gymnasium's gives (observation, info)")
        return self._state(env, result[0])

    def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
        """Step environment `slot` with u [nu]."""
        env = self._envs[slot]
        box = env.action_space
        assert isinstance(box, gymnasium.spaces.Box)
        observation, reward, terminated, truncated, info = env.step(u.reshape(box.shape).astype(box.dtype))
        cost, safety, violation = None, None, None
        if self._measures.cost:
            cost = -_finite(env, "reward", reward)
        if self._measures.safety:
            if "cost" not in info:
                raise UserError(
                    f'{env}: no safety cost: info has no "cost" (it has {sorted(info)}). Give one with safety=..., or '
                    'put it into info["cost"]'
                )
            values = np.asarray(info["cost"], dtype=np.float64).ravel()
            if len(values) != len(self._constraints):
                raise UserError(
                    f'{env}: info["cost"] has {len(values)} numbers for {len(self._constraints)} constraint(s)'
                )
            named = zip(self._constraints, values, strict=True)
            safety = tuple(_finite(env, 'info["cost"]', value, f" for '{name}'") for name, value in named)
        if self._measures.violation:
            given = info.get("violation")
            if given is None:
                violation = tuple(value > 0 for value in safety or ())
            else:
                violation = tuple(
                    bool(v) for v in np.broadcast_to(np.asarray(given).ravel(), (len(self._constraints),))
                )
        return Outcome(self._state(env, observation), cost, safety, violation, bool(terminated), bool(truncated))

    def render(self, slot: int, size: int) -> NDArray[np.uint8]:
        """The environment's own picture, in its own size."""
        picture = self._envs[slot].render()
        if not isinstance(picture, np.ndarray):
            raise UserError(f"{self._envs[slot]}: gives no picture; make it with render_mode='rgb_array'")
        return picture

    def close(self) -> None:
        """Close the environments that were made here."""
        if not isinstance(self._source, gymnasium.Env):
            for env in self._envs.values():
                env.close()
        self._envs.clear()

    def state(self, slot: int) -> dict[str, NDArray[Any]] | None:
        """What environment `slot` carries over resets, by name; None if it does not say with a `state_dict`."""
        return carried(self._env(slot))

    def set_state(self, slot: int, state: dict[str, NDArray[Any]]) -> None:
        """Give environment `slot` what it carried over resets."""
        carry_on(self._env(slot), state)

    def _env(self, slot: int) -> gymnasium.Env[Any, Any]:
        """Environment `slot`, made if there is none yet."""
        if slot not in self._envs:
            if isinstance(self._source, gymnasium.Env) and slot > 0:
                raise UserError(
                    "one given environment runs one episode at a time; for several at once give an id or a function "
                    "that makes environments"
                )
            self._envs[slot] = make_env(self._source)
        return self._envs[slot]

    def _state(self, env: gymnasium.Env[Any, Any], observation: Any) -> NDArray[np.float64]:
        state = np.asarray(flatten(env.observation_space, observation), dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(state))
        if bad.size:
            raise UserError(
                f"{env}: the observation holds NaN or infinity: observation {bad[0]} is {state.ravel()[bad[0]]}"
            )
        return state


def _finite(env: gymnasium.Env[Any, Any], what: str, value: Any, of: str = "") -> float:
    number = float(value)
    if not np.isfinite(number):
        raise UserError(f"{env}: {what} is {number}{of}; a cost must be a finite number")
    return number
