"""Runs and finished cells, wherever they lie, as results that can stand in one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from samba_rl.benchmark.audit import read_audit
from samba_rl.benchmark.cells import Cell, CellResult, read_result, result_of
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.learners import make_settings
from samba_rl.runs.evaluation import Evaluation

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.tasks.task import Task


@dataclass(frozen=True)
class Found:
    """A run or a finished cell, and what came of it."""

    name: str
    """Of its folder, or of the cell."""
    state: Literal["running", "finished", "interrupted", "damaged"]
    task: str
    learner: str
    seed: int | None
    preset: str
    problem: str = ""
    """Why there is no result, or no run."""
    result: CellResult | None = None
    run: Run | None = None
    settings: Mapping[str, Any] | None = None
    """By dotted name."""
    changed: tuple[str, ...] = ()
    """Names of the settings that are not the preset's."""


def collect(
    places: Sequence[Path],
    *,
    task: Task | None = None,
    steps: int = 10_000,
    workers: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Found]:
    """All runs and finished cells in some folders; what was not evaluated yet is.

    Args:
        places: Folders of runs, folders that hold some at any depth, folders of a benchmark's results, or their files.
        task: The system of runs on a system of one's own.
        steps: Real steps of an evaluation where there is none.
        workers: Processes for systems that a simulator runs.
        tell: Is called with what is being done.
    """
    from samba_rl.runs.listing import find_runs

    cells: dict[Cell, CellResult] = {}
    folders: list[Path] = []
    for place in places:
        if place.is_file():
            result = read_result(place)
            cells[result.cell] = result
            continue
        runs = find_runs(place)
        folders += [folder for folder in runs if folder not in folders]
        if place not in runs:
            cells |= {
                result.cell: result for result in map(read_result, filter(_is_cell, sorted(place.glob("*.json"))))
            }
    found = [_run(folder, cells, task, steps, workers, tell) for folder in folders]
    used = {id(one.result) for one in found}
    found += [_cell(result) for result in cells.values() if id(result) not in used]
    if not found:
        where = ", ".join(map(str, places))
        raise UserError(
            f"there is neither a run nor a result in {where}; give the folder that `samba-rl train` or "
            "`samba-rl benchmark` wrote"
        )
    return found


def _is_cell(path: Path) -> bool:
    """Whether a file is, or was, a result; others may lie beside it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True  # reading it says what is wrong
    return isinstance(value, dict) and "cell" in value


def _run(
    folder: Path,
    cells: Mapping[Cell, CellResult],
    task: Task | None,
    steps: int,
    workers: int | None,
    tell: Callable[[str], None],
) -> Found:
    from samba_rl.runs import load_run
    from samba_rl.runs.folder import EVALUATION, read_json
    from samba_rl.runs.listing import overview

    seen = overview(folder)
    one = Found(folder.name, seen.state, seen.task, seen.learner, seen.seed, seen.preset, seen.problem)
    if seen.state != "finished":
        way = f"samba-rl resume {folder}" if seen.state == "interrupted" else ""
        return replace(one, problem="; ".join(filter(None, (seen.problem, way and f"go on with it: {way}"))))
    try:
        run = load_run(folder, task if task is not None and task.name == seen.task else None)
    except UserError as error:
        return replace(one, problem=str(error))
    cell = cell_of(run)
    known = cells.get(cell)
    if known is None or not _is_of(known, run):
        if (folder / EVALUATION).exists():
            kept, where = read_json(folder / EVALUATION), str(folder / EVALUATION)
            with_noise: Evaluation = from_plain(Evaluation, kept.get("with_noise"), f"{where}: with_noise")
            without: Evaluation = from_plain(Evaluation, kept.get("without_noise"), f"{where}: without_noise")
        else:
            tell(f"Evaluating {folder.name}: {steps:,} steps")
            with_noise, without = run.evaluate_both(steps, workers)
        known = result_of(run, cell, with_noise, without, read_audit(folder))
    settings, changed = dict(flat(to_plain(run.settings))), tuple(name for name, _ in changes(run))
    return replace(one, result=known, run=run, settings=settings, changed=changed)


def _is_of(result: CellResult, run: Run) -> bool:
    """Whether a result is of this very run: another machine, or another system of that name, gives other numbers."""
    ours = (run.summary["real_samples"], run.summary["learning_TC"], run.summary["learning_TV"])
    return ours == (result.real_samples, result.learning_TC, result.learning_TV)


def _cell(result: CellResult) -> Found:
    cell = result.cell
    try:
        settings = dict(flat(to_plain(cell.settings())))
        usual = dict(flat(to_plain(make_settings(cell.task, cell.learner, cell.preset))))
    except UserError:  # of a system or a learner that is not known here
        settings, usual = {}, {}
    changed = tuple(name for name, value in settings.items() if usual[name] != value)
    problem = "its run is not here, only its result"
    return Found(
        cell.name, "finished", cell.task, cell.learner, cell.seed, cell.preset, problem, result, None, settings, changed
    )


# Which cell a run is --------------------------------------------------------------------------------------------------


def cell_of(run: Run) -> Cell:
    """The cell that a run stands for.

    Other settings than a preset, a limit and a budget can give make another preset of it, so that nothing is averaged
    that does not belong together.
    """
    cell = Cell(run.task.name, run.learner, run.seed, run.preset)
    limit, per = run.settings.constraint.limit, run.settings.constraint.per
    whole = limit * (run.task.horizon if per == "step" else 1)
    try:
        usual = make_settings(run.task.name, run.learner, run.preset)
        for scale in (1.0, run.settings.real_samples / usual.real_samples):
            for xi in (None, whole):
                named = replace(cell, limit=xi, budget_scale=scale)
                if named.settings() == run.settings:
                    return named
    except UserError:  # a system or a learner of the user's own
        pass
    words = ", ".join(f"{name} {value}" for name, value in changes(run))
    return replace(cell, preset=f"{run.preset} with {words}") if words else cell


def changes(run: Run) -> list[tuple[str, Any]]:
    """The settings that are not those of the run's learner and preset."""
    try:
        usual = dict(flat(to_plain(make_settings(run.task.name, run.learner, run.preset))))
    except UserError:  # a learner of the user's own
        return []
    return [(name, value) for name, value in flat(to_plain(run.settings)) if usual.get(name) != value]


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")
        else:
            yield above + name, value
