"""Audit of learners with a model, which know only the model's prediction of their constraint, on the real system."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple, final

from samba_rl.agents.settings import Settings
from samba_rl.data.files import JSON_LIMIT, read_own, replacing
from samba_rl.errors import UserError
from samba_rl.learners import Learner
from samba_rl.runs.evaluation import Evaluation, evaluate
from samba_rl.tasks.task import Task
from samba_rl.types import Policy

FILE = "audit.json"
"""File in a cell's folder with the measured value of the first constraint and the return, by trial."""
AUDIT_SEED = 2_000_000
"""Seed of the audit of trial 0 in a run with seed 0."""
SEED_STRIDE = 10_000
"""Distance of the audit seeds of two runs, so that no two audits of a grid share their start states."""
STEPS = 5_000
"""Largest number of real steps with each policy; none of them is used for learning."""


class Audited(NamedTuple):
    """A policy as the real system judges it."""

    value: float
    """Value of the first constraint."""
    return_mean: float = math.nan
    """Mean return; NaN if an earlier version made the audit."""


@final
class Audit:
    """Measures the first constraint and the return of each policy on the real system, before it makes its trial.

    The values are kept in the cell's folder, so that an interrupted cell loses none of them.
    """

    def __init__(
        self, task: Task, learner: Learner, settings: Settings, folder: Path, steps: int, workers: int | None, seed: int
    ) -> None:
        """Read the values that the folder already holds; `steps` limits the real steps with each policy.

        `seed` is the run's.
        """
        self._task, self._path, self._workers = task, folder / FILE, workers
        self._steps, self._seed = min(steps, STEPS), AUDIT_SEED + SEED_STRIDE * seed
        self._constraints = settings.constraints(learner, task.constraints) if learner.source.imagines else ()
        self.realised = read_audit(folder)

    def __call__(self, iteration: int, policy: Policy) -> None:
        """Measure the policy that was learned from trial `iteration`, unless that has been done."""
        if self._constraints and iteration not in self.realised:
            found = evaluate(
                self._task,
                policy,
                steps=self._steps,
                seed=self._seed + iteration,
                constraints=self._constraints,
                workers=self._workers,
            )
            self.add(iteration, found)

    def add(self, iteration: int, evaluation: Evaluation) -> None:
        """Record an evaluation of the policy that was learned from trial `iteration`."""
        if self._constraints:
            self.realised[iteration] = Audited(evaluation.constraints[0].value, evaluation.return_mean)
            with replacing(self._path, own=True) as file:
                file.write(json.dumps(self.realised).encode())


def read_audit(folder: Path) -> dict[int, Audited]:
    """Return what the folder's audit measured, by trial; empty if the folder has none."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        kept = json.loads(read_own(path, JSON_LIMIT))
        return {int(iteration): _audited(found) for iteration, found in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged ({error}); remove it, and the values it held are missing from the tail figure"
        ) from error


def _audited(found: Any) -> Audited:
    """Return what a file holds of one policy: its value and return, or the value alone."""
    if isinstance(found, list):
        value, return_mean = found
        return Audited(float(value), float(return_mean))
    return Audited(float(found))
