"""Benchmark results to draw, with numbers that are easy to recognise."""

from __future__ import annotations

import math

from samba_rl.benchmark.cells import Cell, CellResult, Point, Tail
from samba_rl.improve.results import ConstraintResult
from samba_rl.runs.evaluation import Evaluation
from samba_rl.tasks import TASKS

PENDULUM, DOUBLE, FETCH = TASKS


def evaluation(cost: float, value: float, limit: float | None = 0.75, *, per_step: bool = False) -> Evaluation:
    """Make an evaluation of 10 episodes of 30 steps with this safety cost and return."""
    words, bound = "CVaR 0.9 of the hazard", 0.0 if limit is None else limit / 30 if per_step else limit
    constraints = () if limit is None else (ConstraintResult("CVaR 0.9", words, 1.0, bound),)
    return Evaluation(
        TV=1, TC=10 * cost, steps=300, episodes=10, return_mean=value, return_std=0.0, safety_quartiles=(0.0, 0.0, 0.0),
        cvar=1.0, alpha=0.9, limit=limit, constraints=constraints, seed=0, deterministic=False,
    )  # fmt: skip


def result(learner: str, seed: int, task: str = PENDULUM, *, cost: float = 1.0, value: float = -100.0) -> CellResult:
    """Make a cell with two trials; its return grows with the seed."""
    curve = tuple(Point(s, -200.0 + s + seed, 1.0, s / 10, s // 30, math.nan, math.nan) for s in (30, 60))
    ends = tuple(Tail(i, 2.0 - i + seed, 0.6, 1.0) for i in range(2)) if learner in ("samba", "sppo") else ()
    found = evaluation(cost, value, None if learner == "ppo" else 0.75)
    return CellResult(Cell(task, learner, seed), 60, 6.0, 2, 1.0, "cpu", found, found, curve, ends)
