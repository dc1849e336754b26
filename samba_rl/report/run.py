"""The pictures of a run: how it learned, where it went, how safe it was, and what a model had promised of it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from samba_rl.errors import UserError
from samba_rl.improve.constraints import Chance, Constraint, Expectation
from samba_rl.report.state_space import state_space
from samba_rl.report.style import (
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from samba_rl.data import DataSet
    from samba_rl.events import ImprovementReport, TrialReport
    from samba_rl.learners import Settings
    from samba_rl.tasks.task import Task

MARKED = 40
"""More trials than this are drawn without markers, which would run into each other."""
LOG_FROM = 20.0
"""λ is drawn on a logarithmic axis where its largest value is this many times its smallest."""
COMMAS_FROM = 10_000
"""Axes that reach so far have commas in their numbers, and no powers of ten beside them."""


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
        """What came of the control iterations after them."""
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
    """The return of each trial and what a model predicted of it; below, what learning cost in safety so far."""
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
    _commas(below.xaxis, samples)
    _commas(below.yaxis, [*cost, *steps])
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


def _commas(axis: Axis, values: Sequence[float]) -> None:
    """Write large numbers as 1,000,000."""
    if max(values) >= COMMAS_FROM:
        from matplotlib.ticker import StrMethodFormatter

        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


# How safe it was ------------------------------------------------------------------------------------------------------


def safety(run: RunRecord) -> Figure:
    """Safety cost of the trials, real and predicted, and what was done about it after each.

    Trial k stands at k, the control iterations on a model after it between k and k + 1. Where the policy is improved on
    the trials themselves, what came of an update stands at its trial.
    """
    limits = list(enumerate(run.constraints)) if run.improvements else []
    # What is limited may be what the trials' panel shows already.
    apart = [(i, constraint) for i, constraint in limits if not _is_trial_mean(run, constraint)]
    weighed = bool(run.improvements) and run.settings.zeta != "none"
    heights = [1.7, *(1.5 for _ in apart), *([1.2] if limits else []), *([1.0] if weighed else [])]
    figure, panels = new_panels(heights, heading(run))
    rest = iter(panels)
    _safety_of_trials(next(rest), run, [each for each in limits if each not in apart])
    for i, constraint in apart:
        _value(next(rest), run, i, constraint)
    if limits:
        _multipliers(next(rest), run)
    if weighed:
        axes = next(rest)
        axes.plot(_places(run), [r.lambda_pi for r in run.improvements], color=INK)
        axes.set_ylabel("$λ_π$, weight\nof the cost", fontsize=FONT_SIZE)
        axes.set_ylim(0, 1.08)
        axes.set_yticks([0, 0.5, 1])
    then = (
        "after each: an update of the policy" if _on_real(run) else "between two: the control iterations on the model"
    )
    panels[-1].set_xlabel(f"real trial ({then})" if len(panels) > 1 else "real trial", fontsize=FONT_SIZE)
    x = [*(trial.iteration for trial in run.trials), *_places(run)]
    panels[-1].set_xlim(min(x) - 0.5, max(x) + 0.5)  # wide enough for whole numbers, also with one trial
    whole_numbers(panels[-1])
    return figure


def _on_real(run: RunRecord) -> bool:
    """Whether the policy is improved on the real trials themselves, and there is no model."""
    return run.settings.traces == "real"


def _is_trial_mean(run: RunRecord, constraint: Constraint) -> bool:
    """Whether a constraint is on the mean safety cost of the real trials' episodes."""
    alone = len(run.task.constraints) == 1
    return _on_real(run) and alone and isinstance(constraint, Expectation) and not constraint.per_step


def _places(run: RunRecord) -> list[float]:
    """Where on the axis of trials each control iteration stands."""
    if _on_real(run):
        return [float(report.iteration) for report in run.improvements]
    return [report.iteration + report.control / report.controls for report in run.improvements]


def _dot(run: RunRecord) -> str:
    """The marker of an update: on a model there are too many to mark, on real trials there may be a single one."""
    return "o" if _on_real(run) and len(run.improvements) <= MARKED else ""


def _safety_of_trials(axes: Axes, run: RunRecord, limits: Sequence[tuple[int, Constraint]]) -> None:
    """Draw what the trials' episodes cost, and the limits on just that."""
    trials = run.trials
    real, predicted = [t.safety_cost for t in trials], [t.predicted_safety for t in trials]
    _real_and_predicted(axes, [t.iteration for t in trials], real, predicted)
    bounds = [bound for i, constraint in limits for bound in _limit(axes, run, i, constraint)]
    name_axes(axes, y="safety cost of an\nepisode (mean) [cost]")
    _from_zero(axes, [*real, *predicted, *bounds])
    legend_above(axes)


def _value(axes: Axes, run: RunRecord, i: int, constraint: Constraint) -> None:
    """Draw what constraint i came to, on the model or in the trials, its limit and what it was held under."""
    values = [report.values[i] for report in run.improvements]
    words = textwrap.fill(constraint.in_words(), 48)
    axes.plot(_places(run), values, marker=_dot(run), markersize=5, color=CYCLE[i % len(CYCLE)][0], label=plain(words))
    bounds = _limit(axes, run, i, constraint)
    unit = ("share" if isinstance(constraint, Chance) else "cost") + (" per step" if constraint.per_step else "")
    name_axes(axes, y=f"{'in the trial' if _on_real(run) else 'on the model'}\n[{unit}]")
    _from_zero(axes, [*values, *bounds])
    legend_above(axes)


def _limit(axes: Axes, run: RunRecord, i: int, constraint: Constraint) -> list[float]:
    """Draw the limit of constraint i and, where that is another, what it was held under; these values."""
    targets = [report.targets[i] for report in run.improvements]
    axes.axhline(constraint.limit, color=INK, linestyle="--", label=f"limit {constraint.limit:.3g}")
    if set(targets) != {constraint.limit}:
        label = f"target {targets[-1]:.3g}" if len(set(targets)) == 1 else "target"
        axes.plot(_places(run), targets, color=INK, linestyle=":", drawstyle="steps-pre", label=label)
    return [constraint.limit, *targets]


def _multipliers(axes: Axes, run: RunRecord) -> None:
    """Draw λ of each constraint."""
    name_axes(axes, y="λ, weight of\nthe constraint")
    if run.settings.rule == "projection":
        _found_multipliers(
            axes, _places(run), [r.multipliers[0] for r in run.improvements], run.settings.multiplier.cap
        )
        return
    for i, constraint in enumerate(run.constraints):
        colour, dashes = CYCLE[i % len(CYCLE)]
        values = [report.multipliers[i] for report in run.improvements]
        (line,) = axes.plot(_places(run), values, color=colour, linestyle=dashes, label=plain(constraint.in_words()))
        line.set(marker=_dot(run), markersize=4)
    everything = [value for report in run.improvements for value in report.multipliers]
    if min(everything) > 0 and max(everything) > LOG_FROM * min(everything):
        axes.set_yscale("log")
    else:
        _from_zero(axes, everything)
    if len(run.constraints) > 1:
        legend_above(axes, columns=1)


def _found_multipliers(axes: Axes, x: Sequence[float], values: Sequence[float], cap: float) -> None:
    """Draw λ where every update finds its own: no line leads from one to the next.

    Where no step within reach kept to the limit, the update went for the constraint alone, as if λ were infinite; it is
    then at its cap. Those marks stand along the panel's upper edge, lest the others all lie at zero.
    """
    below = [(place, value) for place, value in zip(x, values, strict=True) if value < cap]
    alone = [place for place, value in zip(x, values, strict=True) if value >= cap]
    few = len(x) <= MARKED
    if below:
        axes.plot(*zip(*below, strict=True), "o", color=BLUE, markersize=5 if few else 3, label="found by the update")
        _from_zero(axes, [value for _, value in below])
    else:
        axes.set_yticks([])
    if alone:
        axes.set_ylim(top=1.25 * axes.get_ylim()[1])
        (marks,) = axes.plot(alone, [0.91] * len(alone), "^", color=VERMILION, transform=axes.get_xaxis_transform())
        marks.set(markersize=6 if few else 4, label=f"at its cap ({cap:g}): the constraint alone")
    legend_above(axes)
