"""Systems that run one at a time, outside torch (MuJoCo, any Gymnasium environment), as a `World` of many episodes.

A `Simulation` holds numbered episodes and steps them one by one. `SimulatedWorld` spreads the episodes of a batch over
a few processes, each with a simulation of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.faults.processes import Worker, ask_workers
from samba_rl.tasks.faults.timed import START_LIMIT, Answer, Here
from samba_rl.tasks.task import Charges, Step, Task


@dataclass(frozen=True)
class Outcome:
    """What came of one step of one episode; None where the simulation does not measure it."""

    x: NDArray[np.float64]
    """[nx]"""
    cost: float | None = None
    safety: tuple[float, ...] | None = None
    """[m]"""
    violation: tuple[bool, ...] | None = None
    """[m]"""
    terminated: bool = False
    truncated: bool = False


class Simulation(Protocol):
    """Numbered episodes of one system.

    It may also have `prepare(slot)`, which makes what an episode needs ahead of its first reset; and, if it carries
    anything over resets, `state(slot)`, which gives that as arrays by name (None: nothing), and `set_state(slot,
    state)`.
    """

    def reset(self, slot: int, seed: int, x: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Start episode `slot` afresh, at the state x [nx] if it is given, and give its state [nx]."""
        ...

    def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
        """Step episode `slot` with the action u [nu]."""
        ...

    def render(self, slot: int, size: int) -> NDArray[np.uint8]:
        """A picture [size, size, 3] of episode `slot`."""
        ...

    def close(self) -> None:
        """Let go of what the simulation holds."""
        ...


@final
class SimulatedWorld:
    """A `World` of simulations. Episode i lives in worker i modulo their number.

    The processes start with the first batch of more than one episode; a single episode runs in this process, unless
    there is a `timeout`: a process that hangs can be ended.
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
        """`start` draws the states [n, nx] that episodes begin in; without it the simulation draws its own.

        A `rig` is there once and cannot be made anew after a failure, as simulations are with the next whole reset.
        """
        if workers is not None and workers < 0:
            raise UserError(f"{task.name}: workers = {workers}; give 0 (this process) or a number of processes")
        self.task = task
        self.timeout: float | None = None
        """Seconds that one reset or one step of an episode may take; to be set before the first one. None: for ever."""
        self._factory = factory
        self._start = start
        self._rig = rig
        self._wanted = os.cpu_count() or 1 if workers is None else workers
        self._workers: list[Worker] = []
        self._here = Here(factory)
        self._spread = False

    @property
    def hung(self) -> bool:
        """Whether a simulation in this process has not answered in time: it can be neither asked nor ended."""
        return self._here.hung

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n episodes: see `World.reset`."""
        if slots is None:
            self._arrange(n)
            places = list(range(n))
        else:
            places = [int(slot) for slot in slots]
        seeds = torch.randint(2**31, (n,), generator=generator, device=generator.device).tolist()
        if x is None and self._start is not None:
            x = self._start(n, generator)
        starts = [None] * n if x is None else list(x.detach().cpu().double().numpy())
        states = self._call("reset", places, list(zip(seeds, starts, strict=True)))
        for state in states:
            if misfit := self._misfit("reset", "a state", state, len(self.task.states)):
                raise misfit
        return torch.from_numpy(np.stack(states))

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Step the active episodes; the others stay where they are and cost nothing."""
        step, failures = self.try_step(x, u, active)
        for error in failures.values():
            raise error
        return step

    def try_step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> tuple[Step, dict[int, Exception]]:
        """The same, with what each episode that could not be stepped failed with; it stays and costs nothing."""
        places = list(range(len(x))) if active is None else active.nonzero()[:, 0].tolist()
        actions = u.detach().cpu().double().numpy()
        outcomes: dict[int, Outcome] = {}
        failures: dict[int, Exception] = {}
        answers = self._ask("step", places, [(actions[i],) for i in places])
        for place, (fine, result) in zip(places, answers, strict=True):
            if not fine:
                failures[place] = result
            elif misfit := self._misfits(result):
                failures[place] = misfit
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

    def _charge(self, x: Tensor, u: Tensor, x_next: Tensor, outcomes: list[Outcome]) -> Charges:
        """What was measured, and from the task's functions what was not."""
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

    def _misfits(self, outcome: Outcome) -> UserError | None:
        """What is wrong with the size of an outcome's parts."""
        m = len(self.task.constraints)
        misfit = self._misfit("step", "a state", outcome.x, len(self.task.states))
        for what, values in (("safety costs", outcome.safety), ("violations", outcome.violation)):
            if values is not None and len(values) != m:
                misfit = misfit or self._misfit("step", what, values, m)
        return misfit

    def _misfit(self, method: str, what: str, value: Any, size: int) -> UserError | None:
        shape = np.shape(value)
        if shape == (size,):
            return None
        return UserError(f"{self.task.name}: {method} gave {what} of shape {list(shape)}; expected [{size}]")

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """The simulation's own picture: see `World.render`."""
        picture: NDArray[np.uint8] = self._call("render", [slot], [(size,)])[0]
        return picture

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._spread = False
        self._here.close(self.timeout)
        if not self.hung:
            self._here = Here(self._factory)

    # What environments carry over resets ----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """What the environments carry from one episode to the next, as "slot/name", and how many "episodes" there are.

        Empty if they carry nothing. Simulations that failed are left out: they are made anew.
        """
        if self.hung:
            return {}
        homes = self._homes()
        slots = sorted(slot for home in homes if not self._lost(home) for slot in home.slots)
        states = self._call("state", slots, [()] * len(slots))
        state = {
            f"{slot}/{name}": torch.from_numpy(value)
            for slot, values in zip(slots, states, strict=True)
            for name, value in (values or {}).items()
        }
        if not state:
            return {}
        return {"episodes": torch.tensor(1 + max(slot for home in homes for slot in home.slots)), **state}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Give what `state_dict` gave to simulations that live where those of so many episodes will."""
        if not state:
            return
        n = int(state.get("episodes", 0))
        by_slot: dict[int, dict[str, NDArray[Any]]] = {}
        for key in state.keys() - {"episodes"}:
            slot, _, name = key.partition("/")
            if not (name and slot.isdecimal() and int(slot) < n):
                raise UserError(
                    f"{self.task.name}: the state of its environments, of {n} episodes, has an entry '{key}'; give it "
                    "as state_dict() gave it"
                )
            by_slot.setdefault(int(slot), {})[name] = state[key].numpy(force=True).copy()
        self._arrange(n)
        self._call("set_state", list(by_slot), [(values,) for values in by_slot.values()])

    # Where episodes live --------------------------------------------------------------------------------------------

    def _arrange(self, n: int) -> None:
        """Have simulations ready for n episodes; those that have failed are made anew."""
        self._spread = self._wanted > 0 and (n > 1 or self.timeout is not None)
        if not self._spread:
            if self._lost(self._here) and not self.hung:
                # What has failed may fail to close as well.
                with contextlib.suppress(Exception):
                    self._here.close(self.timeout)
                self._here = self._here if self.hung else Here(self._factory)
        else:
            for i, worker in enumerate(self._workers):
                if self._lost(worker):
                    worker.close()
                    self._workers[i] = Worker(self._factory)
            while len(self._workers) < min(self._wanted, n):
                self._workers.append(Worker(self._factory))
        new = [slot for slot in range(n) if slot not in self._home(slot).slots]
        if new:
            self._call("prepare", new, [()] * len(new))
        for slot in new:
            self._home(slot).slots.add(slot)

    def _lost(self, home: Here | Worker) -> bool:
        """Whether a simulation will not be used for other episodes."""
        return (home.spoilt and not self._rig) or (isinstance(home, Worker) and home.failure is not None)

    def _homes(self) -> Sequence[Here | Worker]:
        return self._workers if self._spread else [self._here]

    def _home(self, slot: int) -> Here | Worker:
        return self._workers[slot % len(self._workers)] if self._spread else self._here

    def _call(self, method: str, slots: list[int], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method for each slot, side by side where there are processes; results in the order of `slots`."""
        answers = self._ask(method, slots, arguments)
        for fine, result in answers:
            if not fine:
                raise result
        return [result for _, result in answers]

    def _ask(self, method: str, slots: list[int], arguments: Sequence[tuple[Any, ...]]) -> list[Answer]:
        """The same, as answers of which each may be a failure."""
        timeout = self.timeout
        if timeout is not None and method not in ("reset", "step"):
            timeout = max(timeout, START_LIMIT)
        calls = [(slot, *rest) for slot, rest in zip(slots, arguments, strict=True)]
        if not self._spread:
            answers = self._here.ask(method, calls, timeout)
        else:
            count = len(self._workers)
            shares = [[i for i, slot in enumerate(slots) if slot % count == w] for w in range(count)]
            questions = [(self._workers[w], [calls[i] for i in share]) for w, share in enumerate(shares) if share]
            by_worker = zip(
                (i for share in shares for i in share), ask_workers(questions, method, timeout), strict=True
            )
            answers = [answer for _, answer in sorted(by_worker, key=lambda pair: pair[0])]
        for slot, (fine, result) in zip(slots, answers, strict=True):
            # A `UserError` is what was found wrong with an answer; other exceptions came from inside.
            if not fine and method not in ("render", "state") and not isinstance(result, UserError):
                self._home(slot).spoilt = True
        return answers
