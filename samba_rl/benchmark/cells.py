"""A cell of the grid: one learner on one system with one seed; and what came of it, as one small file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samba_rl.benchmark.audit import Audit
from samba_rl.data.files import disk_error, replacing
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.events import Event, ImprovementReport, TrialReport
from samba_rl.learners import Settings, make_settings
from samba_rl.runs.evaluation import Evaluation
from samba_rl.tasks import make_task

if TYPE_CHECKING:
    from samba_rl.runs import Run

FORMAT = 1
CURVE = 100
"""Points of a learning curve at most."""


@dataclass(frozen=True)
class Cell:
    """What is run."""

    task: str
    learner: str
    seed: int
    preset: str = "default"
    limit: float | None = None
    """ξ of a trajectory; None: the preset's."""
    budget_scale: float = 1.0
    """Share of the preset's real samples that is spent."""

    @property
    def name(self) -> str:
        """Of its file and folder."""
        limit = "" if self.limit is None else f"-xi{self.limit:g}"
        scale = "" if self.budget_scale == 1 else f"-budget{self.budget_scale:g}"
        return f"{self.task}-{self.learner}-{self.preset}{limit}{scale}-{self.seed}"

    def settings(self) -> Settings:
        """What the cell stands for."""
        settings = make_settings(self.task, self.learner, self.preset)
        horizon = make_task(self.task).horizon
        if self.limit is not None and settings.constraint.kind != "none":
            settings = replace(settings, constraint=replace(settings.constraint, limit=self.limit, per="trajectory"))
        if self.budget_scale == 1:
            return settings
        if not self.budget_scale > 0:
            raise UserError(f"budget_scale = {self.budget_scale}; it must be positive")
        samples = max(round(self.budget_scale * settings.real_samples), 2 * horizon)
        # The first trials shrink with the rest where they would take all of it.
        first = min(settings.first.samples, max(samples // 2 // horizon, 1) * horizon)
        return replace(settings, real_samples=samples, first=replace(settings.first, samples=first))


@dataclass(frozen=True)
class Point:
    """Of a learning curve: a real trial."""

    real_samples: int
    return_mean: float
    safety_cost: float
    """Of an episode of the trial, on average."""
    learning_TC: float
    learning_TV: int
    """Steps so far in the unsafe region."""
    predicted_return: float
    predicted_safety: float


@dataclass(frozen=True)
class Tail:
    """The first constraint after a trial: what the model promised of the improved policy, and what that realised."""

    iteration: int
    predicted: float
    target: float
    realised: float
    """On the real system, in an audit apart from learning: a trial has too few episodes for a quantile."""


@dataclass(frozen=True)
class CellResult:
    """What came of a cell."""

    cell: Cell
    real_samples: int
    learning_TC: float
    learning_TV: int
    seconds: float
    device: str
    with_noise: Evaluation
    without_noise: Evaluation
    curve: tuple[Point, ...] = ()
    tail: tuple[Tail, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()


def curve_of(events: Sequence[Event]) -> tuple[Point, ...]:
    """At most `CURVE` of a run's trials, the first and the last among them."""
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


def tail_of(events: Sequence[Event], realised: Mapping[int, float]) -> tuple[Tail, ...]:
    """The first constraint on the model at the end of each improvement, beside what an audit found it to be."""
    ends = {e.iteration: e for e in events if isinstance(e, ImprovementReport) and e.values}
    return tuple(
        Tail(i, end.values[0], end.targets[0], realised[i]) for i, end in sorted(ends.items()) if i in realised
    )


def run_cell(
    cell: Cell,
    folder: Path,
    *,
    device: str = "cpu",
    steps: int = 10_000,
    log: Callable[[Event], None] | None = None,
    workers: int | None = None,
) -> CellResult:
    """Run a cell in its folder, or go on with it there, and evaluate what it ends with."""
    from samba_rl.runs import resume, train
    from samba_rl.runs.folder import CONFIG

    settings = cell.settings()
    audit = Audit(make_task(cell.task), settings, folder, steps, workers)
    if (folder / CONFIG).exists():
        run = resume(folder, log=log, workers=workers, watch=audit)
    else:
        run = train(
            cell.task,
            cell.learner,
            preset=cell.preset,
            seed=cell.seed,
            settings=settings,
            device=device,
            out=folder,
            log=log,
            workers=workers,
            watch=audit,
        )
    with_noise, without = run.evaluate_both(steps, workers)
    audit.add(run.trials[-1].iteration, with_noise)
    return result_of(run, cell, with_noise, without, audit.realised)


def result_of(
    run: Run, cell: Cell, with_noise: Evaluation, without_noise: Evaluation, realised: Mapping[int, float]
) -> CellResult:
    """What came of a run that is a cell; `realised` is what an audit found of its constraint, by trial."""
    events: list[Event] = [*run.trials, *run.improvements]
    return CellResult(
        cell=cell,
        real_samples=int(run.summary["real_samples"]),
        learning_TC=float(run.summary["learning_TC"]),
        learning_TV=int(run.summary["learning_TV"]),
        seconds=float(run.summary["seconds"]),
        device=str(run.summary["device"]),
        with_noise=with_noise,
        without_noise=without_noise,
        curve=curve_of(events),
        tail=tail_of(events, realised),
        versions=tuple((name, str(version)) for name, version in run.summary["versions"].items()),
    )


# Files ----------------------------------------------------------------------------------------------------------------


def write_result(folder: Path, result: CellResult) -> Path:
    """Write a finished cell, whole or not at all."""
    path = folder / f"{result.cell.name}.json"
    text = json.dumps({"format": FORMAT, **to_plain(result)}, ensure_ascii=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise disk_error(path, error) from error
    return path


def read_result(path: Path) -> CellResult:
    """A finished cell."""
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise UserError(f"it holds a {type(value).__name__}, not an object")
        form = value.pop("format", None)
        if form != FORMAT:
            raise UserError(f"it has the format {form}; this samba_rl reads {FORMAT}")
        result: CellResult = from_plain(CellResult, value, "the cell")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}); remove it, and the cell is run again") from error
    return result


def read_results(folder: Path) -> list[CellResult]:
    """Every finished cell of a folder, by name."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder of results; give the one that `samba-rl benchmark` wrote")
    return [read_result(path) for path in sorted(folder.glob("*.json"))]
