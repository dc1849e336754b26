"""A finished run: its specification, its events and its results."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch

from samba_rl.agents.agent import Learned
from samba_rl.agents.outliers import without
from samba_rl.agents.settings import ModelBasedSettings, Settings
from samba_rl.data import DataSet
from samba_rl.errors import UserError
from samba_rl.events import ImprovementReport, Notice, TrialReport
from samba_rl.improve.constraints import Constraint, CVaR, bind
from samba_rl.improve.limits import ConstraintSettings
from samba_rl.learners import Learner
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.gp import GPDynamics
from samba_rl.models.world import ModelSource
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.runs.bounds import Method
from samba_rl.runs.certify import Certificate, certify
from samba_rl.runs.evaluation import Evaluation, evaluate, fresh_seed
from samba_rl.runs.folder import MODEL, read_state
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, Traces

EVALUATION_SEED = 1_000_000
"""Distance of the seed of a run's own evaluation from the run's seed, which learning uses."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A finished run of a learner on a system with a seed."""

    task: Task
    """The system."""
    learner: str
    """Name of the learner: of its row in `LEARNERS`, the name given to `train`, or its values."""
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
        place = "" if self.folder is None else f", in {self.folder}"
        return f"<Run of {self.learner} on {self.task.name}, seed {self.seed}: {samples} real samples{place}>"

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
            state = read_state(self.folder / MODEL)
            same = model.load_state_dict(state, without(self.data.transitions, state.get("aside")))
        except (KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise UserError(f"{self.folder / MODEL} does not fit the run's data ({error}); copy it again") from error
        if not same:
            # Checked against the manifest when the run was loaded, so this is not damage, unless there is none.
            warnings.warn(
                f"{self.folder / MODEL}: the model differs from the one at the end of the run, at least in its last "
                "digits: this is another machine or number of threads, or the file was altered; samba-rl verify tells",
                stacklevel=2,
            )
        return model

    def imagine(self, trajectories: int = 1000, seed: int = 0, *, deterministic: bool = False) -> Traces:
        """Imagine trajectories of the policy on the final GP model, from where the system starts.

        Each follows a function of its own, drawn from the model, if the model is exact.
        """
        whole = isinstance(self.model.posterior, ExactPosterior)
        steps = self.data.transitions
        source = ModelSource(
            self.model,
            draw="functions" if whole else "marginals",
            starts=None if self.task.pure_start else steps.x[steps.step == 0],
        )
        policy = self.still_policy if deterministic else self.policy
        return source(policy, trajectories, torch.Generator().manual_seed(seed))

    @property
    def still_policy(self) -> Policy:
        """Return the policy without noise; a planning policy has none after training."""
        return self.policy if isinstance(self.policy, PlanningPolicy) else self.policy.still()

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """Return the limits on the safety costs."""
        return self.settings.constraints(self.row, self.task.constraints)

    def evaluate(
        self,
        steps: int | None = None,
        seed: int | None = None,
        *,
        episodes: int | None = None,
        deterministic: bool = False,
        workers: int | None = None,
    ) -> Evaluation:
        """Evaluate the policy on the real system, from fresh start states that no learning has seen.

        Args:
            steps: Number of real steps; the last episode is completed. Default: 10,000.
            seed: Seed of the episodes; None: a fresh one, which the result records.
            episodes: Number of episodes, instead of `steps`.
            deterministic: Leave out the noise of the policy's actions.
            workers: Number of processes for simulated systems. Default: one per core.
        """
        return evaluate(
            self.task,
            self.still_policy if deterministic else self.policy,
            steps=steps,
            episodes=episodes,
            seed=fresh_seed() if seed is None else seed,
            alpha=self.settings.alpha,
            constraints=self.constraints,
            deterministic=deterministic or self._without_noise,
            workers=workers,
        )

    def evaluate_both(
        self, steps: int | None = None, workers: int | None = None, seed: int | None = None
    ) -> tuple[Evaluation, Evaluation]:
        """Evaluate the policy with and without its noise; evaluate a planner, which has none, only once.

        By default the seed follows from the run's, so that runs differ in their start states and can be repeated.
        """
        chosen = EVALUATION_SEED + self.seed if seed is None else seed
        with_noise = self.evaluate(steps, chosen, workers=workers)
        if self._without_noise:
            return with_noise, with_noise
        return with_noise, self.evaluate(steps, chosen, deterministic=True, workers=workers)

    def certify(
        self,
        episodes: int,
        confidence: float = 0.95,
        seed: int | None = None,
        *,
        limit: float | None = None,
        step_bound: float = 1.0,
        method: Method = "betting",
        deterministic: bool = False,
        workers: int | None = None,
        tell: Callable[[int], None] = lambda _: None,
    ) -> Certificate:
        """Bound the real value of each constraint from above, with a confidence, from fresh real episodes.

        Args:
            episodes: Number of real episodes.
            confidence: Probability with which all bounds hold together.
            seed: Seed of the episodes; None: a fresh one, which the result records.
            limit: Limit to certify instead of the run's own; a learner without one gets CVaR of each safety cost.
            step_bound: Largest safety cost that a step can have.
            method: "betting", or "dkw" for comparison.
            deterministic: Leave out the noise of the policy's actions.
            workers: Number of processes for simulated systems. Default: one per core.
            tell: Called with the number of episodes done.
        """
        if seed == self.seed:
            raise UserError(f"seed {seed} is that of the run, which has learned from these start states; give another")
        return certify(
            self.task,
            self.still_policy if deterministic else self.policy,
            self._certifiable(limit),
            episodes=episodes,
            confidence=confidence,
            seed=fresh_seed() if seed is None else seed,
            step_bound=step_bound,
            method=method,
            deterministic=deterministic or self._without_noise,
            workers=workers,
            tell=tell,
        )

    def _certifiable(self, limit: float | None) -> tuple[Constraint, ...]:
        """Return the run's constraints, with another limit if one is given."""
        if limit is None and not self.constraints:
            raise UserError(f"the run of {self.learner} has no limit, so there is nothing to certify; give a limit")
        if limit is None:
            return self.constraints
        if not 0 <= limit < math.inf:
            raise UserError(f"limit = {limit}; give a number of at least 0")
        own = self.constraints or bind(CVaR, ConstraintSettings(alpha=self.settings.alpha), self.task.constraints)
        return tuple(replace(one, limit=limit) for one in own)

    @property
    def _without_noise(self) -> bool:
        """Return whether the policy has no noise to leave out, like a planner."""
        return isinstance(self.policy, PlanningPolicy)
