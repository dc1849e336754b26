"""Logs of trials that another program made: CSV files with a row for each moment, checked to the last cell."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, final

import torch
from torch import Tensor

from samba_rl.data.files import check_regular, reason
from samba_rl.data.logs import delimiter_of, with_points
from samba_rl.errors import UserError, did_you_mean
from samba_rl.runs.episodes import SLACK, Episode, TrialLog, measured_columns
from samba_rl.tasks.task import Quantity, Task

TIME, EPISODE, TERMINATED = "time", "episode", "terminated"
"""Optional columns: seconds, number of the episode, and (in its last row) whether the system ended the episode."""
RATE = 0.1
"""Largest share of `dt` by which the time between two rows may deviate from it."""
_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": False}


# Reading ------------------------------------------------------------------------------------------------------------


def read_log(path: str | Path, task: Task, *, torn: bool = False) -> TrialLog:
    """Read and check a log; raise a `UserError` that names the line and the column of anything wrong.

    `torn`: the program that wrote it was stopped; an incomplete last line is left out.
    """
    try:
        check_regular(path)
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read()
        if torn and not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
        lines = text.splitlines()
        delimiter = delimiter_of(lines[0] if lines else "")
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(reader, [])]
        rows = [(reader.line_num, with_points(row, delimiter)) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"'{path}' cannot be read as CSV: {reason(error)}") from error
    if not header:
        raise UserError(f"'{path}' is empty; its first line names the columns")
    layout = _Layout.of(path, header, task)
    parsed = [layout.row(line, cells) for line, cells in rows]
    if not parsed:
        raise UserError(f"'{path}' has no rows; give a row for each moment, and one for the state that was reached")
    groups: list[list[_Row]] = []
    for row in parsed:
        if not groups or groups[-1][-1].episode != row.episode:
            groups.append([])
        groups[-1].append(row)
    return TrialLog(str(path), tuple(layout.checked(group) for group in groups), layout.unused)


class _Row(NamedTuple):
    """A row of a log."""

    line: int
    time: float | None
    episode: str
    terminated: bool
    x: list[float]
    u: list[float | None]
    measured: dict[str, list[float | None]]


@final
@dataclass(frozen=True)
class _Layout:
    """Where the quantities of a task are in a file."""

    path: str
    task: Task
    header: Sequence[str]
    states: Sequence[int]
    actions: Sequence[int]
    measured: Mapping[str, Sequence[int]]
    extra: Mapping[str, int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @staticmethod
    def of(path: str | Path, header: Sequence[str], task: Task) -> _Layout:
        """Find the columns of the task; raise a `UserError` if one is missing or there twice."""
        for name in header:
            if header.count(name) > 1:
                raise UserError(f"'{path}', line 1: there are two columns '{name}'; give each its own name")

        def place(names: Sequence[str]) -> int:
            found = next((name for name in names if name in header), None)
            if found is None:
                hint = did_you_mean(names[-1], header)
                raise UserError(f"'{path}', line 1: there is no column '{names[-1]}'; {hint}")
            return header.index(found)

        shared = {one.name for one in task.states} & {one.name for one in task.actions}

        def places(prefix: str, quantities: Sequence[Quantity]) -> list[int]:
            bare = [[] if one.name in shared else [one.name] for one in quantities]
            return [place([f"{prefix}{one.name}", *names]) for one, names in zip(quantities, bare, strict=True)]

        measured = {
            what: [place(names) for names in columns]
            for what, columns in measured_columns(task).items()
            if what != "violation" or any(name in header for names in columns for name in names)
        }
        states, actions = places("x:", task.states), places("u:", task.actions)
        extra = {name: header.index(name) for name in (TIME, EPISODE, TERMINATED) if name in header}
        used = {*states, *actions, *extra.values(), *(one for column in measured.values() for one in column)}
        unused = tuple(name for i, name in enumerate(header) if i not in used)
        return _Layout(str(path), task, header, states, actions, measured, extra, unused)

    def row(self, line: int, cells: Sequence[str]) -> _Row:
        """Parse a row; empty cells of actions and measured costs become None."""
        if len(cells) != len(self.header):
            raise UserError(
                f"'{self.path}', line {line} has {len(cells)} cells; the header has {len(self.header)}. Is it complete?"
            )

        def numbers(places: Sequence[int]) -> list[float | None]:
            return [self._number(line, place, cells[place]) if cells[place].strip() else None for place in places]

        x = [self._number(line, place, cells[place]) for place in self.states]
        time = self._number(line, self.extra[TIME], cells[self.extra[TIME]]) if TIME in self.extra else None
        ended = cells[self.extra[TERMINATED]].strip().lower() if TERMINATED in self.extra else ""
        if ended not in _TRUTH:
            raise UserError(f"{self._at(line, self.extra[TERMINATED])}: {ended!r} is not true or false")
        episode = cells[self.extra[EPISODE]].strip() if EPISODE in self.extra else ""
        measured = {what: numbers(places) for what, places in self.measured.items()}
        return _Row(line, time, episode, _TRUTH[ended], x, numbers(self.actions), measured)

    def checked(self, rows: list[_Row]) -> Episode:
        """Return an episode; raise a `UserError` for a gap in time, a range that is left, or a missing value."""
        if len(rows) < 2:
            raise UserError(
                f"'{self.path}', line {rows[0].line}: this episode has one row; a step needs the state before it and "
                "the state after it, in the next row"
            )
        self._check_times(rows)
        for row in rows:
            for place, quantity, value in zip(self.states, self.task.states, row.x, strict=True):
                self._check_range(row.line, place, quantity, value, 0.0)
        for row in rows[:-1]:
            if row.terminated:
                raise UserError(
                    f"{self._at(row.line, self.extra[TERMINATED])}: the episode has ended here, but goes on in the "
                    "next line; only its last row may say so"
                )
            for place, quantity, action in zip(self.actions, self.task.actions, row.u, strict=True):
                value = self._there(row.line, place, action)
                self._check_range(row.line, place, quantity, value, SLACK * (quantity.high - quantity.low))
        u = torch.tensor([row.u for row in rows[:-1]], dtype=torch.float64)
        return Episode(
            torch.tensor([row.x for row in rows], dtype=torch.float64),
            self.task.clip(u),
            rows[-1].terminated,
            {what: self._column(what, rows[:-1]) for what in self.measured},
        )

    def _column(self, what: str, rows: list[_Row]) -> Tensor:
        """Return measured values of steps [T] or [T, m]."""
        values = [
            [self._there(row.line, p, value) for p, value in zip(self.measured[what], row.measured[what], strict=True)]
            for row in rows
        ]
        column = torch.tensor(values, dtype=torch.float64)
        return column[:, 0] if what == "cost" else column.bool() if what == "violation" else column

    def _check_times(self, rows: list[_Row]) -> None:
        """Raise a `UserError` unless the rows are `dt` apart."""
        times = [row.time for row in rows if row.time is not None]
        if not times:
            return
        dt, place = self.task.dt, self.extra[TIME]
        steps = [after - before for before, after in itertools.pairwise(times)]
        usual = sorted(steps)[(len(steps) - 1) // 2]
        if abs(usual - dt) > RATE * dt:
            raise UserError(
                f"'{self.path}', column '{TIME}': the rows are {usual:g} s apart; {self.task.name} has a step every "
                f"{dt:g} s. Log at that rate, or resample the file"
            )
        for row, step in zip(rows[1:], steps, strict=True):
            if abs(step - dt) > RATE * dt:
                raise UserError(
                    f"{self._at(row.line, place)}: {step:g} s after the row before it instead of {dt:g} s; rows are "
                    "missing or out of order. Split the episode there (with a column 'episode'), or leave it out"
                )

    def _check_range(self, line: int, place: int, quantity: Quantity, value: float, slack: float) -> None:
        if not quantity.low - slack <= value <= quantity.high + slack:
            raise UserError(
                f"{self._at(line, place)}: {value:g} is outside of {quantity.low:g}..{quantity.high:g}, the range of "
                f"'{quantity.name}'. Is the unit right? Otherwise correct the file or the range"
            )

    def _number(self, line: int, place: int, cell: str) -> float:
        try:
            if "_" in cell:
                raise ValueError("Python reads 1_0 as ten, but in a log it is a typing error")
            value = float(cell)
        except ValueError as error:
            what = "the cell is empty" if not cell.strip() else f"{cell!r} is not a number"
            raise UserError(f"{self._at(line, place)}: {what}") from error
        if not math.isfinite(value):
            raise UserError(
                f"{self._at(line, place)}: {cell.strip()} is not a finite number. Correct the measurement, or leave "
                "the episode out"
            )
        return value

    def _there(self, line: int, place: int, value: float | None) -> float:
        if value is None:
            raise UserError(f"{self._at(line, place)}: the cell is empty; only the last row of an episode may omit it")
        return value

    def _at(self, line: int, place: int) -> str:
        return f"'{self.path}', line {line}, column '{self.header[place]}'"
