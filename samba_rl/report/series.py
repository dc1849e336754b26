"""The numbers behind the figures of a benchmark, for Matplotlib and Plotly alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from samba_rl.benchmark.cells import CellResult, Point
from samba_rl.learners import LEARNERS
from samba_rl.report.groups import Group, Look
from samba_rl.report.style import BLUE, INK, VERMILION

Floats = NDArray[np.float64]
_T = TypeVar("_T")


def unique(values: Iterable[_T]) -> list[_T]:
    """Return each value once, in the order of first occurrence."""
    return list(dict.fromkeys(values))


@dataclass(frozen=True)
class Band:
    """Mean and range over the seeds as functions of x; each [K]."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def band(seeds: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Band:
    """Return the mean and the range of piecewise linear functions (x, y) with different x.

    They are evaluated wherever any function has a point, from the last start to the first end.
    """
    begin, end = max(x[0] for x, _ in seeds), min(x[-1] for x, _ in seeds)
    x = np.array(sorted({value for line, _ in seeds for value in line if begin <= value <= end}), dtype=np.float64)
    if not len(x):  # the functions do not overlap, so average their ends
        x = np.array([end], dtype=np.float64)
    y = np.stack([np.interp(x, line, values) for line, values in seeds])
    return Band(x, y.mean(0), y.min(0), y.max(0))


# Learning curves ------------------------------------------------------------------------------------------------------

CURVES: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("return of an episode\n[negative cost]", lambda point: point.return_mean),
    ("safety cost so far\n(learning TC) [cost]", lambda point: point.learning_TC),
    ("unsafe steps so far\n(learning TV) [steps]", lambda point: float(point.learning_TV)),
)
"""Axis label and value of each learning curve."""


def has_curve(group: Group) -> bool:
    """Return whether all seeds of a group have a learning curve."""
    return all(result.curve for result in group.results)


def curve_band(group: Group, value: Callable[[Point], float]) -> Band:
    """Return a learning curve of a group against real samples."""
    return band([([p.real_samples for p in r.curve], [value(p) for p in r.curve]) for r in group.results])


# Trade-off ------------------------------------------------------------------------------------------------------------


def safety_and_return(result: CellResult) -> tuple[float, float]:
    """Return the mean safety cost and the mean return of an episode of the learned policy."""
    evaluation = result.with_noise
    return evaluation.TC / evaluation.episodes, evaluation.return_mean


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto front of points (safety cost, return), starting with the safest."""
    kept: list[tuple[float, float]] = []
    for cost, value in sorted(points, key=lambda p: (p[0], -p[1])):
        if not kept or value > kept[-1][1]:
            kept.append((cost, value))
    return kept


# Constraint after each trial ------------------------------------------------------------------------------------------

TailValue = Literal["predicted", "realised", "target"]
TAIL: dict[TailValue, tuple[str, Look]] = {
    "predicted": ("predicted by the model", Look(BLUE, "-", "o")),
    "realised": ("measured on the real system", Look(VERMILION, "--", "D")),
    "target": ("target", Look(INK, ":", "")),
}
"""Label and look of each value of the constraint."""


def has_tail(group: Group) -> bool:
    """Return whether a model predicted the constraint of a group, and its real value was measured."""
    has_model = group.learner not in LEARNERS or LEARNERS[group.learner].source.imagines
    return has_model and all(result.tail for result in group.results)


def tail_band(group: Group, name: TailValue) -> Band:
    """Return a value of the first constraint of a group against trials, as the value of an episode."""
    return band(
        [
            ([t.iteration for t in r.tail], [_steps_per_value(r) * getattr(t, name) for t in r.tail])
            for r in group.results
        ]
    )


def constraint_kind(group: Group) -> str:
    """Return the kind of a group's first constraint, such as "CVaR 0.9"."""
    constraints = group.results[0].with_noise.constraints
    return constraints[0].kind if constraints else "constraint"


def _steps_per_value(result: CellResult) -> float:
    """Return the factor that turns the value of the first constraint, which may be per step, into an episode's."""
    evaluation = result.with_noise
    if evaluation.limit is None or not evaluation.constraints or not evaluation.constraints[0].limit:
        return 1.0
    return evaluation.limit / evaluation.constraints[0].limit
