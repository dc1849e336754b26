"""Systems that run outside torch (MuJoCo, any Gymnasium environment) as a `World` of many episodes.

A `Simulation` holds numbered episodes and steps them one by one. `SimulatedWorld` distributes the episodes of a batch
over several processes, each with its own simulation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

import numpy as np
import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.faults.pool import SimulationPool
from samba_rl.tasks.world import Charges, Step

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from samba_rl.tasks.task import Task


@dataclass(frozen=True)
class Outcome:
    """Result of one step of one episode; None marks a value that the simulation does not measure."""

    x: NDArray[np.float64]
    """State reached [nx]."""
    cost: float | None = None
    """Cost of the step."""
    safety: tuple[float, ...] | None = None
    """Safety cost of the step, by constraint [m]."""
    violation: tuple[bool, ...] | None = None
    """True where the step ended in the unsafe region, by constraint [m]."""
    terminated: bool = False
    """True if the system itself ended the episode."""
    truncated: bool = False
    """True if the system cut the episode short without ending it."""


class Simulation(Protocol):
    """Numbered episodes of one system.

    Three methods are optional: `prepare(slot)` creates whatever an episode needs before its first reset; `state(slot)`
    returns what the system keeps across resets as arrays by name (None: nothing), and `set_state(slot, state)` restores
    it.
    """

    def reset(self, slot: int, seed: int, x: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Start a new episode `slot`, in state x [nx] if given, and return its state [nx]."""
        ...

    def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
        """Step episode `slot` with action u [nu]."""
        ...

    def render(self, slot: int, size: int) -> NDArray[np.uint8]:
        """Return a picture [size, size, 3] of episode `slot`."""
        ...

    def close(self) -> None:
        """Release the resources of the simulation."""
        ...


@final
class SimulatedWorld:
    """A `World` whose episodes run on simulations.

    The processes start with the first batch of more than one episode. A single episode runs in this process, unless
    the world is isolated or has a `timeout`: only a separate process can die or be killed without taking this along.
    """

    def __init__(
        self,
        task: Task,
        factory: Callable[[], Simulation],
        workers: int | None = None,
        start: Callable[[int, Generator], Tensor] | None = None,
        *,
        rig: bool = False,
    ) -> None:
        """Create a world on simulations made by `factory`, in `workers` processes (None: one per core; 0: none).

        `start` draws the start states [n, nx]; without it, the simulation chooses its own. A failed simulation is
        replaced at the next full reset, except for a `rig`, of which there is only one.
        """
        if workers is not None and workers < 0:
            raise UserError(f"{task.name}: workers = {workers}; give 0 (this process) or a number of processes")
        self.task = task
        self._start = start
        self._pool = SimulationPool(factory, (os.cpu_count() or 1) if workers is None else workers, rig=rig)

    @property
    def timeout(self) -> float | None:
        """Return the seconds that one reset or step of an episode may take; None means no limit."""
        return self._pool.timeout

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        """Set the time limit; call this before the first reset."""
        self._pool.timeout = seconds

    def isolate(self) -> None:
        """Run single episodes in a process of their own too, so that a simulation that dies leaves this one alive."""
        self._pool.isolated = True

    @property
    def hung(self) -> bool:
        """Return True if a simulation in this process has not returned in time; it can be neither used nor ended."""
        return self._pool.hung

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n new episodes and return their states [n, nx]; see `World.reset`."""
        if slots is None:
            self._pool.prepare(n)
            places = list(range(n))
        else:
            places = [int(slot) for slot in slots]
        seeds = torch.randint(2**31, (n,), generator=generator, device=generator.device).tolist()
        if x is None and self._start is not None:
            x = self._start(n, generator)
        starts = [None] * n if x is None else list(x.detach().cpu().double().numpy())
        states = self._pool.call("reset", places, list(zip(seeds, starts, strict=True)))
        for state in states:
            if error := self._size_error("reset", "a state", state, len(self.task.states)):
                raise error
        return torch.from_numpy(np.stack(states))

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Step the active episodes; the others keep their state and cost nothing."""
        step, failures = self.try_step(x, u, active)
        for error in failures.values():
            raise error
        return step

    def try_step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> tuple[Step, dict[int, Exception]]:
        """Step the active episodes and return the step and the exceptions of those that failed, by episode.

        Failed and inactive episodes keep their state and cost nothing.
        """
        places = list(range(len(x))) if active is None else active.nonzero()[:, 0].tolist()
        actions = u.detach().cpu().double().numpy()
        outcomes: dict[int, Outcome] = {}
        failures: dict[int, Exception] = {}
        answers = self._pool.try_call("step", places, [(actions[i],) for i in places])
        for place, (ok, result) in zip(places, answers, strict=True):
            if not ok:
                failures[place] = result
            elif error := self._outcome_error(result):
                failures[place] = error
            else:
                outcomes[place] = result
        rows = torch.tensor(list(outcomes), dtype=torch.long)
        x_next = x.clone()
        terminated, truncated = (torch.zeros(len(x), dtype=torch.bool) for _ in range(2))
        m = len(self.task.constraints)
        charges = Charges(x.new_zeros(len(x)), x.new_zeros(len(x), m), torch.zeros(len(x), m, dtype=torch.bool))
        if outcomes:
            each = list(outcomes.values())
            x_next[rows] = torch.from_numpy(np.stack([outcome.x for outcome in each])).to(x)
            terminated[rows] = torch.tensor([outcome.terminated for outcome in each])
            truncated[rows] = torch.tensor([outcome.truncated for outcome in each])
            for total, part in zip(charges, self._charge(x[rows], u[rows], x_next[rows], each), strict=True):
                total[rows] = part
        return Step(x_next, charges, terminated, truncated), failures

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """Return the simulation's own picture of episode `slot`."""
        picture: NDArray[np.uint8] = self._pool.call("render", [slot], [(size,)])[0]
        return picture

    def close(self) -> None:
        """Close the simulations and end the processes."""
        self._pool.close()

    def state_dict(self) -> dict[str, Tensor]:
        """Return what the simulations keep across resets, as "slot/name", and the number of "episodes".

        The result is empty if they keep nothing. Simulations that failed are left out, because they will be replaced.
        """
        if self.hung:
            return {}
        slots = self._pool.intact_slots()
        states = self._pool.call("state", slots, [()] * len(slots))
        state = {
            f"{slot}/{name}": torch.from_numpy(value)
            for slot, values in zip(slots, states, strict=True)
            for name, value in (values or {}).items()
        }
        return {"episodes": torch.tensor(self._pool.episodes), **state} if state else {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned, in simulations for the same number of episodes."""
        if not state:
            return
        n = int(state.get("episodes", 0))
        by_slot: dict[int, dict[str, NDArray[np.generic]]] = {}
        for key in state.keys() - {"episodes"}:
            slot, _, name = key.partition("/")
            if not (name and slot.isdecimal() and int(slot) < n):
                raise UserError(
                    f"{self.task.name}: the state of {n} episodes has an unexpected entry '{key}'; pass the dict that "
                    "state_dict() returned, unchanged"
                )
            by_slot.setdefault(int(slot), {})[name] = state[key].numpy(force=True).copy()
        self._pool.prepare(n)
        self._pool.call("set_state", list(by_slot), [(values,) for values in by_slot.values()])

    def _charge(self, x: Tensor, u: Tensor, x_next: Tensor, outcomes: list[Outcome]) -> Charges:
        """Return the measured costs, with the task's functions in place of those that were not measured."""
        at = x if self.task.cost_of == "departure" else x_next
        first = outcomes[0]
        cost = self.task._cost(at, u) if first.cost is None else x.new_tensor([each.cost for each in outcomes])
        if first.safety is None:
            safety = self.task.safety(x_next, u)
        else:
            safety = x.new_tensor([each.safety for each in outcomes])
        if first.violation is None:
            violation = self.task._violation(x_next, u, safety)
        else:
            violation = torch.tensor([each.violation for each in outcomes])
        return Charges(cost, safety, violation)

    def _outcome_error(self, outcome: Outcome) -> UserError | None:
        """Return an error for the first part of an outcome that has the wrong size, or None."""
        m = len(self.task.constraints)
        error = self._size_error("step", "a state", outcome.x, len(self.task.states))
        for what, values in (("safety costs", outcome.safety), ("violations", outcome.violation)):
            if error is None and values is not None and len(values) != m:
                error = self._size_error("step", what, values, m)
        return error

    def _size_error(self, method: str, what: str, value: ArrayLike, size: int) -> UserError | None:
        shape = np.shape(value)
        if shape == (size,):
            return None
        return UserError(f"{self.task.name}: {method} returned {what} of shape {list(shape)}; expected [{size}]")
