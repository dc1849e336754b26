"""What the policies of a learner with a model realise of their constraint, while the learner only knows the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import final

from samba_rl.data.files import replacing
from samba_rl.errors import UserError
from samba_rl.learners import Settings
from samba_rl.runs.checks import constraints_of
from samba_rl.runs.evaluation import Evaluation, evaluate
from samba_rl.tasks.task import Task
from samba_rl.types import Policy

FILE = "audit.json"
"""In a cell's folder: the first constraint on the real system, by the trial that the policy followed."""
STEPS = 5_000
"""Real steps in which each policy is measured at most; none of them is learned from."""


@final
class Audit:
    """Measures the first constraint of each policy on the real system, before the policy makes its trial.

    What was measured is kept in the cell's folder, so that a cell that was interrupted has all of it.
    """

    def __init__(self, task: Task, settings: Settings, folder: Path, steps: int, workers: int | None) -> None:
        """`steps` at most are made with a policy."""
        self._task, self._path, self._workers = task, folder / FILE, workers
        self._steps = min(steps, STEPS)
        self._constraints = constraints_of(task, settings) if settings.traces == "model" else ()
        self.realised = read_audit(folder)

    def __call__(self, iteration: int, policy: Policy) -> None:
        """Measure the policy that follows a trial."""
        if self._constraints and iteration not in self.realised:
            constraints, workers = self._constraints, self._workers
            self.add(
                iteration, evaluate(self._task, policy, steps=self._steps, constraints=constraints, workers=workers)
            )

    def add(self, iteration: int, evaluation: Evaluation) -> None:
        """Take down what an evaluation of the policy that follows a trial has found."""
        if self._constraints:
            self.realised[iteration] = evaluation.constraints[0][1]
            with replacing(self._path) as file:
                file.write(json.dumps(self.realised).encode())


def read_audit(folder: Path) -> dict[int, float]:
    """The first constraint on the real system, by trial, as far as it was measured."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {int(iteration): float(realised) for iteration, realised in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged ({error}); remove it: the tail's figure then leaves out what it held"
        ) from error
