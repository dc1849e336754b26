"""Progress of a grid of runs in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from samba_rl.cli.text import duration, text

if TYPE_CHECKING:
    from samba_rl.benchmark.grid import GridRun, State

MARKS = {"waiting": "·", "running": "▸", "finished": "✓", "failed": "✗"}


@final
class GridDisplay:
    """Progress of a grid: a live table in a terminal, or else one line per cell that ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        self._told: set[tuple[str, int]] = set()

    def __enter__(self) -> GridDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, run: GridRun) -> None:
        """Show the present state of the grid."""
        for state in run.states.values():
            ended = state.status in ("finished", "failed") or bool(state.why and state.status == "waiting")
            mark = (state.cell.name, state.attempts)
            if ended and not state.kept and mark not in self._told:
                self._told.add(mark)
                self._console.print(self._line(run, state), markup=False, soft_wrap=True)
        if self._live is not None:
            self._live.update(_table(run), refresh=True)

    def _line(self, run: GridRun, state: State) -> str:
        name = state.cell.name
        if state.status == "finished":
            left = run.seconds_left()
            done = sum(each.status == "finished" for each in run.states.values())
            rest = "" if left is None or done == len(run.states) else f", about {duration(left)} left"
            return f"{name}: finished in {duration(state.seconds)} ({done} of {len(run.states)}{rest})"
        return f"{name}: {text(state.why)}; {'trying once more' if state.status == 'waiting' else 'giving up'}"


def _table(run: GridRun) -> Table:
    """Return a table with a row per learner and system and a column per seed."""
    states = list(run.states.values())
    done = sum(state.status == "finished" for state in states)
    left = run.seconds_left()
    when = "" if left is None else f", about {duration(left)} left"
    table = Table(title=f"{done} of {len(states)} cells finished{when}", title_justify="left")
    seeds = sorted({state.cell.seed for state in states})
    for column in ("system", "learner", *map(str, seeds)):
        table.add_column(column)
    rows: dict[tuple[str, str], dict[int, list[State]]] = {}
    for state in states:
        limit = "" if state.cell.limit is None else f" ξ {state.cell.limit:g}"
        row = rows.setdefault((state.cell.task, state.cell.shown + limit), {})
        row.setdefault(state.cell.seed, []).append(state)
    for (task, learner), by_seed in rows.items():
        table.add_row(task, learner, *(_marks(by_seed.get(seed, [])) for seed in seeds))
    return table


def _marks(states: Sequence[State]) -> str:
    return " ".join(
        f"{MARKS[state.status]} {state.share:.0%}" if state.status == "running" else MARKS[state.status]
        for state in states
    )
