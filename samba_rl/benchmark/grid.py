"""The grid: which cells there are, and running those that are not finished, side by side, whatever becomes of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, final

from samba_rl.benchmark.cells import Cell, CellResult, read_result, write_result
from samba_rl.errors import UserError, did_you_mean
from samba_rl.learners import LEARNERS, find_learner, make_settings
from samba_rl.tasks import TASKS

ATTEMPTS = 2
"""A cell that fails is tried once more."""
FIRST_SEED = 100


@dataclass(frozen=True)
class Grid:
    """Learners on systems with seeds."""

    learners: tuple[str, ...] = tuple(LEARNERS)
    tasks: tuple[str, ...] = tuple(TASKS)
    seeds: int = 3
    first_seed: int = FIRST_SEED
    preset: str = "default"
    limits: tuple[float, ...] = ()
    """ξ of a trajectory; a learner with a limit runs once for each. None: the preset's own."""
    budget_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise UserError(f"seeds = {self.seeds}; at least 1 is needed")
        if not self.budget_scale > 0:
            raise UserError(f"budget_scale = {self.budget_scale}; it must be positive")
        for name in self.learners:
            find_learner(name)
        for name in self.tasks:
            if name not in TASKS:
                raise UserError(f"no system is called '{name}'; {did_you_mean(name, TASKS)}")
        make_settings("", preset=self.preset)

    def cells(self) -> list[Cell]:
        """All of them, seed by seed, so that every row has its first seed early."""
        limits: tuple[float | None, ...] = self.limits or (None,)
        return [
            Cell(task, learner, seed, self.preset, limit, self.budget_scale)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for task in self.tasks
            for learner in self.learners
            for limit in (limits if LEARNERS[learner].constraint != "none" else (None,))
        ]


# What backends tell ---------------------------------------------------------------------------------------------------


class Progressed(NamedTuple):
    """A cell has come so far."""

    cell: Cell
    share: float
    """Of its real samples."""


class Finished(NamedTuple):
    """A cell is finished."""

    cell: Cell
    result: CellResult


class Failed(NamedTuple):
    """A cell came to nothing: it raised, or its process was killed."""

    cell: Cell
    why: str


Message = Progressed | Finished | Failed


class Backend(Protocol):
    """Where cells run."""

    @property
    def slots(self) -> int:
        """How many cells run at a time."""
        ...

    def start(self, cell: Cell) -> None:
        """Begin with a cell, or go on with it."""
        ...

    def poll(self, timeout: float) -> list[Message]:
        """What has happened; waits at most `timeout` seconds for something."""
        ...

    def stop(self) -> None:
        """End everything that runs."""
        ...


# The loop -------------------------------------------------------------------------------------------------------------

Status = Literal["waiting", "running", "finished", "failed"]


@dataclass
class State:
    """How a cell stands."""

    cell: Cell
    status: Status = "waiting"
    share: float = 0.0
    attempts: int = 0
    began: float = 0.0
    seconds: float = 0.0
    """That it took, once it is finished."""
    kept: bool = False
    """It was finished before."""
    why: str = ""


@final
class GridRun:
    """Runs the cells that are not finished; `states` says how each stands at any time."""

    def __init__(self, cells: Sequence[Cell], results: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Finished cells are one file each in `results`; those that are there already are not run again."""
        self.states = {cell: State(cell) for cell in cells}
        self._results, self._clock = results, clock
        self._slots = 1
        for cell, state in self.states.items():
            path = results / f"{cell.name}.json"
            if path.exists():
                kept = read_result(path)
                if kept.cell != cell:
                    raise UserError(f"{path} holds another cell, {kept.cell.name}; remove it")
                state.status, state.share, state.seconds, state.kept = "finished", 1.0, kept.seconds, True

    def run(self, backend: Backend, tell: Callable[[GridRun], None] = lambda _: None) -> list[State]:
        """Run to the end and give the cells that failed; one of them never stops the others."""
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
        """Until the last cell is finished, as far as can be told (None: not at all yet).

        A cell takes as long as those of the same learner and system did, or as long as it seems to take itself, or as
        long as others on average.
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
