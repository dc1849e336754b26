"""Listing of runs with their progress, without loading them."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from samba_rl.data.files import reading_own
from samba_rl.data.journal import Journal
from samba_rl.errors import UserError
from samba_rl.runs.checkpoints import read_checkpoint
from samba_rl.runs.commands import named_task
from samba_rl.runs.differences import differences
from samba_rl.runs.evaluation import Evaluation, read_evaluations
from samba_rl.runs.extending import budgets_in
from samba_rl.runs.folder import CONFIG, JOURNAL, METRICS, POLICY, SUMMARY, read_config, read_json
from samba_rl.runs.limits import breaches_in, measured
from samba_rl.runs.lock import held
from samba_rl.runs.manifest import check_whole
from samba_rl.runs.summary import TOLD, trials_of
from samba_rl.runs.told import samples_told
from samba_rl.runs.writer import RECOMPUTED

RunState = Literal["running", "finished", "waiting", "interrupted", "damaged"]
_TAIL = 200_000
"""Number of bytes at the end of the metrics that are searched for the last trial."""


@dataclass(frozen=True)
class Overview:
    """State and progress of a run; None for numbers that are not known."""

    folder: str
    """Folder of the run."""
    state: RunState
    """State of the run."""
    problem: str = ""
    """Problem with the run, and the way out; empty without one."""
    task: str = ""
    """Name of the system."""
    named: str = ""
    """The system as it was named on the command line, such as mine.py:task; empty if it needs no --task."""
    learner: str = ""
    """Name of the learner."""
    preset: str = ""
    """Name of the preset."""
    seed: int | None = None
    """Seed of the run."""
    changes: tuple[str, ...] = ()
    """Settings and choices that differ from the preset's, such as "constraint.limit 1.5"."""
    budget: int | None = None
    """Budget of real samples."""
    real_samples: int | None = None
    """Real samples so far."""
    return_mean: float | None = None
    """Mean return of the last trial."""
    learning_TC: float | None = None  # noqa: N815 - the paper's names
    """Total safety cost of all trials so far."""
    learning_TV: int | None = None  # noqa: N815
    """Steps of all trials so far in the unsafe region."""
    set_aside: int | None = None
    """Steps so far that were set aside as outliers."""
    evaluated_return: float | None = None
    """Mean return of the final policy with its noise, from its evaluation."""
    limit_kept: bool | None = None
    """Whether the final policy keeps its limits, on the model and as its evaluation measured it; None if unknown."""
    missed: tuple[str, ...] = ()
    """Limits that it does not keep, in words with the numbers."""
    measured: tuple[tuple[str, str], ...] = ()
    """Each limit with its measured value in words, and whether the evaluation says kept, unclear or broken."""
    seconds: float | None = None
    """Seconds since the run began."""
    changed: float = 0.0
    """Time of the last write, in seconds since 1970."""


def find_runs(folder: Path) -> list[Path]:
    """Return the folders of the runs in or below a folder, the most recently changed last."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; give a folder that contains runs")
    found = [path.parent for path in folder.rglob(CONFIG)]
    return sorted(found, key=_changed)


def overview(folder: Path) -> Overview:
    """Return the state of the run in a folder; damage is reported as a problem, not raised."""
    about: dict[str, Any] = {"folder": str(folder), "changed": _changed(folder)}
    try:
        config = read_config(folder)
        about |= {
            "task": str(config.get("task")),
            "named": named_task(config),
            "learner": str(config.get("learner")),
            "preset": str(config.get("preset")),
            "seed": _number(config.get("seed"), int),
            "changes": differences(config),
            "budget": _number(_at(config, "settings", "real_samples"), int),
        }
        if more := budgets_in(folder):
            about["budget"] = more[-1]
        about |= _last_figures(folder)
        if held(folder):
            return Overview(state="running", **about)
        journal = Journal.read(folder / JOURNAL)
        if (folder / SUMMARY).exists():
            check_whole(folder)
            return Overview(state="finished", **{**about, **_end(folder)})
    except UserError as error:
        return Overview(state="damaged", problem=str(error), **about)
    if trials_of(config) == TOLD:
        about["real_samples"] = samples_told(journal)[0]  # the metrics lack what was told since the last `ask`
        return Overview(state="waiting", problem=_checkpoint_problem(folder), **about)
    return Overview(state="interrupted", problem=_checkpoint_problem(folder), **about)


def _checkpoint_problem(folder: Path) -> str:
    """Describe what stands in the way of resuming from the last checkpoint; empty if nothing does."""
    try:
        checkpoint, problems = read_checkpoint(folder)
    except UserError as error:
        # The checkpoint of another version.
        return str(error)
    if not problems:
        return ""
    return f"{problems[-1]}; {'the one before it is used' if checkpoint else RECOMPUTED}"


def _changed(folder: Path) -> float:
    times = [path.stat().st_mtime for name in (CONFIG, METRICS, SUMMARY) if (path := folder / name).exists()]
    return max(times, default=0.0)


def _last_figures(folder: Path) -> dict[str, Any]:
    """Return the numbers of the last trial in the metrics."""
    try:
        with reading_own(folder / METRICS) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = json.loads(line) if b'"trial"' in line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and row.get("kind") == "trial":
            return {
                "real_samples": _number(row.get("real_samples"), int),
                "return_mean": _number(row.get("return_mean"), float),
                "learning_TC": _number(row.get("learning_TC"), float),
                "learning_TV": _number(row.get("learning_TV"), int),
                "set_aside": _number(row.get("set_aside"), int),
                "seconds": _number(row.get("seconds"), float),
            }
    return {}


def _end(folder: Path) -> dict[str, Any]:
    """Return the results of a finished run."""
    summary = read_json(folder / SUMMARY)
    try:
        with reading_own(folder / POLICY) as file:
            whole = zipfile.is_zipfile(file)
    except OSError:
        whole = False
    if not whole:
        raise UserError(f"{folder / POLICY} is missing or damaged; mend it with: samba-rl verify {folder} --repair")
    evaluated = read_evaluations(folder)
    missed = tuple(one.words for one in breaches_in(folder) if not one.expected)
    kept = summary.get("limit_kept")
    return {
        "limit_kept": False if missed else kept if isinstance(kept, bool) else None,
        "missed": missed,
        "measured": () if evaluated is None else _measured(evaluated[0]),
        "evaluated_return": None if evaluated is None else _number(evaluated[0].return_mean, float),
        "seconds": _number(summary.get("seconds"), float),
    }


def _measured(evaluation: Evaluation) -> tuple[tuple[str, str], ...]:
    found = [(one.words, one.limit, *measured(evaluation, i)) for i, one in enumerate(evaluation.constraints)]
    return tuple((f"{words}: {value}, limit {limit:g}", standing) for words, limit, value, standing in found)


def _at(values: Any, *names: str) -> Any:
    for name in names:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _number(value: Any, kind: type[Any]) -> Any:
    """Return a number of that kind; None for anything else that a file may contain."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return kind(value) if fits and abs(value) < 1e300 else None
