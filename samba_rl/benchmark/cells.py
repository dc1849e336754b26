"""A cell of the grid, which is one learner on one system with one seed, and its result, which is one small file."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samba_rl.agents.settings import PolicyGradientSettings, Settings
from samba_rl.agents.words import with_words
from samba_rl.benchmark.audit import Audited
from samba_rl.benchmark.names import task_named
from samba_rl.data.files import JSON_LIMIT, disk_error, read_own, replacing
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.events import Event, ImprovementReport, TrialReport
from samba_rl.learners import Learner
from samba_rl.presets import find_row, make_settings
from samba_rl.runs.checks import changed, nested
from samba_rl.runs.evaluation import Evaluation
from samba_rl.tasks.own import load_task
from samba_rl.tasks.task import Task

if TYPE_CHECKING:
    pass

FORMAT = 1
"""Version of the format of result files."""
LONGEST = 120
"""Largest length of the changes in the name of a cell."""
ROW_WORDS = {"zeta": "zeta", "rule": "update", "constraint.kind": "constraint"}
"""Choices of a learner's row by their flags, and their names in words."""
CURVE = 100
"""Approximate number of points of a learning curve; longer runs are thinned."""


@dataclass(frozen=True)
class Cell:
    """One learner on one system with one seed."""

    task: str
    """Name of the system."""
    learner: str
    """Name of the learner."""
    seed: int
    """Seed of the run."""
    preset: str = "default"
    """Name of the settings' preset."""
    limit: float | None = None
    """Limit ξ on the safety cost of a trajectory; None: the preset's."""
    budget_scale: float = 1.0
    """Share of the preset's real samples that is spent."""
    where: str = ""
    """A system of the user's own as module:function or file.py:function; empty: one of the paper's. It is loaded to run
    the cell, never when a result is read."""
    changes: tuple[tuple[str, str], ...] = ()
    """Settings and choices of the row that differ from the preset's: names of flags, and values as JSON."""
    trials: int | None = None
    """Number of real trials after the first; None: as many as the preset's real samples allow."""

    @property
    def name(self) -> str:
        """Return the name of the cell's file and folder."""
        limit = "" if self.limit is None else f"-xi{self.limit:g}"
        scale = "" if self.budget_scale == 1 else f"-budget{self.budget_scale:g}"
        changes = "".join(f"-{name}={json.loads(value)}" for name, value in self.changes)
        if len(changes) > LONGEST:
            # File systems have names of at most 255 bytes.
            changes = f"-{hashlib.sha256(changes.encode()).hexdigest()[:12]}"
        trials = "" if self.trials is None else f"-{self.trials}trials"
        name = f"{self.task}-{self.learner}-{self.preset}{limit}{scale}{trials}{changes}-{self.seed}"
        return re.sub(r"[^\w.=-]+", "-", name)

    @property
    def shown(self) -> str:
        """Return the learner with what was changed, for tables."""
        return ", ".join([self.learner, *(f"{name} {json.loads(value)}" for name, value in self.changes)])

    def system(self) -> Task:
        """Make the system; that of a user's own is loaded from where it was named."""
        return load_task(self.where) if self.where else task_named(self.task)

    def row(self) -> Learner:
        """Return the learner with the choices that were changed."""
        words = {ROW_WORDS[name]: json.loads(value) for name, value in self.changes if name in ROW_WORDS}
        return with_words(find_row(self.learner, self.preset), words)

    def settings(self, task: Task | None = None) -> Settings:
        """Return the preset's settings with the cell's limit, budget and changes; `task` is the system, if made."""
        # A system of the user's own is only loaded to run the cell.
        known = task if task is not None or self.where else task_named(self.task)
        settings = make_settings(known or self.task, self.row(), self.preset)
        changes = {name: json.loads(value) for name, value in self.changes if name not in ROW_WORDS}
        settings = changed(settings, nested(changes))
        if self.limit is None and self.budget_scale == 1 and self.trials is None:
            return settings
        horizon = (known or task_named(self.task)).horizon
        if self.limit is not None and self.row().constraint is not None:
            assert isinstance(settings, PolicyGradientSettings)
            settings = replace(settings, constraint=replace(settings.constraint, limit=self.limit, per="trajectory"))
        if self.trials is not None:
            first = -(-settings.first.samples // horizon) * horizon
            settings = replace(settings, real_samples=first + self.trials * settings.episodes * horizon)
        if self.budget_scale == 1:
            return settings
        if not 0 < self.budget_scale < math.inf:
            raise UserError(f"budget_scale = {self.budget_scale}; it must be positive and finite")
        samples = max(round(self.budget_scale * settings.real_samples), 2 * horizon)
        # The random first trials shrink too, so that they leave at least half of a small budget for learning.
        first = min(settings.first.samples, max(samples // 2 // horizon, 1) * horizon)
        return replace(settings, real_samples=samples, first=replace(settings.first, samples=first))


@dataclass(frozen=True)
class Point:
    """One point of a learning curve, which is one real trial."""

    real_samples: int
    """Real steps so far."""
    return_mean: float
    """Mean return of the trial's episodes."""
    safety_cost: float
    """Mean safety cost of the trial's episodes."""
    learning_TC: float
    """Total safety cost so far."""
    learning_TV: int
    """Number of steps inside the unsafe region so far."""
    predicted_return: float
    """Return that the model predicted for the trial; NaN: there was no prediction."""
    predicted_safety: float
    """Safety cost that the model predicted for the trial; NaN: there was no prediction."""


@dataclass(frozen=True)
class Tail:
    """The first constraint after a trial, predicted by the model and measured on the real system."""

    iteration: int
    """Number of the trial."""
    predicted: float
    """Value on the model at the end of the improvement."""
    target: float
    """Value that the learner aimed at."""
    realised: float
    """Value on the real system, from an audit outside learning, because a trial has too few episodes for a quantile."""
    return_mean: float = math.nan
    """Mean return on the real system, from the same audit."""
    real_samples: int = 0
    """Real steps before the policy's own trial; 0: not recorded."""


@dataclass(frozen=True)
class CellResult:
    """The result of a finished cell."""

    cell: Cell
    real_samples: int
    """Number of real steps used for learning."""
    learning_TC: float
    """Total safety cost during learning."""
    learning_TV: int
    """Number of steps inside the unsafe region during learning."""
    seconds: float
    """Duration of the run."""
    device: str
    """Device on which models and policies were computed."""
    with_noise: Evaluation
    """Evaluation of the final policy with the noise of its actions."""
    without_noise: Evaluation
    """Evaluation of the final policy without noise."""
    curve: tuple[Point, ...] = ()
    """Learning curve."""
    tail: tuple[Tail, ...] = ()
    """First constraint after each trial; empty for learners without a model or a constraint."""
    versions: tuple[tuple[str, str], ...] = ()
    """Names and versions of the packages."""
    model_error: float = math.nan
    """Root mean square error of the final model's one-step predictions on a fixed wide set of states, in standard
    deviations of the changes of state there; NaN without a model."""


def curve_of(events: Sequence[Event]) -> tuple[Point, ...]:
    """Return about `CURVE` of a run's trials, including the first and the last."""
    trials = [event for event in events if isinstance(event, TrialReport)]
    if not trials:
        return ()
    step = max(1, -(-len(trials) // CURVE))
    kept = [*trials[:-1][::step], trials[-1]]
    return tuple(
        Point(
            t.real_samples, t.return_mean, t.safety_cost, t.learning_TC, t.learning_TV, t.predicted_return,
            t.predicted_safety,
        )
        for t in kept
    )  # fmt: skip


def tail_of(events: Sequence[Event], realised: Mapping[int, Audited]) -> tuple[Tail, ...]:
    """Return the first constraint of each policy that was audited, by the trial that it follows.

    The model's value is the last one; a policy that its trial confirmed was not improved after it.
    """
    reports = [e for e in events if isinstance(e, ImprovementReport) and e.values]
    samples = {e.iteration: e.real_samples for e in events if isinstance(e, TrialReport)}
    ends = {i: [e for e in reports if e.iteration <= i][-1:] for i in sorted(realised)}
    return tuple(
        Tail(i, end.values[0], end.targets[0], *realised[i], real_samples=samples.get(i, 0))
        for i, found in ends.items()
        for end in found
    )


# Files ----------------------------------------------------------------------------------------------------------------


def write_result(folder: Path, result: CellResult) -> Path:
    """Write the result of a cell, completely or not at all, and return the path."""
    path = folder / f"{result.cell.name}.json"
    text = json.dumps({"format": FORMAT, **to_plain(result)}, ensure_ascii=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path, own=True) as file:
            file.write(text.encode())
    except OSError as error:
        raise disk_error(path, error) from error
    return path


def read_result(path: Path) -> CellResult:
    """Read the result of a cell."""
    try:
        value: Any = json.loads(read_own(path, JSON_LIMIT))
        if not isinstance(value, dict):
            raise UserError(f"it holds a {type(value).__name__}, not an object")
        form = value.pop("format", None)
        if form != FORMAT:
            raise UserError(f"its format is {form}; this version of samba_rl reads format {FORMAT}")
        result: CellResult = from_plain(CellResult, value, "the cell")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}); remove it, and the cell will be run again") from error
    return result


def read_results(folder: Path) -> list[CellResult]:
    """Read all results of a folder, ordered by name."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the results folder that `samba-rl benchmark` wrote")
    return [read_result(path) for path in sorted(folder.glob("*.json"))]
