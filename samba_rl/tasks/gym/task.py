"""Any Gymnasium environment with continuous actions as a `Task`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, final

import gymnasium
import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks import TASKS
from samba_rl.tasks.gym.adapters import AnyEnv, Source, action_box, make_env, name_of, observed, time_limit
from samba_rl.tasks.gym.functions import checked
from samba_rl.tasks.gym.history import carried, with_history
from samba_rl.tasks.gym.names import Names, named
from samba_rl.tasks.gym.simulation import GymSimulationFactory, Measures
from samba_rl.tasks.simulation import SimulatedWorld
from samba_rl.tasks.task import Measured, Quantity, Task
from samba_rl.tasks.world import World

Function: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Function from (states [B, nx], actions [B, nu]) to [B], or to [B, m] for a safety cost with m constraints."""


@final
@dataclass(frozen=True, init=False)
class GymTask(Task):
    """A Gymnasium environment as a task, with the flattened observation, or the last few, as its state.

    Whatever is not given as a function is measured: the cost is the negative reward; the safety cost is `info["cost"]`
    or the cost of a 6-tuple environment; a violation is `info["violation"]` or else any positive safety cost.
    """

    env: Source
    """Gymnasium id, function that makes an environment, or environment."""
    cost_function: Function | None
    """Cost of states and actions; None if it is measured."""
    safety_function: Function | None
    """Safety cost of states and actions; None if it is measured."""
    violation_function: Function | None
    """True where states and actions are unsafe; None if it is measured or follows from the safety cost."""
    done_function: Callable[[Tensor], Tensor] | None
    """True where states end an episode; None if only the environment and the horizon end it."""
    history: int
    """Number of observations in the state, with the actions between them."""

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
        name: str | None = None,
        states: Names | None = None,
        actions: Names | None = None,
        history: int = 1,
    ) -> None:
        """Describe the environment.

        Args:
            env: A Gymnasium id, a function that makes an environment, or an environment (a rig: one episode at a time).
            safety: Safety cost of states and actions, in [0, 1]; None: measured.
            cost: Cost of states and actions; None: the negative reward.
            violation: True where states and actions are unsafe; None: measured, or a positive safety cost.
            done: True where states [B, nx] end an episode [B], for trajectories in a model; real episodes end when the
                environment says so.
            constraints: Names of the safety costs.
            horizon: Number of steps per episode; None: the environment's time limit.
            dt: Time between two steps, in seconds; None: the environment's `dt`, or 1.
            cost_of: State that a step is charged for: the one it leaves (departure) or the one it reaches (arrival).
            name: Name of the system; None: that of the environment.
            states: Names of the numbers of the flattened observation, with units, as in ["angle [rad]", "speed"] or
                {"angle": "rad", "speed": ""}; None: the keys of a dict observation, or numbers.
            actions: Names of the actions, likewise.
            history: Number of last observations that the state holds, newest first, followed by the actions between
                them; more than 1 if a single observation does not show what will happen next.
        """
        probe = make_env(env)
        name = _default_name(env, probe) if name is None else name
        if not name.strip() or not name.isprintable() or name in TASKS:
            raise UserError(f"a GymTask is called {name!r}; give printable text that is no name of the paper's systems")
        box, observations = action_box(probe, name), named(observed(probe, name), states, "states", name)
        steps = time_limit(env, probe) if horizon is None else horizon
        if steps is None:
            raise UserError(f"{name}: has no time limit; give the number of steps per episode with horizon=...")
        seconds = dt if dt is not None else float(getattr(probe.unwrapped, "dt", 1.0))
        if not isinstance(env, gymnasium.Env):
            probe.close()
        if not isinstance(history, int) or history < 1:
            raise UserError(f"{name}: history = {history!r} must be a whole number of at least 1 observation")
        low, high = box.low.ravel(), box.high.ravel()
        controls = tuple(Quantity(f"action {i}", "", float(low[i]), float(high[i])) for i in range(low.size))
        columns = carried(len(observations), low.size, history) if history > 1 else ()
        newest = len(observations)
        observations = with_history(observations, history, low.tolist(), high.tolist())
        super().__init__(
            name=name,
            title=name,
            states=observations,
            observations=observations,
            actions=named(controls, actions, "actions", name),
            constraints=tuple(constraints),
            predicted=tuple(range(newest)),
            carried=columns,
            horizon=steps,
            dt=seconds,
            cost_of=cost_of,
            parallel=not isinstance(env, gymnasium.Env),
            pure_start=False,
            known_dynamics=False,
            known_cost=cost is not None,
            known_safety=safety is not None,
        )
        own = {
            "env": env,
            "cost_function": cost,
            "safety_function": safety,
            "violation_function": violation,
            "done_function": done,
            "history": history,
        }
        for key, value in own.items():
            object.__setattr__(self, key, value)

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Reset the environment n times and return the start states [n, nx]."""
        source = generator if generator is not None else torch.Generator().manual_seed(torch.seed())
        world = self.world(workers=0)
        try:
            states = [world.reset(1, source) for _ in range(n)]
        finally:
            if not isinstance(self.env, gymnasium.Env):
                world.close()
        return torch.cat(states).to(device=source.device, dtype=dtype)

    def observe(self, x: Tensor) -> Tensor:
        """Return the state [B, nx]."""
        return x

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the state and the action [B, nx + nu]."""
        return torch.cat([x, u], dim=-1)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the values of the cost function [B]."""
        if self.cost_function is None:
            raise Measured(f"{self.name}: its cost is measured, not known as a function; give one with cost=...")
        return self._values("cost", self.cost_function, (x, u), (len(x),))

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the values of the safety function [B, m]."""
        if self.safety_function is None:
            raise Measured(
                f"{self.name}: its safety cost is measured, not known as a function; give one with safety=..."
            )
        return self._columns("safety", self.safety_function, x, u)

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        if self.violation_function is None:
            return safety > 0
        return self._columns("violation", self.violation_function, x, u)

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        """Return the values of the done function [B] (bool), or False without one."""
        if self.done_function is None:
            return torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return self._values("done", self.done_function, (x,), (len(x),))

    def hazard_in_words(self) -> str:
        """Name the origin of the safety cost."""
        if self.safety_function is None:
            return 'measured: info["cost"] or the cost of the 6-tuple'
        name = getattr(self.safety_function, "__name__", "")
        return "a function of states and actions" if name in ("", "<lambda>") else f"the function {name}"

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        raise UserError(f"{self.name}: has no equations of motion; run the environment with task.world()")

    def world(self, workers: int | None = None) -> World:
        """Return a world that runs copies of the environment in `workers` processes; a rig runs in this process."""
        rig = isinstance(self.env, gymnasium.Env)
        measures = Measures(
            cost=self.cost_function is None,
            safety=self.safety_function is None,
            violation=self.violation_function is None and self.safety_function is None,
        )
        factory = GymSimulationFactory(self.env, measures, self.constraints, self.history)
        return SimulatedWorld(self, factory, 0 if rig else workers, rig=rig)

    def _columns(self, what: str, function: Function, x: Tensor, u: Tensor | None) -> Tensor:
        """Return the values of a function by constraint [B, m]; with one constraint it may return [B]."""
        actions = x.new_zeros(len(x), len(self.actions)) if u is None else u
        return self._values(what, function, (x, actions), (len(x), len(self.constraints)))

    def _values(
        self, what: str, function: Callable[..., Tensor], arguments: tuple[Tensor, ...], shape: tuple[int, ...]
    ) -> Tensor:
        """Return the values of the user's function `what`; see `checked`."""
        owner = f"{self.name}: the {what} function"
        try:
            value: object = function(*arguments)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{owner} raised {type(error).__name__} on a batch of {shape[0]}: {error}") from error
        return checked(owner, value, shape, arguments[0].dtype, truth=what in ("violation", "done"))


def _default_name(env: Source, probe: AnyEnv) -> str:
    """Return the name of an environment for folders and tables."""
    name = name_of(env)
    if not name.isprintable() or name.startswith("<") or isinstance(env, partial):
        # A lambda or a partial has no name of its own.
        return name_of(probe)
    return name
