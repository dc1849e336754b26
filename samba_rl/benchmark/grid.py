"""The grid: its cells, and the loop that runs the unfinished ones in parallel and survives the failure of any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, final

from samba_rl.benchmark.cells import Cell, CellResult, read_result, write_result
from samba_rl.errors import UserError, did_you_mean
from samba_rl.learners import LEARNERS, find_learner
from samba_rl.presets import make_settings
from samba_rl.tasks import TASKS
from samba_rl.tasks.own import load_task

ATTEMPTS = 2
"""Number of times that a failing cell is tried."""
FIRST_SEED = 100
"""First seed of a grid."""


@dataclass(frozen=True)
class Grid:
    """Every combination of some learners, systems and seeds."""

    learners: tuple[str, ...] = tuple(LEARNERS)
    """Names of the learners."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Names of the systems; those of the user's own as module:function or file.py:function."""
    seeds: int = 3
    """Number of seeds."""
    first_seed: int = FIRST_SEED
    """First seed; the others follow it."""
    preset: str = "default"
    """Name of the settings' preset."""
    limits: tuple[float, ...] = ()
    """Limits ξ on the safety cost of a trajectory; a learner with a limit runs once for each. Empty: the preset's."""
    budget_scale: float = 1.0
    """Share of the preset's real samples that is spent."""

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise UserError(f"seeds = {self.seeds}; at least 1 is needed")
        if not self.budget_scale > 0:
            raise UserError(f"budget_scale = {self.budget_scale}; it must be positive")
        for name in self.learners:
            find_learner(name)
        for name in self.tasks:
            if ":" not in name and name not in TASKS:
                raise UserError(f"no system is called '{name}'; {did_you_mean(name, TASKS)}")
        make_settings("", preset=self.preset)

    def cells(self) -> list[Cell]:
        """Return all cells, seed by seed, so that every learner and system has its first seed early."""
        limits: tuple[float | None, ...] = self.limits or (None,)
        systems = {where: _system(where) for where in self.tasks}
        return [
            Cell(systems[task], learner, seed, self.preset, limit, self.budget_scale, task if ":" in task else "")
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for task in self.tasks
            for learner in self.learners
            for limit in (limits if find_learner(learner).constraint is not None else (None,))
        ]


def _system(where: str) -> str:
    """Return the name of a system; a cell must be able to run it without the user."""
    task = load_task(where)
    if not task.parallel:
        raise UserError(f"{where} is a rig; a grid of runs would use it for days, so train on it run by run")
    return task.name


# Messages of backends -------------------------------------------------------------------------------------------------


class Progressed(NamedTuple):
    """A cell has made progress."""

    cell: Cell
    share: float
    """Share of its real samples that has been used."""


class Finished(NamedTuple):
    """A cell is finished."""

    cell: Cell
    result: CellResult


class Failed(NamedTuple):
    """A cell failed: it raised an error, or its process was killed."""

    cell: Cell
    why: str
    """Reason, for the user."""


Message = Progressed | Finished | Failed


class Backend(Protocol):
    """A place where cells run."""

    @property
    def slots(self) -> int:
        """Return how many cells run at a time."""
        ...

    def start(self, cell: Cell) -> None:
        """Start a cell, or resume it."""
        ...

    def poll(self, timeout: float) -> list[Message]:
        """Return the messages that have arrived; wait at most `timeout` seconds for one."""
        ...

    def stop(self) -> None:
        """End all cells that still run."""
        ...


# The loop -------------------------------------------------------------------------------------------------------------

Status = Literal["waiting", "running", "finished", "failed"]


@dataclass
class State:
    """The state of a cell in a grid."""

    cell: Cell
    status: Status = "waiting"
    share: float = 0.0
    """Share of its real samples that has been used."""
    attempts: int = 0
    """Number of times that it has been started."""
    began: float = 0.0
    """Time of its last start on the grid's clock [s]."""
    seconds: float = 0.0
    """Duration, once it is finished."""
    kept: bool = False
    """Whether its result was there before this run of the grid."""
    why: str = ""
    """Reason of its last failure."""


@final
class GridRun:
    """Runs the unfinished cells of a grid; `states` holds the current state of each cell."""

    def __init__(self, cells: Sequence[Cell], results: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read which cells the folder `results` already has a file of; these are not run again."""
        self.states = {cell: State(cell) for cell in cells}
        self._results, self._clock = results, clock
        self._slots = 1
        for cell, state in self.states.items():
            path = results / f"{cell.name}.json"
            if path.exists():
                kept = read_result(path)
                if kept.cell != cell:
                    raise UserError(f"{path} holds the result of another cell, {kept.cell.name}; remove it")
                state.status, state.share, state.seconds, state.kept = "finished", 1.0, kept.seconds, True

    def run(self, backend: Backend, tell: Callable[[GridRun], None] = lambda _: None) -> list[State]:
        """Run all cells and return those that failed; a failing cell does not stop the others.

        `tell` is called after each round of messages.
        """
        self._slots = backend.slots
        try:
            while self._left():
                running = sum(state.status == "running" for state in self.states.values())
                for state in self._waiting()[: backend.slots - running]:
                    state.status, state.began, state.attempts = "running", self._clock(), state.attempts + 1
                    backend.start(state.cell)
                for message in backend.poll(0.5):
                    self._take(message)
                tell(self)
        finally:
            backend.stop()
        return [state for state in self.states.values() if state.status == "failed"]

    def _take(self, message: Message) -> None:
        state = self.states[message.cell]
        if isinstance(message, Progressed):
            state.share = message.share
        elif isinstance(message, Finished):
            write_result(self._results, message.result)
            state.status, state.share, state.seconds = "finished", 1.0, self._clock() - state.began
        else:
            state.why = message.why
            state.status = "waiting" if state.attempts < ATTEMPTS else "failed"

    def _waiting(self) -> list[State]:
        return [state for state in self.states.values() if state.status == "waiting"]

    def _left(self) -> list[State]:
        return [state for state in self.states.values() if state.status in ("waiting", "running")]

    def seconds_left(self) -> float | None:
        """Estimate the seconds until the last cell is finished; None: nothing is known yet.

        The duration of a cell is extrapolated from its own progress if it has any, else it is the mean duration of the
        cells with the same learner and system, else the mean duration of all cells.
        """
        whole: dict[Cell, float] = {}
        for cell, state in self.states.items():
            if state.status == "finished" and state.seconds > 0:
                whole[cell] = state.seconds
            elif state.status == "running" and state.share > 0.05:
                whole[cell] = (self._clock() - state.began) / state.share
        if not whole:
            return None

        def mean(values: Iterable[float]) -> float | None:
            kept = list(values)
            return sum(kept) / len(kept) if kept else None

        everything = mean(whole.values())
        left = 0.0
        for state in self._left():
            cell = state.cell
            alike = mean(t for c, t in whole.items() if (c.task, c.learner) == (cell.task, cell.learner))
            left += (1 - state.share) * (whole.get(cell) or alike or everything or 0.0)
        return left / min(self._slots, max(1, len(self._left())))
