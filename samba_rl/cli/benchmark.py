"""The command benchmark: the paper's grid, and the tables that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from samba_rl.cli.stopping import terminated_like_interrupted
from samba_rl.errors import UserError, printable

if TYPE_CHECKING:
    from samba_rl.benchmark.grid import Backend, GridRun, State

SMOKE_STEPS = 500
"""Of the evaluation of a cell of the smoke grid."""
MARKS = {"waiting": "·", "running": "▸", "finished": "✓", "failed": "✗"}


def benchmark(
    grid: Annotated[Literal["paper", "smoke"], tyro.conf.Positional],
    learners: str = "",
    tasks: str = "",
    seeds: int = 3,
    first_seed: int = 100,
    preset: str = "default",
    limits: str = "",
    budget_scale: float = 1.0,
    out: Path = Path("results"),
    runs: Path = Path("runs/benchmark"),
    jobs: int | None = None,
    ray: str = "",
    device: str = "cpu",
    steps: int = 10_000,
) -> int:
    """Run a grid of learners, systems and seeds, and make the paper's tables of it.

    Finished cells are kept, one file each, and skipped next time; a cell that was interrupted goes on. One that fails
    is tried once more, and never stops the others.

    Args:
        grid: paper: all ten learners on the three systems. smoke: a minute's worth, to see whether everything works.
        learners: Only these, with commas between them: samba,sppo.
        tasks: Only these systems, with commas between them.
        seeds: How many.
        first_seed: The first of them.
        preset: Of the settings: default, or paper, whose budgets take hours to days.
        limits: The limits of a trajectory's safety cost, with commas between them: 0.25,0.75. Left out: the preset's.
        budget_scale: Share of the preset's real samples that is spent.
        out: The folder for the finished cells and the tables.
        runs: The folder for the runs; a cell that was interrupted goes on from there.
        jobs: Cells at a time. Left out: one for each core.
        ray: Run on a Ray cluster: its address, or auto for the one that this machine belongs to.
        device: Where models and policies are computed: cpu or cuda.
        steps: Of the evaluation of each cell.
    """
    from samba_rl.benchmark.grid import Grid, GridRun
    from samba_rl.learners import LEARNERS
    from samba_rl.tasks import TASKS

    if steps < 1:
        raise UserError(f"--steps {steps}: at least 1 is needed")
    chosen = Grid(
        learners=_names(learners) or tuple(LEARNERS),
        tasks=_names(tasks) or (("safe-pendulum",) if grid == "smoke" else tuple(TASKS)),
        seeds=1 if grid == "smoke" else seeds,
        first_seed=first_seed,
        preset="smoke" if grid == "smoke" else preset,
        limits=_numbers(limits),
        budget_scale=budget_scale,
    )
    console = Console(highlight=False)
    run = GridRun(chosen.cells(), out)
    kept = sum(state.kept for state in run.states.values())
    console.print(f"{len(run.states)} cells, {kept} of them finished already. Results go to [bold]{_text(out)}[/].")
    if kept < len(run.states):
        backend = _backend(ray, jobs, runs, device, min(steps, SMOKE_STEPS) if grid == "smoke" else steps)
        try:
            with terminated_like_interrupted(), _Shown(console) as shown:
                failed = run.run(backend, shown)
        except KeyboardInterrupt:
            console.print("Stopped. Finished cells are kept; the same command goes on with the others.")
            raise
    else:
        failed = []
    for state in failed:
        console.print(f"[red]Failed twice:[/] {_text(state.cell.name)}: {_text(state.why)}", soft_wrap=True)
    _tables(console, out)
    return 1 if failed else 0


def _backend(ray: str, jobs: int | None, runs: Path, device: str, steps: int) -> Backend:
    if ray:
        from samba_rl.benchmark.cluster import RayBackend

        return RayBackend(ray, device, steps)
    from samba_rl.benchmark.local import LocalBackend

    return LocalBackend(jobs, runs, device, steps)


def _text(words: object) -> str:
    return escape(printable(str(words)))


def _duration(seconds: float) -> str:
    # Here: the module brings in torch, for which the help need not wait.
    from samba_rl.cli.progress import duration

    return duration(seconds)


def _names(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip())


def _numbers(words: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in _names(words))
    except ValueError as error:
        raise UserError(f"--limits {words}: give numbers with commas between them, such as 0.25,0.75") from error


def _tables(console: Console, out: Path) -> None:
    from samba_rl.benchmark.cells import read_results
    from samba_rl.benchmark.tables import all_tables
    from samba_rl.benchmark.writers import write_tables

    if not out.is_dir():
        return
    written = write_tables(all_tables(read_results(out)), out / "tables")
    for path in written:
        if path.suffix == ".md":
            console.print(path.read_text(encoding="utf-8"), markup=False, soft_wrap=True)
    console.print(f"Tables: {', '.join(_text(path) for path in written)}", soft_wrap=True)


class _Shown:
    """How the grid stands: a live table in a terminal, else a line for each cell that ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        self._told: set[tuple[str, int]] = set()

    def __enter__(self) -> _Shown:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, run: GridRun) -> None:
        """Show how it stands now."""
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
            rest = "" if left is None or done == len(run.states) else f", about {_duration(left)} left"
            return f"{name}: finished in {_duration(state.seconds)} ({done} of {len(run.states)}{rest})"
        return f"{name}: {_text(state.why)}; {'it is tried once more' if state.status == 'waiting' else 'given up'}"


def _table(run: GridRun) -> Table:
    """A row for each learner on each system, a column for each seed."""
    states = list(run.states.values())
    done = sum(state.status == "finished" for state in states)
    left = run.seconds_left()
    when = "" if left is None else f", about {_duration(left)} left"
    table = Table(title=f"{done} of {len(states)} cells finished{when}", title_justify="left")
    seeds = sorted({state.cell.seed for state in states})
    for column in ("system", "learner", *map(str, seeds)):
        table.add_column(column)
    rows: dict[tuple[str, str], dict[int, list[State]]] = {}
    for state in states:
        limit = "" if state.cell.limit is None else f" ξ {state.cell.limit:g}"
        row = rows.setdefault((state.cell.task, state.cell.learner + limit), {})
        row.setdefault(state.cell.seed, []).append(state)
    for (task, learner), by_seed in rows.items():
        table.add_row(task, learner, *(_marks(by_seed.get(seed, [])) for seed in seeds))
    return table


def _marks(states: Sequence[State]) -> str:
    return " ".join(
        f"{MARKS[state.status]} {state.share:.0%}" if state.status == "running" else MARKS[state.status]
        for state in states
    )
