"""`samba-rl sweep`: run every combination of the lists in a file of settings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import Steps
from samba_rl.cli.benchmark import run_grid
from samba_rl.cli.text import duration, text
from samba_rl.errors import UserError
from samba_rl.ranges import In

if TYPE_CHECKING:
    from samba_rl.benchmark.cells import Cell
    from samba_rl.cli.settings_file import SettingsFile

OF_CELLS = {"system": "", "learner": "samba", "preset": "default", "seed": 0}
"""Names in a file that are parts of a cell, and what they are without it."""
NOT_SWEPT = ("out", "device", "threads", "workers", "evaluation", "pictures", "report", "tensorboard", "wandb")
"""Names in a file that do not concern a sweep, which has flags of its own for them."""
OF_DATA = {"data": "first.data", "columns": "first.columns", "data_dt": "first.data_dt"}
"""Flags of `train` that are short for settings."""


def sweep(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.toml")],
    out: Path | None = None,
    runs: Path = Path("runs/sweep"),
    jobs: Annotated[int | None, In("[1, 1000]"), tyro.conf.arg(aliases=["--workers"])] = None,
    ray: str = "",
    device: str = "cpu",
    steps: Steps = 10_000,
    cell: Annotated[int, In("[0, 1e6]")] | None = None,
    *,
    cells: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> int:
    """Run every combination of the lists in a file of settings, as in seed = [0, 1, 2] and limit = [0.5, 1.0].

    The file is one for `samba-rl train --config`, in which any value may be a list. Finished combinations (cells) are
    kept, one file each, and skipped next time; interrupted ones are continued.

    Args:
        file: The file of settings.
        out: Folder for the finished cells and the tables. Default: results/FILE.
        runs: Folder for the runs; interrupted cells are continued from there.
        jobs: Number of cells to run at a time; on a Ray cluster with --device cuda, on each GPU. Default: one per core;
            with --device cuda, at most 8 on a GPU.
        ray: Address of a Ray cluster to run on, or auto for the one that this machine belongs to.
        device: Device of the models and the policies: cpu or cuda.
        steps: Number of steps to evaluate each cell.
        cell: Run only the cell of this number, from 0, in this process: for an array job of SLURM.
        cells: List the cells with their numbers, and run nothing.
    """
    from samba_rl.cli.settings_file import read_settings_file

    found = cells_of(read_settings_file(file))
    results = Path("results") / file.stem if out is None else out
    console = Console(highlight=False)
    if cells:
        for number, one in enumerate(found):
            done = " (finished)" if (results / f"{one.name}.json").exists() else ""
            console.print(f"{number}  {text(one.name)}{done}", soft_wrap=True)
        return 0
    if cell is not None:
        if not 0 <= cell < len(found):
            raise UserError(f"--cell {cell}: {file} has the cells 0 to {len(found) - 1}")
        return _run_one(console, found[cell], results, runs, device, steps)
    failed = run_grid(console, found, results, ray=ray, jobs=jobs, runs=runs, device=device, steps=steps)
    _show(console, found, results)
    return 1 if failed else 0


def _show(console: Console, cells: list[Cell], results: Path) -> None:
    """Print a row for each finished cell, and write them to a file."""
    from samba_rl.benchmark import sweeps

    shown = sweeps.rows(cells, sweeps.finished(cells, results))
    if not shown:
        return
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for row in shown for name in row))
    for name in names:
        table.add_column(text(name), overflow="fold")
    for row in shown:
        table.add_row(*(text(row.get(name, "")) for name in names))
    console.print(table)
    console.print(f"As a table: {text(sweeps.write_rows(shown, results))}", soft_wrap=True)


def _run_one(console: Console, cell: Cell, results: Path, runs: Path, device: str, steps: int) -> int:
    """Run a cell in this process, or continue it."""
    from samba_rl.benchmark.cells import write_result
    from samba_rl.benchmark.running import run_cell

    path = results / f"{cell.name}.json"
    if path.exists():
        console.print(f"{text(cell.name)} is already finished: {text(path)}", soft_wrap=True)
        return 0
    result = run_cell(cell, runs / cell.name, device=device, steps=steps)
    path = write_result(results, result)
    console.print(f"{text(cell.name)}: finished in {duration(result.seconds)}: {text(path)}", soft_wrap=True)
    return 0


def cells_of(file: SettingsFile) -> list[Cell]:
    """Return a cell for each combination of the lists in a file, with the seeds outermost."""
    values = {name: value for name, value in file.values.items() if name not in NOT_SWEPT}
    axes: dict[str, list[object]] = {}
    for name, value in sorted(values.items(), key=lambda item: item[0] != "seed"):
        axes[name] = value if isinstance(value, list) and _is_axis(name, value) else [value]
        if not axes[name]:
            raise UserError(f"{file.where(name)}: {name} is an empty list; give at least one value")
    found = [_cell(file, dict(zip(axes, chosen, strict=True))) for chosen in itertools.product(*axes.values())]
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{file.path}: two combinations are the same, {twice}; give each value once")
    return found


def _is_axis(name: str, value: list[object]) -> bool:
    """Return whether a list means several values, and not one value that is a list."""
    # Settings that are lists themselves, such as policy.hidden, are varied as lists of lists.
    lists = name in ("data", "policy.hidden", "advantage.hidden")
    return any(isinstance(part, list) for part in value) if lists else True


def _cell(file: SettingsFile, values: Mapping[str, object]) -> Cell:
    """Return the cell with these values, after checking that it can be run."""
    from samba_rl.agents.words import to_words
    from samba_rl.benchmark.cells import ROW_WORDS, Cell
    from samba_rl.cli.from_file import FromFile
    from samba_rl.cli.settings_file import SettingsFile, flat
    from samba_rl.cli.train import option_kinds
    from samba_rl.data.plain import to_plain
    from samba_rl.learners import find_learner
    from samba_rl.presets import make_settings
    from samba_rl.runs.checks import check
    from samba_rl.runs.session import About
    from samba_rl.tasks.own import load_task

    if not values.get("system"):
        raise UserError(f'{file.path} names no system; give one as system = "safe-pendulum" or "file.py:function"')
    one = FromFile(SettingsFile(file.path, values, file.lines))
    where, learner, preset = (one.text(name, str(OF_CELLS[name])) for name in ("system", "learner", "preset"))
    task, row = load_task(where), find_learner(learner)
    if not task.parallel:
        raise UserError(f"{where} is a rig; a sweep would use it for days, so train on it run by run")
    usual = make_settings(task, row, preset)
    options = one.options(option_kinds())
    settings = one.settings(usual, option_kinds())
    plain, before = dict(flat(to_plain(settings))), dict(flat(to_plain(usual)))
    changes = {name: value for name, value in plain.items() if before.get(name, settings) != value}
    for name, setting in OF_DATA.items():
        if options.get(name):
            value = options[name]
            changes[setting] = ",".join(value) if isinstance(value, tuple) else value
    words = to_words(row)
    changes |= {
        name: options[name] for name in ROW_WORDS if options.get(name, words[ROW_WORDS[name]]) != words[ROW_WORDS[name]]
    }
    pairs = tuple((name, json.dumps(value)) for name, value in sorted(changes.items()))
    seed = options.get("seed", 0)
    assert isinstance(seed, int)
    cell = Cell(task.name, learner, seed, preset, where=where if ":" in where else "", changes=pairs)
    about = About(learner, cell.row(), preset, seed, cell.settings(task), "cpu", cell.where)
    check(task, about, None, resuming=True)
    return cell
