"""Results of a sweep: a row for each cell, with what is varied."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from samba_rl.benchmark.cells import Cell, CellResult, read_result
from samba_rl.data.files import disk_error, replacing

FILE = "sweep.csv"
STEPS = 10_000
"""Number of steps to which TV and TC are scaled."""


def finished(cells: Sequence[Cell], results: Path) -> list[CellResult]:
    """Return the results of the finished cells, in the order of the cells."""
    paths = (results / f"{cell.name}.json" for cell in cells)
    return [read_result(path) for path in paths if path.exists()]


def varied(cells: Sequence[Cell]) -> list[str]:
    """Return the names of what differs between cells: parts of a cell, then settings."""
    each = [values(cell) for cell in cells]
    names = list(dict.fromkeys(name for one in each for name in one))
    return [name for name in names if len({one.get(name, "") for one in each}) > 1]


def values(cell: Cell) -> dict[str, str]:
    """Return the parts of a cell and its changed settings, as text by name."""
    parts = {"system": cell.task, "learner": cell.learner, "preset": cell.preset, "seed": str(cell.seed)}
    return {**parts, **{name: str(json.loads(value)) for name, value in cell.changes}}


def figures(result: CellResult) -> dict[str, str]:
    """Return the figures of a result, as text by name."""
    one, scale = result.with_noise, STEPS / result.with_noise.steps
    limits = {each.words: f"{each.value:.4g}" for each in one.constraints}
    return {
        "real samples": str(result.real_samples),
        "learning TV": str(result.learning_TV),
        "learning TC": f"{result.learning_TC:.4g}",
        "return": f"{one.return_mean:.4g}",
        f"TV per {STEPS:,}": f"{scale * one.TV:.4g}",
        f"TC per {STEPS:,}": f"{scale * one.TC:.4g}",
        **limits,
    }


def rows(cells: Sequence[Cell], found: Sequence[CellResult]) -> list[dict[str, str]]:
    """Return a row for each result: what is varied, then its figures."""
    names = varied(cells)
    return [
        {**{name: values(result.cell).get(name, "preset's") for name in names}, **figures(result)} for result in found
    ]


def write_rows(table: Sequence[dict[str, str]], folder: Path) -> Path:
    """Write rows as CSV, and return the path."""
    names = list(dict.fromkeys(name for row in table for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="")
    writer.writeheader()
    writer.writerows(table)
    path = folder / FILE
    try:
        with replacing(path, own=True) as file:
            file.write(text.getvalue().encode())
    except OSError as error:
        raise disk_error(path, error) from error
    return path
