"""A finished run: its specification, its events and its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

from samba_rl.agents.agent import Learned
from samba_rl.agents.settings import ModelBasedSettings, Settings
from samba_rl.data import DataSet
from samba_rl.errors import UserError
from samba_rl.events import ImprovementReport, Notice, TrialReport
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.policies import GaussianPolicy, MeanPolicy
from samba_rl.learners import Learner
from samba_rl.models.gp import GPDynamics
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.runs.evaluation import Evaluation, evaluate
from samba_rl.runs.folder import MODEL, read_state
from samba_rl.tasks.task import Task
from samba_rl.types import Policy


@final
@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A finished run of a learner on a system with a seed."""

    task: Task
    """The system."""
    learner: str
    """Name of the learner: of its row in `LEARNERS`, the name given to `train`, or "own"."""
    row: Learner
    """The learner itself."""
    preset: str
    """Name of the preset that the settings started from."""
    seed: int
    """Seed of all random numbers."""
    settings: Settings
    """Numbers of the learner."""
    policy: Learned
    """The learned policy, on the CPU."""
    data: DataSet
    """All real transitions: those measured before the run, then its own."""
    trials: tuple[TrialReport, ...]
    """Reports of the real trials."""
    improvements: tuple[ImprovementReport, ...]
    """Reports of the control iterations; empty for a planner."""
    notices: tuple[Notice, ...]
    """Notices to the user."""
    summary: Mapping[str, Any]
    """Content of summary.json."""
    folder: Path | None = None
    """Folder of the run; None if it was not written to disk."""
    _model: GPDynamics | None = field(default=None)

    def __repr__(self) -> str:
        samples = self.summary.get("real_samples")
        return f"<Run of {self.learner} on {self.task.name}, seed {self.seed}: {samples} real samples>"

    @cached_property
    def model(self) -> GPDynamics:
        """Return the final GP model; for a loaded run it is rebuilt on first use."""
        if self._model is not None:
            return self._model
        if not isinstance(self.settings, ModelBasedSettings):
            latent = "; its latent model is run.policy.model" if isinstance(self.policy, PlanningPolicy) else ""
            raise UserError(f"{self.learner} has no GP model{latent}")
        model = GPDynamics(self.task, self.settings.model)
        assert self.folder is not None
        try:
            model.load_state_dict(read_state(self.folder / MODEL), self.data.transitions)
        except (KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise UserError(f"{self.folder / MODEL} does not fit the run's data ({error}); copy it again") from error
        return model

    @property
    def still_policy(self) -> Policy:
        """Return the policy without noise; a planning policy has none after training."""
        return MeanPolicy(self.policy) if isinstance(self.policy, GaussianPolicy) else self.policy

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """Return the limits on the safety costs."""
        return self.settings.constraints(self.row, self.task.constraints)

    def evaluate(
        self, steps: int = 10_000, seed: int = 0, *, deterministic: bool = False, workers: int | None = None
    ) -> Evaluation:
        """Evaluate the policy on the real system; `deterministic` leaves out its noise."""
        return evaluate(
            self.task,
            self.still_policy if deterministic else self.policy,
            steps=steps,
            seed=seed,
            alpha=self.settings.alpha,
            constraints=self.constraints,
            # A planner has no noise to leave out.
            deterministic=deterministic or not isinstance(self.policy, GaussianPolicy),
            workers=workers,
        )

    def evaluate_both(self, steps: int = 10_000, workers: int | None = None) -> tuple[Evaluation, Evaluation]:
        """Evaluate the policy with and without its noise; evaluate a planner, which has none, only once."""
        with_noise = self.evaluate(steps, workers=workers)
        if self.still_policy is self.policy:
            return with_noise, with_noise
        return with_noise, self.evaluate(steps, deterministic=True, workers=workers)
