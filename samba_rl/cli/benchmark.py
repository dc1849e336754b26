"""`samba-rl benchmark`: run a grid of learners, systems and seeds, and make the paper's tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Literal, final

import tyro
from rich.console import Console
from rich.live import Live
from rich.table import Table

from samba_rl.cli.stopping import terminated_like_interrupted
from samba_rl.cli.text import duration, text
from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.benchmark.cells import Cell
    from samba_rl.benchmark.grid import Backend, GridRun, State

SMOKE_STEPS = 500
"""Maximum number of steps to evaluate a cell of the smoke grid."""
MARKS = {"waiting": "·", "running": "▸", "finished": "✓", "failed": "✗"}


def benchmark(
    grid: Annotated[Literal["paper", "smoke", "generality"], tyro.conf.Positional],
    learners: str = "",
    tasks: str = "",
    seeds: int | None = None,
    first_seed: int = 100,
    preset: str = "default",
    limits: str = "",
    budget_scale: float = 1.0,
    systems: str = "",
    limit: Literal["both", "with", "without"] = "both",
    noise: Literal["both", "with", "without"] = "both",
    out: Path | None = None,
    runs: Path = Path("runs/benchmark"),
    jobs: int | None = None,
    ray: str = "",
    device: str = "cpu",
    steps: int | None = None,
) -> int:
    """Run a grid of learners, systems and seeds, and make its tables.

    Finished cells are kept, one file each, and skipped next time; interrupted cells are continued. A cell that fails is
    tried once more, and does not stop the others.

    Args:
        grid: paper: all ten learners on the three systems. smoke: about a minute, to see whether everything works.
            generality: systems that nobody tuned for, with the general preset.
        learners: Learners to run, separated by commas, as in samba,sppo. Default: all; for generality, samba and
            ppilco.
        tasks: Systems to run, separated by commas. Default: all; for smoke, the pendulum.
        seeds: Number of seeds. Default: 3; for generality, 10.
        first_seed: First seed.
        preset: Preset of the settings: default, or paper, whose budgets take hours to days.
        limits: Limits on a trajectory's safety cost, separated by commas, as in 0.25,0.75. Default: the preset's.
        budget_scale: Share of the preset's real samples to spend.
        systems: Systems of the generality suite, separated by commas, as in pendulum,course. Default: all.
        limit: Learners of the generality suite: with a limit, without one, or both.
        noise: Systems of the generality suite: with measurement noise, without it, or both.
        out: Folder for the finished cells and the tables. Default: results; for generality, results/generality.
        runs: Folder for the runs; interrupted cells are continued from there.
        jobs: Number of cells to run at a time. Default: one per core.
        ray: Address of a Ray cluster to run on, or auto for the one that this machine belongs to.
        device: Device of the models and the policies: cpu or cuda.
        steps: Number of steps to evaluate each cell. Default: 10,000; for generality, 2,000.
    """
    from samba_rl.benchmark.grid import Grid, GridRun
    from samba_rl.learners import LEARNERS
    from samba_rl.tasks import TASKS

    suite = grid == "generality"
    others = {"tasks": tasks != "", "limits": limits != "", "budget-scale": budget_scale != 1}
    own = {"systems": systems != "", "limit": limit != "both", "noise": noise != "both"}
    for flag in (name for name, given in (others if suite else own).items() if given):
        raise UserError(f"--{flag} is not for {grid}, but for {'the other grids' if suite else 'generality'}")
    steps = (2_000 if suite else 10_000) if steps is None else steps
    out = (Path("results/generality") if suite else Path("results")) if out is None else out
    if steps < 1:
        raise UserError(f"--steps {steps}: at least 1 is needed")
    if suite:
        cells = _suite(_names(systems), _names(learners), limit, noise, seeds, first_seed, preset)
    else:
        cells = Grid(
            learners=_names(learners) or tuple(LEARNERS),
            tasks=_names(tasks) or (("safe-pendulum",) if grid == "smoke" else tuple(TASKS)),
            seeds=1 if grid == "smoke" else 3 if seeds is None else seeds,
            first_seed=first_seed,
            preset="smoke" if grid == "smoke" else preset,
            limits=_numbers(limits),
            budget_scale=budget_scale,
        ).cells()
    console = Console(highlight=False)
    run = GridRun(cells, out)
    kept = sum(state.kept for state in run.states.values())
    console.print(f"{len(run.states)} cells, {kept} already finished. Results go to [bold]{text(out)}[/].")
    if kept < len(run.states):
        backend = _backend(ray, jobs, runs, device, min(steps, SMOKE_STEPS) if grid == "smoke" else steps)
        try:
            with terminated_like_interrupted(), _Display(console) as display:
                failed = run.run(backend, display)
        except KeyboardInterrupt:
            console.print("Stopped. Finished cells are kept; run the same command again to continue.")
            raise
    else:
        failed = []
    for state in failed:
        console.print(f"[red]Failed twice:[/] {text(state.cell.name)}: {text(state.why)}", soft_wrap=True)
    _tables(console, out, preset if suite else None)
    return 1 if failed else 0


def _suite(
    systems: tuple[str, ...],
    learners: tuple[str, ...],
    limit: Literal["both", "with", "without"],
    noise: Literal["both", "with", "without"],
    seeds: int | None,
    first_seed: int,
    preset: str,
) -> list[Cell]:
    """Return the cells of the generality suite."""
    from samba_rl.benchmark.generality import LEARNERS, Suite
    from samba_rl.benchmark.systems import SYSTEMS

    chosen = Suite(
        systems=systems or tuple(SYSTEMS),
        learners=learners or LEARNERS,
        limit=limit,
        noise=noise,
        seeds=10 if seeds is None else seeds,
        first_seed=first_seed,
        preset=preset,
    )
    return chosen.cells()


def _backend(ray: str, jobs: int | None, runs: Path, device: str, steps: int) -> Backend:
    if ray:
        from samba_rl.benchmark.cluster import RayBackend

        return RayBackend(ray, device, steps)
    from samba_rl.benchmark.local import LocalBackend

    return LocalBackend(jobs, runs, device, steps)


def _names(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip())


def _numbers(words: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in _names(words))
    except ValueError as error:
        raise UserError(f"--limits {words}: give numbers separated by commas, such as 0.25,0.75") from error


def _tables(console: Console, out: Path, suite: str | None) -> None:
    """Write and print the tables: that of the generality suite with the preset `suite`, or else the paper's."""
    from samba_rl.benchmark.cells import read_results
    from samba_rl.benchmark.tables import all_tables
    from samba_rl.benchmark.writers import write_tables

    if not out.is_dir():
        return
    results = read_results(out)
    if suite is not None:
        from samba_rl.benchmark.generality import table

        written = write_tables([table(results, suite)], out / "tables")
    else:
        written = write_tables(all_tables(results), out / "tables")
    for path in written:
        if path.suffix == ".md":
            console.print(path.read_text(encoding="utf-8"), markup=False, soft_wrap=True)
    console.print(f"Tables: {', '.join(text(path) for path in written)}", soft_wrap=True)


@final
class _Display:
    """Progress of a grid: a live table in a terminal, or else one line per cell that ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        self._told: set[tuple[str, int]] = set()

    def __enter__(self) -> _Display:
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
