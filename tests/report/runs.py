"""Runs to draw, with numbers that are easy to recognise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch

from samba_rl import SafePendulum, UniformPolicy, rollout
from samba_rl.agents.settings import ModelBasedSettings, ModelFreeSettings, Settings
from samba_rl.data import DataSet, Schema
from samba_rl.events import ImprovementReport, TrialReport
from samba_rl.improve.constraints import Chance, Constraint, CVaR, Expectation
from samba_rl.learners import LEARNERS, Learner
from samba_rl.runs import Run
from samba_rl.tasks.task import Task

CVAR = CVaR(name="hazard", limit=0.75)
CHANCE = Chance(name="price in $ or $$", limit=0.1)
MEAN = Expectation(name="hazard", limit=0.75)


@dataclass(frozen=True)
class _Made:
    """A stand-in for a run that has the parts which the figures read."""

    task: Task
    data: DataSet
    trials: tuple[TrialReport, ...]
    improvements: tuple[ImprovementReport, ...]
    constraints: tuple[Constraint, ...]
    row: Learner
    settings: Settings
    learner: str
    seed: int = 7
    policy: None = None


def data_of(task: Task, episodes: int = 4, seed: int = 0) -> DataSet:
    """Return the transitions of random episodes."""
    policy = UniformPolicy(tuple(a.low for a in task.actions), tuple(a.high for a in task.actions))
    traces = rollout(task.world(0), policy, episodes, generator=torch.Generator().manual_seed(seed))
    names = tuple(q.name for q in task.states), tuple(q.name for q in task.actions)
    return DataSet.empty(Schema(*names, task.constraints)).append(traces)


def made(
    task: Task | None = None,
    trials: int = 4,
    constraints: tuple[Constraint, ...] = (CVAR,),
    *,
    controls: int = 3,
    zeta: bool = True,
    data: DataSet | None = None,
) -> Run:
    """Make a run of a learner with a model, with control iterations after each trial."""
    system = SafePendulum() if task is None else task
    learner = "samba" if zeta else "sppilco"
    run = _Made(
        task=system,
        data=data_of(system) if data is None else data,
        trials=tuple(_trial(k) for k in range(trials)),
        improvements=tuple(
            _improvement(k, c, controls, len(constraints)) for k in range(trials) for c in range(1, controls + 1)
        ),
        constraints=constraints,
        row=LEARNERS[learner],
        settings=ModelBasedSettings(),
        learner=learner,
    )
    return cast("Run", run)


def made_without_model(
    trials: int = 4, constraints: tuple[Constraint, ...] = (MEAN,), *, margin: float = 0.0, learner: str = "strpo"
) -> Run:
    """Make a run of a learner without a model, with one update after each trial but the random first one."""
    plain = made(trials=trials, constraints=constraints, controls=1, zeta=False)
    targets = tuple((1 - margin) * constraint.limit for constraint in constraints)
    return replace(
        plain,
        trials=tuple(replace(trial, predicted_return=math.nan, predicted_safety=math.nan) for trial in plain.trials),
        improvements=tuple(replace(report, targets=targets) for report in plain.improvements[1:]),
        row=LEARNERS[learner],
        settings=ModelFreeSettings(),
        learner=learner,
    )


def _trial(k: int) -> TrialReport:
    return TrialReport(
        iteration=k,
        real_samples=30 * (k + 1),
        episodes=1,
        return_mean=-200.0 + 10 * k,
        safety_cost=0.5 * k,
        violations=k % 2,
        learning_TC=float(k),
        learning_TV=2 * k,
        predicted_return=math.nan if k == 0 else -190.0 + 9 * k,
        predicted_safety=math.nan if k == 0 else 0.4 * k,
        surprise=1.0,
        z_std=(1.0, 1.0),
        coverage95=(0.95, 0.95),
        seconds=float(k),
    )


def _improvement(k: int, control: int, controls: int, constraints: int) -> ImprovementReport:
    return ImprovementReport(
        iteration=k,
        control=control,
        controls=controls,
        model_return=-100.0,
        model_safety=1.0,
        model_zeta=1.0,
        values=tuple(2.0 / (k + i + control) for i in range(constraints)),
        targets=tuple(0.675 + 0.1 * i * k for i in range(constraints)),
        multipliers=tuple(0.5 + 0.1 * k + i for i in range(constraints)),
        lambda_pi=min(1.0, 0.5 + 0.1 * k),
        std=0.5,
        clipped=0.0,
        kl=0.01,
        critic_loss=(0.1,),
        seconds=1.0,
    )
