"""Real transitions measured before a run: read from files of other programs, completed by the task, and reported on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from samba_rl.agents.agent import schema_of
from samba_rl.agents.settings import Settings
from samba_rl.data import DataSet
from samba_rl.data.episodes import Found, Piece, Recording, pieces_of
from samba_rl.data.logs import Floats, Log, header_of, read_log
from samba_rl.errors import UserError
from samba_rl.runs.checks import in_order_of
from samba_rl.tasks.task import Measured, Quantity, Task
from samba_rl.types import Transitions

SUFFIXES = (".csv", ".parquet")
KNOWN = ("episode", "step", "time", "terminated", "cost")
"""Columns with a meaning of their own."""


@dataclass(frozen=True)
class Source:
    """What was taken from one file."""

    file: str
    """The file, or the id of the Minari dataset."""
    episodes: int
    """Number of episodes, or of pieces of episodes without gaps."""
    steps: int
    """Number of steps."""
    computed: tuple[str, ...] = ()
    """Costs that the task's functions computed, because the file has no column for them."""
    dropped: tuple[str, ...] = ()
    """Lines that were left out, and why."""
    unused: tuple[str, ...] = ()
    """Columns that were not used."""
    rate: str = ""
    """What was done about the rate of the file; empty: nothing."""

    def in_words(self) -> str:
        """Describe the source in a line."""
        parts = [f"{self.episodes} episode{'s' * (self.episodes != 1)}, {self.steps} steps"]
        parts += [self.rate] * bool(self.rate)
        parts += [f"{', '.join(self.computed)} by the task's functions"] * bool(self.computed)
        parts += [f"left out: {why}" for why in self.dropped]
        parts += [f"not used: {', '.join(self.unused)}"] * bool(self.unused)
        return f"{self.file}: {'; '.join(parts)}"


@final
class LogReader:
    """Reads files as transitions of a task."""

    def __init__(self, task: Task, columns: Mapping[str, str] | None = None, dt: float | None = None) -> None:
        """Map names of the task (or of `KNOWN`) to the files' `columns`; `dt` is the time between two lines [s]."""
        self._task, self._columns, self._dt = task, dict(columns or {}), dt
        self._schema = schema_of(task)
        names = {*KNOWN, *self._schema.columns, *self._schema.states, *self._schema.actions}
        for name in self._columns:
            if name not in names:
                quantities = ", ".join((*self._schema.states, *self._schema.actions))
                raise UserError(
                    f"columns: {task.name} has no '{name}'; on the left, name a quantity of it ({quantities}), time, "
                    f"episode, cost, {', '.join(f'safety:{one}' for one in task.constraints)}"
                )

    def read(self, files: Sequence[str]) -> tuple[DataSet, tuple[Source, ...]]:
        """Return the episodes of all files, and what was taken from each."""
        data, sources = DataSet.empty(self._schema), []
        for file in files:
            part, source = self._read(file)
            if not len(part):
                raise UserError(f"{file} has no transitions; omit it" + "".join(f" ({why})" for why in source.dropped))
            data = data.append(_renumbered(part.transitions, data.episodes))
            sources.append(source)
        return data, tuple(sources)

    def _read(self, file: str) -> tuple[DataSet, Source]:
        suffix = Path(file).suffix.lower()
        if suffix not in SUFFIXES and ("/" not in file or suffix or Path(file).exists()):
            raise UserError(f"cannot read earlier data from '{file}'; give .csv or .parquet files, or Minari datasets")
        if suffix not in SUFFIXES:
            return self._minari(file)
        if not self._columns and self._dt is None and set(self._schema.columns) <= set(header_of(file)):
            # A file that DataSet wrote: its numbers are taken over to the last bit.
            found = DataSet.from_csv(file) if suffix == ".csv" else DataSet.from_parquet(file)
            data = in_order_of(self._task, found, file)
            return data, Source(file, data.episodes, len(data))
        return self._log(read_log(file))

    def _minari(self, name: str) -> tuple[DataSet, Source]:
        task = self._task
        try:
            data = in_order_of(task, DataSet.from_minari(name), name)
            return data, Source(name, data.episodes, len(data))
        except UserError as error:
            if "has no safety costs" not in str(error):
                raise
        data = DataSet.from_minari(
            name, schema=self._schema, safety=task.safety, violation=lambda x, u: task.violation(x, u)
        )
        return data, Source(name, data.episodes, len(data), tuple(f"safety:{one}" for one in task.constraints))

    # Logs -------------------------------------------------------------------------------------------------------------

    def _log(self, log: Log) -> tuple[DataSet, Source]:
        task, used = self._task, set[str]()

        def column(*names: str) -> str | None:
            name = log.find(names, self._columns)
            used.update([] if name is None else [name])
            return name

        def optional(*names: str) -> Floats | None:
            name = column(*names)
            return None if name is None else log.columns[name]

        x = np.stack([self._needed(log, column, "x", "state", q, task.actions) for q in task.states], axis=1)
        held = {f"u:{q.name}": self._needed(log, column, "u", "action", q, task.states) for q in task.actions}
        reached = [optional(f"next:{q.name}") for q in task.states]
        missing = [q.name for q, values in zip(task.states, reached, strict=True) if values is None]
        if 0 < len(missing) < len(reached):
            raise UserError(
                f"'{log.where}' has next:… for some states, but not for {', '.join(missing)}; give all or none"
            )
        for name in self._schema.columns:
            if name.startswith(("safety:", "violation:")) or name in ("cost", "terminated"):
                values = optional(name)
                if values is not None:
                    held[name] = values
        known = [values for values in reached if values is not None]
        recording = Recording(
            x,
            held,
            np.stack(known, axis=1) if known else None,
            episode=optional("episode"),
            step=optional("step"),
            time=optional("time"),
        )
        found = pieces_of(log, recording, task.dt, self._dt)
        parts = [self._transitions(log, piece, i) for i, piece in enumerate(found.pieces)]
        data = DataSet.empty(self._schema)
        try:
            for part in parts:
                data = data.append(part)
        except UserError as error:
            raise UserError(f"'{log.where}': {error}") from error
        computed = [name for name in self._schema.columns if _is_cost(name) and name not in held]
        unused = tuple(name for name in log.columns if name not in used)
        return data, Source(
            log.where, data.episodes, len(data), tuple(computed), _dropped(log, found), unused, found.rate
        )

    def _needed(
        self, log: Log, column: object, prefix: str, what: str, quantity: Quantity, others: Sequence[Quantity]
    ) -> Floats:
        """Return the values of a state or an action."""
        assert callable(column)
        names = [f"{prefix}:{quantity.name}"]
        # A state and an action of the same name need their prefixes.
        names += [quantity.name] * (quantity.name not in {other.name for other in others})
        name = column(*names)
        if name is None:
            raise UserError(
                f"'{log.where}' has no column for the {what} '{quantity.name}' (called {' or '.join(names)}); it has "
                f"{', '.join(log.columns)}. Map one of them with --columns {names[-1]}=COLUMN"
            )
        return log.columns[str(name)]

    def _transitions(self, log: Log, piece: Piece, number: int) -> Transitions:
        """Return a piece as transitions; costs that the log lacks come from the task."""
        task, n = self._task, len(piece.x) - 1
        states = torch.from_numpy(np.ascontiguousarray(piece.x))
        x, x_next = states[:-1], states[1:]
        u = torch.from_numpy(np.stack([piece.held[f"u:{q.name}"] for q in task.actions], axis=1))
        held = {name: torch.from_numpy(np.array(values)) for name, values in piece.held.items()}
        applied = task.clip(u)
        at = x if task.cost_of == "departure" else x_next

        def of(name: str) -> Tensor | None:
            values = [held.get(f"{name}:{one}") for one in task.constraints]
            found = [one for one in values if one is not None]
            if 0 < len(found) < len(values):
                raise UserError(f"'{log.where}' has {name}:… for some constraints; give all of them or none")
            return torch.stack(found, dim=1) if found else None

        try:
            cost = held["cost"] if "cost" in held else task._cost(at, applied)
            safety, violation = of("safety"), of("violation")
            if safety is None:
                safety = task.safety(x_next, applied)
            violation = task._violation(x_next, applied, safety) if violation is None else violation > 0
        except Measured as error:
            raise UserError(
                f"{error}. Or give the file a column: '{log.where}' has {', '.join(log.columns)}"
            ) from error
        terminated = held["terminated"] > 0 if "terminated" in held else torch.zeros(n, dtype=torch.bool)
        return Transitions(
            x=x,
            u=u,
            x_next=x_next,
            cost=cost,
            safety=safety,
            violation=violation,
            terminated=terminated,
            episode=torch.full((n,), number),
            step=torch.arange(n),
        )


def earlier_data(task: Task, data: DataSet | None, settings: Settings) -> tuple[DataSet, tuple[Source, ...]] | None:
    """Return the earlier transitions of a run, from a data set or else from the files in its settings."""
    if data is not None:
        if not len(data):
            raise UserError("the given data set has no transitions; omit it")
        return in_order_of(task, data, "the given data set"), ()
    first = settings.first
    if not first.data:
        if first.columns or first.data_dt is not None:
            raise UserError(
                "first.columns and first.data_dt belong to earlier data; give the files with data, or omit them"
            )
        return None
    reader = LogReader(task, mapping_of(first.columns), first.data_dt)
    return reader.read([file for file in first.data.split(",") if file])


def mapping_of(columns: str) -> dict[str, str]:
    """Return the mapping that "angle=theta,time=t" describes."""
    mapping = {}
    for pair in filter(None, columns.split(",")):
        name, equals, column = pair.partition("=")
        if not (equals and name.strip() and column.strip()):
            raise UserError(f"columns = '{columns}': '{pair}' is not of the form NAME=COLUMN, as in angle=theta,time=t")
        mapping[name.strip()] = column.strip()
    return mapping


def _is_cost(name: str) -> bool:
    return name == "cost" or name.startswith(("safety:", "violation:"))


def _dropped(log: Log, found: Found) -> tuple[str, ...]:
    """Return the lines that were left out, in words."""
    words = []
    for why, lines in found.dropped.items():
        first = ", ".join(map(str, lines[:5])) + ", …" * (len(lines) > 5)
        words.append(f"{len(lines)} {log.line}{'s' * (len(lines) > 1)} ({first}): {why}")
    return tuple(words)


def _renumbered(steps: Transitions, first: int) -> Transitions:
    """Return transitions whose episodes are numbered from `first` in their order."""
    _, numbers = steps.episode.unique_consecutive(return_inverse=True)  # type: ignore[no-untyped-call]
    return Transitions(**{**vars(steps), "episode": numbers + first})
