"""Running a cell: its run, its evaluation and the audit of its policies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from samba_rl.benchmark.audit import Audit, Audited
from samba_rl.benchmark.cells import Cell, CellResult, curve_of, tail_of
from samba_rl.benchmark.wide import wide_error
from samba_rl.errors import UserError
from samba_rl.events import Event
from samba_rl.runs.evaluation import Evaluation

if TYPE_CHECKING:
    from samba_rl.runs import Run

LOCK_SECONDS = 10.0
"""Time for which a cell waits until its folder is free, in seconds."""


def run_cell(
    cell: Cell,
    folder: Path,
    *,
    device: str = "cpu",
    steps: int = 10_000,
    log: Callable[[Event], None] | None = None,
    workers: int | None = None,
) -> CellResult:
    """Run a cell in its folder, or resume it there, and evaluate its final policy in `steps` real steps."""
    from samba_rl.runs import resume, train
    from samba_rl.runs.folder import CONFIG

    task, row = cell.system(), cell.row()
    if task.name != cell.task:
        raise UserError(f"{cell.where} returned the system '{task.name}'; the cell is on '{cell.task}'")
    settings = cell.settings(task)
    audit = Audit(task, row, settings, folder, steps, workers, cell.seed)
    if (folder / CONFIG).exists():
        run = _when_free(lambda: resume(folder, task, log=log, workers=workers, watch=audit))
    else:
        run = train(
            task,
            row,
            name=cell.learner,
            named=cell.where,
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


def _when_free(resumed: Callable[[], Run]) -> Run:
    """Resume a run; wait a moment for the process of a benchmark that was just killed, which may still be ending."""
    from samba_rl.runs.lock import InUse

    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return resumed()
        except InUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def result_of(
    run: Run, cell: Cell, with_noise: Evaluation, without_noise: Evaluation, realised: Mapping[int, Audited]
) -> CellResult:
    """Return the result of a cell from its run, its evaluations and the audited values of its constraint by trial."""
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
        # A system of the user's own is not run for longer than its evaluation.
        model_error=wide_error(run.model) if run.row.source.imagines and not cell.where else math.nan,
    )
