"""Figure of a run's learning curve: return and safety cost against real samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_rl.benchmark.names import learner_name
from samba_rl.report.style import (
    BLUE,
    GREEN,
    MARKED,
    PURPLE,
    VERMILION,
    from_zero,
    legend_above,
    name_axes,
    new_panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from samba_rl.runs import Run

COMMAS_FROM = 10_000
"""Axes that reach this number have commas in their numbers instead of a power of ten beside the axis."""


def heading(run: Run) -> str:
    """Return the title of each figure of a run."""
    return f"{run.task.title}: {learner_name(run.learner)}, seed {run.seed}"


def learning_curve(run: Run) -> Figure:
    """Draw the return of each trial beside the model's prediction, and the safety cost of learning so far below it."""
    figure, (above, below) = new_panels((2.4, 1.7), heading(run))
    samples = [trial.real_samples for trial in run.trials]
    real_and_predicted(above, samples, [t.return_mean for t in run.trials], [t.predicted_return for t in run.trials])
    name_axes(above, y="return of an episode\n[negative cost]")
    # The sums start at zero, before the first trial.
    so_far = [0, *samples]
    cost, steps = [0.0, *(t.learning_TC for t in run.trials)], [0, *(t.learning_TV for t in run.trials)]
    square, cross = ("s", "X") if len(samples) <= MARKED else ("", "")
    below.plot(so_far, cost, marker=square, color=GREEN, markersize=4, label="safety cost (learning TC)")
    below.plot(so_far, steps, ":", marker=cross, color=PURPLE, markersize=5, label="unsafe steps (learning TV)")
    name_axes(below, x="real samples so far [steps]", y="sum over the trials\nso far [cost, steps]")
    from_zero(below, [*cost, *steps])
    below.set_xlim(0, samples[-1] * 1.03)
    _commas(below.xaxis, samples)
    _commas(below.yaxis, [*cost, *steps])
    for axes in (above, below):
        legend_above(axes)
    return figure


def real_and_predicted(axes: Axes, x: Sequence[float], real: Sequence[float], predicted: Sequence[float]) -> None:
    """Draw values of the trials and the model's predictions of them, if there are any."""
    dot, diamond = ("o", "D") if len(x) <= MARKED else ("", "")
    axes.plot(x, real, marker=dot, color=BLUE, markersize=5, label="real trial")
    if any(math.isfinite(value) for value in predicted):
        (line,) = axes.plot(x, predicted, "--", color=VERMILION, label="the model's prediction")
        line.set(marker=diamond, markersize=5, markerfacecolor="white")


def _commas(axis: Axis, values: Sequence[float]) -> None:
    """Write large numbers as 1,000,000."""
    if max(values) >= COMMAS_FROM:
        from matplotlib.ticker import StrMethodFormatter

        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
