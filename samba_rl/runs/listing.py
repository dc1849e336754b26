"""What runs there are, and how each stands, without loading them."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from samba_rl.data.journal import Journal
from samba_rl.errors import UserError
from samba_rl.runs.checkpoints import read_checkpoint
from samba_rl.runs.folder import CONFIG, EVALUATION, JOURNAL, METRICS, POLICY, SUMMARY, read_config, read_json
from samba_rl.runs.lock import held

RunState = Literal["running", "finished", "interrupted", "damaged"]
_TAIL = 200_000
"""Bytes at the end of the metrics in which the last trial is looked for."""


@dataclass(frozen=True)
class Overview:
    """How a run stands."""

    folder: str
    state: RunState
    problem: str = ""
    """What is wrong, and the way out."""
    task: str = ""
    learner: str = ""
    preset: str = ""
    seed: int | None = None
    budget: int | None = None
    """Real samples that it may spend."""
    real_samples: int | None = None
    return_mean: float | None = None
    """Of the last trial."""
    learning_TC: float | None = None  # noqa: N815 - the paper's names
    learning_TV: int | None = None  # noqa: N815
    evaluated_return: float | None = None
    """Of the final policy with its noise, where it was evaluated."""
    seconds: float | None = None
    changed: float = 0.0
    """When something was last written, in seconds since 1970."""


def find_runs(folder: Path) -> list[Path]:
    """The runs in a folder or below it, the latest last."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; give the one that holds runs")
    found = [path.parent for path in folder.rglob(CONFIG)]
    return sorted(found, key=_changed)


def overview(folder: Path) -> Overview:
    """How the run in the folder stands; what is damaged is said, not raised."""
    about: dict[str, Any] = {"folder": str(folder), "changed": _changed(folder)}
    try:
        config = read_config(folder)
        about |= {
            "task": str(config.get("task")),
            "learner": str(config.get("learner")),
            "preset": str(config.get("preset")),
            "seed": _number(config.get("seed"), int),
            "budget": _number(_at(config, "settings", "real_samples"), int),
        }
        about |= _last_figures(folder)
        if held(folder):
            return Overview(state="running", **about)
        Journal.read(folder / JOURNAL)
        if (folder / SUMMARY).exists():
            return Overview(state="finished", **{**about, **_end(folder)})
        checkpoint, problems = read_checkpoint(folder)
        since = "the one before it is used" if checkpoint else "the run is computed anew from its real trials"
        return Overview(state="interrupted", problem=f"{problems[-1]}; {since}" if problems else "", **about)
    except UserError as error:
        return Overview(state="damaged", problem=str(error), **about)


def _changed(folder: Path) -> float:
    times = [path.stat().st_mtime for name in (CONFIG, METRICS, SUMMARY) if (path := folder / name).exists()]
    return max(times, default=0.0)


def _last_figures(folder: Path) -> dict[str, Any]:
    """Of the last trial in the metrics."""
    try:
        with open(folder / METRICS, "rb") as file:
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
                "seconds": _number(row.get("seconds"), float),
            }
    return {}


def _end(folder: Path) -> dict[str, Any]:
    """What a finished run came to."""
    summary = read_json(folder / SUMMARY)
    if not zipfile.is_zipfile(folder / POLICY):
        raise UserError(f"{folder / POLICY} is missing or damaged; copy the run's folder again, or run it again")
    evaluated = read_json(folder / EVALUATION) if (folder / EVALUATION).exists() else {}
    return {
        "evaluated_return": _number(_at(evaluated, "with_noise", "return_mean"), float),
        "seconds": _number(summary.get("seconds"), float),
    }


def _at(values: Any, *names: str) -> Any:
    for name in names:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _number(value: Any, kind: type[Any]) -> Any:
    """A number of that kind, or None for whatever else a file may hold."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return kind(value) if fits and abs(value) < 1e300 else None
