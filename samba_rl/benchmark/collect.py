"""Collects runs and benchmark results from folders, as results that can be put into the same tables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from samba_rl.agents.settings import Settings
from samba_rl.agents.words import to_words
from samba_rl.benchmark.audit import read_audit
from samba_rl.benchmark.cells import Cell, CellResult, Point, curve_of, read_result
from samba_rl.benchmark.folders import bounds_in, certificate_in, events_in, result_in
from samba_rl.benchmark.names import task_named
from samba_rl.benchmark.running import result_of
from samba_rl.data.files import JSON_LIMIT, read_own
from samba_rl.data.plain import to_plain
from samba_rl.errors import UserError
from samba_rl.learners import Learner
from samba_rl.presets import find_row, make_settings
from samba_rl.runs.certify import Certificate
from samba_rl.runs.evaluation import STEPS, read_evaluations
from samba_rl.runs.folder import SUMMARY, read_config, read_json
from samba_rl.runs.limits import Breach, breaches, breaches_in, measured_breaches
from samba_rl.runs.listing import Overview, find_runs, overview

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.tasks.task import Task


@dataclass(frozen=True)
class Found:
    """A run or a benchmark result that was found, with its result if it has one."""

    name: str
    """Name of the run's folder, or of the cell."""
    state: Literal["running", "finished", "waiting", "interrupted", "damaged"]
    task: str
    learner: str
    seed: int | None
    preset: str
    problem: str = ""
    """Reason why there is no result, or no run."""
    result: CellResult | None = None
    """Result of the run; None: it is not finished."""
    run: Run | None = None
    """The run itself; None: only its result is available."""
    settings: Mapping[str, Any] | None = None
    """Settings by dotted name."""
    changed: tuple[str, ...] = ()
    """Names of the settings that differ from the preset's."""
    breaches: tuple[Breach, ...] = ()
    """Limits that the final policy does not keep."""
    title: str = ""
    """Title of the system; empty: its name."""
    folder: Path | None = None
    """Folder of the run; None: only its result is available."""
    seen: Overview | None = None
    """State and progress of the run."""
    curve: tuple[Point, ...] = ()
    """Learning curve of the run so far."""
    bounds: tuple[float, ...] = ()
    """Upper bound of each constraint on the model, for the policy that was handed over."""
    certificate: Certificate | None = None
    """The run's latest certificate."""


def collect(
    places: Sequence[Path],
    *,
    task: Task | None = None,
    steps: int | None = None,
    workers: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Found]:
    """Return all runs and benchmark results in some folders, and evaluate runs that have no evaluation yet.

    Args:
        places: Run folders, folders that contain runs at any depth, folders of benchmark results, or result files.
        task: The system of runs on a user's own system.
        steps: Real steps of the evaluation of a run that has none; None: 10,000, but none of a rig.
        workers: Number of processes for simulated systems.
        tell: Called with a description of each step of the work.
    """
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
            f"{where}: no run and no benchmark result found; give a folder that `samba-rl train` or "
            "`samba-rl benchmark` wrote"
        )
    return found


def _is_cell(path: Path) -> bool:
    """Return whether a JSON file is a benchmark result, damaged or not; other files may be in the same folder."""
    try:
        value = json.loads(read_own(path, JSON_LIMIT))
    except (OSError, ValueError, RecursionError):
        return True  # reading it as a result will report the damage
    return isinstance(value, dict) and "cell" in value


def _run(
    folder: Path,
    cells: Mapping[Cell, CellResult],
    task: Task | None,
    steps: int | None,
    workers: int | None,
    tell: Callable[[str], None],
) -> Found:
    from samba_rl.runs import load_run

    one = from_files(folder)
    if one.state != "finished" or one.seen is None:
        return one
    given = task if task is not None and task.name == one.task else None
    if given is None and one.seen.named:
        way = f"its system is your own, so give it as well: --task {shlex.quote(one.seen.named)}"
        return replace(one, problem=one.problem or (way if one.result else f"it was not evaluated, and {way}"))
    try:
        run = load_run(folder, given)
    except UserError as error:
        return replace(one, problem=str(error))
    one = replace(one, run=run, title=run.task.title)
    cell = cell_of(run)
    known = cells.get(cell)
    if known is None or not _is_of(known, run):
        both = read_evaluations(folder)
        if both is None and steps is None and not run.task.parallel:
            why = f"it was not evaluated, because {run.task.name} is a rig; --steps N says how long it may run"
            return replace(one, problem=why)
        if both is None:
            tell(f"Evaluating {folder.name}: {STEPS if steps is None else steps:,} steps")
            both = run.evaluate_both(steps, workers)
        known = result_of(run, cell, *both, read_audit(folder))
    settings, changed = _named(run.row, run.settings), tuple(name for name, _ in changes(run))
    missed = tuple(breaches(run.summary, known.with_noise))
    return replace(one, result=known, settings=settings, changed=changed, breaches=missed)


def from_files(folder: Path) -> Found:
    """Return what the files of a run say, without its system."""
    seen = overview(folder)
    one = Found(
        folder.name, seen.state, seen.task, seen.learner, seen.seed, seen.preset, seen.problem, folder=folder, seen=seen
    )
    one = replace(one, curve=curve_of(events_in(folder)))
    if seen.state != "finished":
        return one
    try:
        result, summary = result_in(folder, seen), read_json(folder / SUMMARY)
        settings = dict(flat(read_config(folder).get("settings", {})))
        missed = tuple(breaches_in(folder))
    except UserError as error:
        return replace(one, problem=str(error))
    return replace(
        one, result=result, settings=settings, changed=tuple(words.split(" ")[0] for words in seen.changes),
        breaches=missed, bounds=bounds_in(summary), certificate=certificate_in(folder),
    )  # fmt: skip


def _is_of(result: CellResult, run: Run) -> bool:
    """Return whether a result is that of this run; the same cell on another machine has other numbers."""
    ours = (run.summary["real_samples"], run.summary["learning_TC"], run.summary["learning_TV"])
    return ours == (result.real_samples, result.learning_TC, result.learning_TV)


def _cell(result: CellResult) -> Found:
    cell = result.cell
    try:
        row = find_row(cell.learner, cell.preset)
        settings = _named(row, cell.settings())
        usual = _named(row, make_settings(task_named(cell.task), row, cell.preset))
    except UserError:  # the system or the learner is not known here
        settings, usual = {}, {}
    changed = tuple(name for name, value in settings.items() if usual[name] != value)
    problem = "the run's folder is not available, only its result"
    missed = tuple(measured_breaches(result.with_noise, [result.tail[-1].target] if result.tail else ()))
    return Found(
        cell.name, "finished", cell.task, cell.learner, cell.seed, cell.preset, problem, result,
        settings=settings, changed=changed, breaches=missed,
    )  # fmt: skip


# The cell of a run ----------------------------------------------------------------------------------------------------


def cell_of(run: Run) -> Cell:
    """Return the cell that a run belongs to.

    If other settings than the limit and the budget differ from the preset, the cell's preset names them, so that runs
    with different settings are never averaged.
    """
    cell = Cell(run.task.name, run.learner, run.seed, run.preset)
    whole = [one.limit * (run.task.horizon if one.per_step else 1) for one in run.constraints[:1]]
    try:
        usual = make_settings(run.task, run.learner, run.preset)
        for scale in (1.0, run.settings.real_samples / usual.real_samples):
            for xi in (None, *whole):
                named = replace(cell, limit=xi, budget_scale=scale)
                if named.settings() == run.settings and find_row(run.learner, run.preset) == run.row:
                    return named
    except UserError:  # a user's own system or learner
        pass
    words = ", ".join(f"{name} {value}" for name, value in changes(run))
    return replace(cell, preset=f"{run.preset} with {words}") if words else cell


def changes(run: Run) -> list[tuple[str, Any]]:
    """Return the names and values of the settings that differ from those of the run's learner and preset."""
    try:
        usual = _named(find_row(run.learner, run.preset), make_settings(run.task, run.learner, run.preset))
    except UserError:  # a user's own learner
        return []
    return [(name, value) for name, value in _named(run.row, run.settings).items() if usual.get(name) != value]


def _named(row: Learner, settings: Settings) -> dict[str, Any]:
    """Return the learner's choices and its settings, by the names of their flags."""
    words = to_words(row)
    choices = {"zeta": words["zeta"], "rule": words["update"], "constraint.kind": words["constraint"]}
    return {**choices, **dict(flat(to_plain(settings)))}


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names and values of nested settings, with dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{name}.")
        else:
            yield above + name, value
