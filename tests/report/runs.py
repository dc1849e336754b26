"""Runs to draw, with figures that are easy to recognise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from samba_rl import SafePendulum, UniformPolicy, rollout
from samba_rl.data import DataSet, Schema
from samba_rl.events import ImprovementReport, TrialReport
from samba_rl.improve.constraints import Chance, Constraint, CVaR, Expectation
from samba_rl.improve.step import Rule
from samba_rl.learners import Settings
from samba_rl.tasks.task import Task

CVAR = CVaR(name="hazard", limit=0.75)
CHANCE = Chance(name="price in $ or $$", limit=0.1)
MEAN = Expectation(name="hazard", limit=0.75)


@dataclass(frozen=True)
class Made:
    """A run that was made up."""

    task: Task
    data: DataSet
    trials: list[TrialReport]
    improvements: list[ImprovementReport]
    constraints: tuple[Constraint, ...]
    settings: Settings
    learner: str = "samba"
    seed: int = 7


def data_of(task: Task, episodes: int = 4, seed: int = 0) -> DataSet:
    """Random episodes."""
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
) -> Made:
    """Trials and control iterations between them and after the last."""
    system = SafePendulum() if task is None else task
    return Made(
        task=system,
        data=data_of(system) if data is None else data,
        trials=[_trial(k) for k in range(trials)],
        improvements=[
            _improvement(k, c, controls, len(constraints)) for k in range(trials) for c in range(1, controls + 1)
        ]
        if controls
        else [],
        constraints=constraints,
        settings=Settings(zeta="loo" if zeta else "none"),
    )


def made_without_model(
    trials: int = 4, constraints: tuple[Constraint, ...] = (MEAN,), *, margin: float = 0.0, rule: Rule = "trust-region"
) -> Made:
    """Trials of which each but the first, the random one, is learned from once."""
    plain = made(trials=trials, constraints=constraints, controls=1, zeta=False)
    targets = tuple((1 - margin) * constraint.limit for constraint in constraints)
    return replace(
        plain,
        trials=[replace(trial, predicted_return=math.nan, predicted_safety=math.nan) for trial in plain.trials],
        improvements=[replace(report, targets=targets) for report in plain.improvements[1:]],
        settings=replace(plain.settings, traces="real", rule=rule),
        learner="strpo",
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
