"""Grouping of results: the seeds of one learner on one system under one limit belong together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.names import place
from samba_rl.benchmark.reference import learner_order
from samba_rl.errors import UserError
from samba_rl.runs.evaluation import COMMON_ALPHA, Evaluation
from samba_rl.tasks import TASKS, make_task


class Setup(NamedTuple):
    """The settings that all results of one table share."""

    preset: str
    budget_scale: float
    """Share of the preset's real samples that was spent."""


class Key(NamedTuple):
    """The properties that all results of one group share, besides the setup."""

    task: str
    learner: str
    limit: float | None
    """ξ of a trajectory; None: the learner has no limit."""


Groups = dict[Key, list[CellResult]]


def limit_of(result: CellResult) -> float | None:
    """Return the limit ξ on a trajectory that the learner was given, or None if it has no limit."""
    try:
        task, cell = make_task(result.cell.task), result.cell
        constraints = cell.settings().constraints(cell.row(), task.constraints)
        if not constraints:
            return None
        limit = constraints[0].limit * (task.horizon if constraints[0].per_step else 1)
    except UserError:  # the system or the learner is not known here, so use the limit that its evaluation recorded
        if result.with_noise.limit is None:
            return None
        limit = result.with_noise.limit
    # Rounded, so that 30 steps of 0.025 and 0.75 are the same limit.
    return float(f"{limit:.6g}")


def group_results(results: Iterable[CellResult]) -> dict[Setup, Groups]:
    """Return results by setup, then by system, learner and limit, with each seed once.

    A learner without a limit ignores a limit that it is given, so two results with the same seed are the same run.
    """
    seeds: dict[Setup, dict[Key, dict[int, CellResult]]] = {}
    for result in sorted(
        results, key=lambda r: (r.cell.preset, r.cell.budget_scale, r.cell.limit is not None, r.cell.name)
    ):
        cell = result.cell
        key = Key(cell.task, cell.shown, limit_of(result))
        group = seeds.setdefault(Setup(cell.preset, float(cell.budget_scale)), {}).setdefault(key, {})
        group.setdefault(cell.seed, result)
    return {
        setup: {key: [found[seed] for seed in sorted(found)] for key, found in groups.items()}
        for setup, groups in seeds.items()
    }


def systems_in(groups: Groups) -> list[str]:
    """Return the systems that have results: the paper's first, then others by name."""
    return sorted({key.task for key in groups}, key=lambda task: place(task, TASKS))


def learners_in(groups: Groups, task: str, table: int) -> list[str]:
    """Return the learners listed for a system, in the order of the paper's Table 1 or 2.

    A system of the paper lists all of the paper's learners, with or without results; others follow by name.
    """
    there, order = {key.learner for key in groups if key.task == task}, learner_order(table)
    known = [learner for learner in order if learner in there or task in TASKS]
    return [*known, *sorted(there - set(order))]


def limits_in(groups: Groups, task: str, learner: str) -> list[float | None]:
    """Return the limits for which a learner has results on a system; [None] if there are no results."""
    found = {key.limit for key in groups if key[:2] == (task, learner)}
    return sorted(found, key=lambda limit: -math.inf if limit is None else limit) or [None]


def results_under(groups: Groups, task: str, learner: str, limit: float | None) -> list[CellResult]:
    """Return the results that count for a limit; those of a learner without a limit count for each."""
    return groups.get(Key(task, learner, limit)) or groups.get(Key(task, learner, None)) or []


def common_alpha(groups: Groups) -> float | None:
    """Return a level α at which all results have CVaR: their own if they share it, else 0.9; None if there is none."""
    evaluations = [result.with_noise for results in groups.values() for result in results]
    own = {evaluation.alpha for evaluation in evaluations}
    if len(own) == 1:
        return own.pop()
    known = all(evaluation.alpha == COMMON_ALPHA or evaluation.cvar90 is not None for evaluation in evaluations)
    return COMMON_ALPHA if known else None


def cvar_at(alpha: float | None, evaluation: Evaluation) -> tuple[float, float]:
    """Return CVaR at level α, which `common_alpha` chose, and its standard error; None: at the evaluation's own level.

    An unknown standard error is 0.
    """
    errors = evaluation.errors
    if alpha in (None, evaluation.alpha) or evaluation.cvar90 is None:
        return evaluation.cvar, errors.cvar if errors else 0.0
    return evaluation.cvar90, errors.cvar90 if errors else 0.0
