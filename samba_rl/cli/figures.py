"""`samba-rl figures`: draw the paper's figures by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import In, Seed

if TYPE_CHECKING:
    from samba_rl.benchmark.cells import CellResult

FOLDER = Path("figures")
ALL = "all"


def figures(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    results: Path | None = None,
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    task: str | None = None,
    preset: str | None = None,
    samples: tuple[Annotated[int, In("[1, 1e6]")], ...] = (),
    seed: Seed = 0,
) -> int:
    """Draw one of the paper's figures: information, predictions, curves, trade-off, tail, systems; or all of them.

    Args:
        name: information: how much each state would teach the model. predictions: imagined against true motion.
            curves: return against real samples. trade-off: return against safety. tail: the constraint as predicted
            and as measured. systems: pictures of them. all: every figure that can be drawn.
        results: Folder that `samba-rl benchmark` wrote, for curves, trade-off and tail.
        out: File to write, .png, .pdf or .svg; for all, a folder. Default: figures/NAME.png.
        task: The system. Default: the pendulum, or every system with results; for all, every system.
        preset: Use only results with this preset. Default: all results.
        samples: Numbers of transitions of the models, as in --samples 20 40 100. Default: the paper's.
        seed: Seed of the figure; the same seed gives the same figure.
    """
    from samba_rl.report import named
    from samba_rl.tasks import TASKS

    if name != ALL:
        if name not in named.NAMES:
            raise UserError(f"no figure is called '{name}'; available: {', '.join(named.NAMES)}, {ALL}")
        path = out or _path(FOLDER, name, task)
        named.check_path(path)
        _draw(name, _read(results, preset) if name in named.OF_RESULTS else None, task, samples, seed, path)
        return 0
    folder = out or FOLDER
    if folder.suffix.lower() in named.SUFFIXES:
        raise UserError(f"cannot write all figures to one file, '{folder}'; give a folder")
    cells, drawn = _read(results, preset), 0
    for each in named.NAMES:
        for system in list(TASKS) if task is None and each in named.BY_SYSTEM else [task]:
            try:
                _draw(each, cells, system, samples, seed, _path(folder, each, system))
                drawn += 1
            except UserError as error:
                Console(stderr=True).print(f"not drawn: {text(error)}", soft_wrap=True)
    return 0 if drawn else 2


def _path(folder: Path, name: str, task: str | None) -> Path:
    return folder / (f"{name}.png" if task is None or name == "systems" else f"{name}-{task}.png")


def _read(results: Path | None, preset: str | None) -> list[CellResult] | None:
    from samba_rl.benchmark.cells import read_results

    if results is None:
        return None
    cells = read_results(results)
    chosen = [result for result in cells if preset in (None, result.cell.preset)]
    if cells and not chosen:
        there = ", ".join(sorted({result.cell.preset for result in cells}))
        raise UserError(f"the results in {results} have no preset '{preset}'; available: {there}")
    return chosen


def _draw(
    name: str, cells: list[CellResult] | None, task: str | None, samples: tuple[int, ...], seed: int, path: Path
) -> None:
    from samba_rl.report import named

    console = Console()
    with console.status(f"Drawing {name}"):
        named.save(named.draw(name, cells, task, samples or None, seed), path)
    console.print(f"{name}: {text(path)}", soft_wrap=True)
