"""`samba-rl benchmark`: run a grid of learners, systems and seeds, and make the paper's tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from samba_rl.cli.arguments import Seeds, Steps
from samba_rl.cli.grid_display import GridDisplay
from samba_rl.cli.stopping import terminated_like_interrupted
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import In, Seed, check_value

if TYPE_CHECKING:
    from samba_rl.benchmark.cells import Cell
    from samba_rl.benchmark.grid import Backend, State

SMOKE_STEPS = 500
"""Maximum number of steps to evaluate a cell of the smoke grid."""


def benchmark(
    grid: Annotated[Literal["paper", "smoke", "exploration", "generality"], tyro.conf.Positional],
    learners: str = "",
    tasks: str = "",
    seeds: Seeds | None = None,
    first_seed: Seed = 100,
    preset: str = "default",
    limits: str = "",
    signals: str = "",
    budget_scale: Annotated[float, In("(0, 1000]")] = 1.0,
    systems: str = "",
    limit: Literal["both", "with", "without"] = "both",
    noise: Literal["both", "with", "without"] = "both",
    out: Path | None = None,
    runs: Path = Path("runs/benchmark"),
    jobs: Annotated[int | None, In("[1, 1000]"), tyro.conf.arg(aliases=["--workers"])] = None,
    ray: str = "",
    device: str = "cpu",
    steps: Steps | None = None,
) -> int:
    """Run a grid of learners, systems and seeds, and make its tables.

    Finished cells are kept, one file each, and skipped next time; interrupted cells are continued. A cell that fails is
    tried once more, and does not stop the others.

    Args:
        grid: paper: all ten learners on the three systems. smoke: about a minute, to see whether everything works.
            exploration: SAMBA with each signal ζ and without any, on paired seeds. generality: systems that nobody
            tuned for, with the general preset.
        learners: Learners to run, separated by commas, as in samba,sppo. Default: all; for generality, samba and
            ppilco.
        tasks: Systems to run, separated by commas; your own as module:function or file.py:function. Default: all; for
            smoke, the pendulum.
        seeds: Number of seeds. Default: 3; for generality, 10; for smoke, 1.
        first_seed: First seed.
        preset: Preset of the settings: default, or paper, whose budgets take hours to days.
        limits: Limits on a trajectory's safety cost, separated by commas, as in 0.25,0.75. Default: the preset's.
        signals: For exploration: signals ζ to compare, separated by commas, as in none,information. Default: all.
        budget_scale: Share of the preset's real samples to spend.
        systems: Systems of the generality suite, separated by commas, as in pendulum,course. Default: all.
        limit: Learners of the generality suite: with a limit, without one, or both.
        noise: Systems of the generality suite: with measurement noise, without it, or both.
        out: Folder for the finished cells and the tables. Default: results; for generality, results/generality.
        runs: Folder for the runs; interrupted cells are continued from there.
        jobs: Number of cells to run at a time; on a Ray cluster with --device cuda, on each GPU. Default: one per core;
            with --device cuda, at most 8 on a GPU.
        ray: Address of a Ray cluster to run on, or auto for the one that this machine belongs to.
        device: Device of the models and the policies: cpu or cuda.
        steps: Number of steps to evaluate each cell. Default: 10,000; for generality, 2,000.
    """
    from samba_rl.benchmark.grid import Grid
    from samba_rl.learners import LEARNERS
    from samba_rl.tasks import TASKS

    _refuse_foreign(
        grid,
        {
            "learners": learners != "",
            "tasks": tasks != "",
            "preset": preset != "default",
            "limits": limits != "",
            "signals": signals != "",
            "budget-scale": budget_scale != 1,
            "systems": systems != "",
            "limit": limit != "both",
            "noise": noise != "both",
        },
    )
    results = Path("results") if grid in ("paper", "smoke") else Path("results") / grid
    out = results if out is None else out
    count = {"generality": 10, "smoke": 1}.get(grid, 3) if seeds is None else seeds
    if grid == "exploration":
        cells = _study(tasks, signals, count, first_seed)
    elif grid == "generality":
        cells = _suite(_names(systems), _names(learners), limit, noise, count, first_seed, preset)
    else:
        cells = Grid(
            learners=_names(learners) or tuple(LEARNERS),
            tasks=_names(tasks) or (("safe-pendulum",) if grid == "smoke" else tuple(TASKS)),
            seeds=count,
            first_seed=first_seed,
            preset="smoke" if grid == "smoke" else preset,
            limits=_numbers(limits),
            budget_scale=budget_scale,
        ).cells()
    console = Console(highlight=False)
    usual = {"smoke": SMOKE_STEPS, "generality": 2_000}.get(grid, 10_000)
    shown = usual if steps is None else min(steps, SMOKE_STEPS) if grid == "smoke" else steps
    failed = run_grid(console, cells, out, ray=ray, jobs=jobs, runs=runs, device=device, steps=shown)
    if grid == "exploration":
        _study_tables(console, out, tasks)
    else:
        show_tables(console, out, preset if grid == "generality" else None)
    return 1 if failed else 0


FOREIGN = {
    "paper": ("signals", "systems", "limit", "noise"),
    "smoke": ("signals", "systems", "limit", "noise"),
    "exploration": ("learners", "preset", "limits", "budget-scale", "systems", "limit", "noise"),
    "generality": ("tasks", "limits", "signals", "budget-scale"),
}
"""Flags that a grid does not use, because it fixes them or has others instead."""


def _refuse_foreign(grid: str, given: dict[str, bool]) -> None:
    """Raise a `UserError` for a flag that is given, but not for this grid."""
    for flag in FOREIGN[grid]:
        if given[flag]:
            fitting = ", ".join(name for name, foreign in FOREIGN.items() if flag not in foreign)
            raise UserError(f"--{flag} is not for {grid}, but for {fitting}")


def run_grid(
    console: Console,
    cells: Sequence[Cell],
    out: Path,
    *,
    ray: str,
    jobs: int | None,
    runs: Path,
    device: str,
    steps: int,
) -> list[State]:
    """Run the unfinished cells of a grid, and return those that failed."""
    from samba_rl.benchmark.grid import GridRun

    run = GridRun(cells, out)
    kept = sum(state.kept for state in run.states.values())
    console.print(f"{len(run.states)} cells, {kept} already finished. Results go to [bold]{text(out)}[/].")
    if kept < len(run.states):
        backend = _backend(ray, jobs, runs, device, steps)
        try:
            with terminated_like_interrupted(), GridDisplay(console) as display:
                failed = run.run(backend, display)
        except KeyboardInterrupt:
            console.print("Stopped. Finished cells are kept; run the same command again to continue.")
            raise
    else:
        failed = []
    for state in failed:
        console.print(f"[red]Failed twice:[/] {text(state.cell.name)}: {text(state.why)}", soft_wrap=True)
    return failed


def _study(tasks: str, signals: str, seeds: int, first_seed: int) -> list[Cell]:
    """Return the cells of the study of exploration."""
    from samba_rl.benchmark.exploration import SIGNALS, cells, parts_of

    return cells(parts_of(_names(tasks)), _names(signals) or SIGNALS, range(first_seed, first_seed + seeds))


def _study_tables(console: Console, out: Path, tasks: str) -> None:
    """Write the tables of the study of exploration, and print them."""
    from samba_rl.benchmark.cells import read_results
    from samba_rl.benchmark.exploration import correlations, parts_of, report, write_report

    if not out.is_dir():
        return
    parts = parts_of(_names(tasks))
    text_ = report(read_results(out), parts)
    console.print("Comparing the signals with the models' errors ...")
    text_ = "\n".join([text_, *(correlations(part) for part in parts)])
    write_report(text_, out / "exploration.md")
    console.print(text_, markup=False, soft_wrap=True)
    console.print(f"Tables: {text(out / 'exploration.md')}", soft_wrap=True)


def _suite(
    systems: tuple[str, ...],
    learners: tuple[str, ...],
    limit: Literal["both", "with", "without"],
    noise: Literal["both", "with", "without"],
    seeds: int,
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
        seeds=seeds,
        first_seed=first_seed,
        preset=preset,
    )
    return chosen.cells()


def _backend(ray: str, jobs: int | None, runs: Path, device: str, steps: int) -> Backend:
    from samba_rl.benchmark.cluster import PER_GPU, RayBackend

    if ray:
        if jobs is not None and device == "cpu":
            raise UserError(f"--jobs {jobs} with --ray: the cluster runs a cell on each core; leave --jobs out")
        return RayBackend(ray, device, steps, PER_GPU if jobs is None else jobs)
    from samba_rl.benchmark.local import LocalBackend, available_cores

    if jobs is None and device != "cpu":
        jobs = min(PER_GPU, available_cores())
    return LocalBackend(jobs, runs, device, steps)


def _names(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip())


def _numbers(words: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(word) for word in _names(words))
    except ValueError as error:
        raise UserError(f"--limits {words}: give numbers separated by commas, such as 0.25,0.75") from error
    check_value(tuple[Annotated[float, In("[0, 1e12]")], ...], numbers, "limits")
    return numbers


def show_tables(console: Console, out: Path, suite: str | None = None) -> None:
    """Write and print the tables of the finished cells: that of the suite with the preset `suite`, or the paper's."""
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
