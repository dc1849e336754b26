"""The pictures of a run: how it learned, where it went, how safe it was against what the model had promised."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from samba_rl.constraints import Chance, Constraint
from samba_rl.figures.state_space import state_space
from samba_rl.figures.style import (
    BLUE,
    CYCLE,
    FONT_SIZE,
    GREEN,
    INK,
    PURPLE,
    VERMILION,
    legend_above,
    name_axes,
    new_panels,
    plain,
    whole_numbers,
)
from samba_rl.types import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from samba_rl.data import DataSet
    from samba_rl.learners import Settings
    from samba_rl.reports import ImprovementReport, TrialReport
    from samba_rl.tasks.task import Task

MARKED = 60
"""More trials than this are drawn without markers, which would run into each other."""
LOG_FROM = 20.0
"""λ is drawn on a logarithmic axis where its largest value is this many times its smallest."""


class RunRecord(Protocol):
    """What the pictures need to know of a run."""

    @property
    def task(self) -> Task:
        """The system."""
        ...

    @property
    def settings(self) -> Settings:
        """What the run was asked to do."""
        ...

    @property
    def learner(self) -> str:
        """The name of the learner."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the run."""
        ...

    @property
    def trials(self) -> Sequence[TrialReport]:
        """What came of the real trials."""
        ...

    @property
    def improvements(self) -> Sequence[ImprovementReport]:
        """What came of the control iterations on the model."""
        ...

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The limits that were set."""
        ...

    @property
    def data(self) -> DataSet:
        """The real transitions."""
        ...


def run_pictures(run: RunRecord, folder: Path, *, pdf: bool = False) -> list[Path]:
    """Write learning-curve.png, state-space.png and safety.png into the folder (and the same as PDF), and name them."""
    if not run.trials or not len(run.data):
        raise UserError("the run has no real trial yet, so there is nothing to draw; come back after the first")
    figures = {
        "learning-curve": learning_curve(run),
        "state-space": state_space(run.task, run.data.transitions, heading(run)),
        "safety": safety(run),
    }
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            for suffix in (".png", ".pdf") if pdf else (".png",):
                written.append(folder / f"{name}{suffix}")
                # Without a date the same run gives the same file.
                figure.savefig(written[-1], metadata={"CreationDate": None} if suffix == ".pdf" else None)
    except OSError as error:
        raise UserError(f"cannot write the pictures to {folder}: {error.strerror}") from error
    return written


def heading(run: RunRecord) -> str:
    """The title of each picture."""
    return f"{run.task.title}: {run.learner}, seed {run.seed}"


# How it learned -------------------------------------------------------------------------------------------------------


def learning_curve(run: RunRecord) -> Figure:
    """The return of each trial and the model's prediction of it; below, what learning cost in safety so far."""
    figure, (above, below) = new_panels((2.4, 1.7), heading(run))
    samples = [trial.real_samples for trial in run.trials]
    _real_and_predicted(above, samples, [t.return_mean for t in run.trials], [t.predicted_return for t in run.trials])
    name_axes(above, y="return of an episode\n[negative cost]")
    # Before the first trial nothing had been incurred.
    so_far = [0, *samples]
    cost, steps = [0.0, *(t.learning_TC for t in run.trials)], [0, *(t.learning_TV for t in run.trials)]
    square, cross = ("s", "X") if len(samples) <= MARKED else ("", "")
    below.plot(so_far, cost, marker=square, color=GREEN, markersize=4, label="safety cost (learning TC)")
    below.plot(so_far, steps, ":", marker=cross, color=PURPLE, markersize=5, label="unsafe steps (learning TV)")
    name_axes(below, x="real samples so far [steps]", y="sum over the trials\nso far [cost, steps]")
    _from_zero(below, [*cost, *steps])
    below.set_xlim(0, samples[-1] * 1.03)
    for axes in (above, below):
        legend_above(axes)
    return figure


def _real_and_predicted(axes: Axes, x: Sequence[float], real: Sequence[float], predicted: Sequence[float]) -> None:
    """Draw what trials came to and what the model had expected of them, as far as it had."""
    dot, diamond = ("o", "D") if len(x) <= MARKED else ("", "")
    axes.plot(x, real, marker=dot, color=BLUE, markersize=5, label="real trial")
    if any(math.isfinite(value) for value in predicted):
        (line,) = axes.plot(x, predicted, "--", color=VERMILION, label="the model's prediction")
        line.set(marker=diamond, markersize=5, markerfacecolor="white")


def _from_zero(axes: Axes, values: Sequence[float]) -> None:
    """Let the y axis begin at zero, with room for markers that lie there; values that are all zero need an end too."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0) or 1.0
    axes.set_ylim(-0.05 * largest, 1.08 * largest)


# How safe it was ------------------------------------------------------------------------------------------------------


def safety(run: RunRecord) -> Figure:
    """Predicted and real safety cost of the trials, and what was done about it on the model between them.

    Trial k stands at k, the control iterations after it between k and k + 1.
    """
    improved = bool(run.improvements)
    constraints = run.constraints if improved else ()
    weighed = improved and run.settings.zeta != "none"
    heights = [1.7, *(1.5 for _ in constraints), *([1.2] if constraints else []), *([1.0] if weighed else [])]
    figure, panels = new_panels(heights, heading(run))
    rest = iter(panels)
    _safety_of_trials(next(rest), run.trials)
    for i, constraint in enumerate(constraints):
        _value(next(rest), run.improvements, i, constraint)
    if constraints:
        _multipliers(next(rest), run.improvements, constraints)
    if weighed:
        axes = next(rest)
        axes.plot(_places(run.improvements), [r.lambda_pi for r in run.improvements], color=INK)
        axes.set_ylabel("$λ_π$, weight\nof the cost", fontsize=FONT_SIZE)
        axes.set_ylim(0, 1.08)
        axes.set_yticks([0, 0.5, 1])
    between = " (between two: the control iterations on the model)" if len(panels) > 1 else ""
    panels[-1].set_xlabel(f"real trial{between}", fontsize=FONT_SIZE)
    x = [*(trial.iteration for trial in run.trials), *_places(run.improvements)]
    panels[-1].set_xlim(min(x) - 0.5, max(x) + 0.5)  # wide enough for whole numbers, also with one trial
    whole_numbers(panels[-1])
    return figure


def _places(improvements: Sequence[ImprovementReport]) -> list[float]:
    return [report.iteration + report.control / report.controls for report in improvements]


def _safety_of_trials(axes: Axes, trials: Sequence[TrialReport]) -> None:
    real, predicted = [t.safety_cost for t in trials], [t.predicted_safety for t in trials]
    _real_and_predicted(axes, [t.iteration for t in trials], real, predicted)
    name_axes(axes, y="safety cost of an\nepisode (mean) [cost]")
    _from_zero(axes, [*real, *predicted])
    legend_above(axes)


def _value(axes: Axes, improvements: Sequence[ImprovementReport], i: int, constraint: Constraint) -> None:
    """Draw what constraint i came to on the model, its limit and what it was held under."""
    x, values = _places(improvements), [report.values[i] for report in improvements]
    targets = [report.targets[i] for report in improvements]
    words = textwrap.fill(constraint.in_words(), 48)
    target = f"target {targets[-1]:.3g}" if len(set(targets)) == 1 else "target"
    axes.plot(x, values, color=CYCLE[i % len(CYCLE)][0], label=plain(words))
    axes.axhline(constraint.limit, color=INK, linestyle="--", label=f"limit {constraint.limit:.3g}")
    axes.plot(x, targets, color=INK, linestyle=":", drawstyle="steps-pre", label=target)
    unit = ("share" if isinstance(constraint, Chance) else "cost") + (" per step" if constraint.per_step else "")
    name_axes(axes, y=f"on the model\n[{unit}]")
    _from_zero(axes, [*values, *targets, constraint.limit])
    legend_above(axes)


def _multipliers(axes: Axes, improvements: Sequence[ImprovementReport], constraints: tuple[Constraint, ...]) -> None:
    x = _places(improvements)
    for i, constraint in enumerate(constraints):
        colour, dashes = CYCLE[i % len(CYCLE)]
        values = [report.multipliers[i] for report in improvements]
        axes.plot(x, values, color=colour, linestyle=dashes, label=plain(constraint.in_words()))
    everything = [value for report in improvements for value in report.multipliers]
    if min(everything) > 0 and max(everything) > LOG_FROM * min(everything):
        axes.set_yscale("log")
    else:
        _from_zero(axes, everything)
    name_axes(axes, y="λ, weight of\nthe constraint")
    if len(constraints) > 1:
        legend_above(axes, columns=1)
