"""Figure of a run's safety: the safety cost of its trials, its constraints, and their multipliers."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_rl.agents.settings import PolicyGradientSettings
from samba_rl.improve.constraints import Chance, Constraint, Expectation
from samba_rl.report.learning import heading, real_and_predicted
from samba_rl.report.style import (
    BLUE,
    CYCLE,
    FONT_SIZE,
    INK,
    MARKED,
    VERMILION,
    from_zero,
    from_zero_with_peaks,
    legend_above,
    name_axes,
    new_panels,
    plain,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from samba_rl.runs import Run

LOG_FROM = 20.0
"""λ is drawn on a logarithmic axis if its largest value is this many times its smallest."""


def safety(run: Run) -> Figure:
    """Draw the safety cost of the trials, real and predicted, and below it the constraints, their λ and λ_π.

    Trial k is at k and the control iterations on the model after it are between k and k + 1. If the policy is improved
    on the trials themselves, an update is at its trial.
    """
    limits = list(enumerate(run.constraints)) if run.improvements else []
    # A limit on the mean of the trials is drawn in their panel.
    apart = [(i, constraint) for i, constraint in limits if not _is_trial_mean(run, constraint)]
    weighed = bool(run.improvements) and run.row.zeta is not None
    heights = [1.7, *(1.5 for _ in apart), *([1.2] if limits else []), *([1.0] if weighed else [])]
    figure, panels = new_panels(heights, heading(run))
    rest = iter(panels)
    _draw_trials(next(rest), run, [each for each in limits if each not in apart])
    for i, constraint in apart:
        _draw_constraint(next(rest), run, i, constraint)
    if limits:
        _draw_multipliers(next(rest), run)
    if weighed:
        axes = next(rest)
        axes.plot(_places(run), [r.lambda_pi for r in run.improvements], color=INK)
        axes.set_ylabel("$λ_π$, weight\nof the cost", fontsize=FONT_SIZE)
        axes.set_ylim(0, 1.08)
        axes.set_yticks([0, 0.5, 1])
    then = "after each, an update of the policy" if _on_real(run) else "in between, control iterations on the model"
    panels[-1].set_xlabel(f"real trial ({then})" if len(panels) > 1 else "real trial", fontsize=FONT_SIZE)
    x = [*(trial.iteration for trial in run.trials), *_places(run)]
    panels[-1].set_xlim(min(x) - 0.5, max(x) + 0.5)  # wide enough for whole numbers, even with a single trial
    whole_numbers(panels[-1])
    return figure


def _on_real(run: Run) -> bool:
    """Return whether the policy is improved on the real trials themselves, without a model."""
    return not run.row.source.predicts


def _is_trial_mean(run: Run, constraint: Constraint) -> bool:
    """Return whether a constraint is on the mean safety cost of the real trials' episodes."""
    alone = len(run.task.constraints) == 1
    return _on_real(run) and alone and isinstance(constraint, Expectation) and not constraint.per_step


def _places(run: Run) -> list[float]:
    """Return the position of each control iteration on the axis of trials."""
    if _on_real(run):
        return [float(report.iteration) for report in run.improvements]
    # Evenly in their order: `controls` grows when the gate asks for more iterations, so control / controls can go back.
    total, so_far, places = Counter(report.iteration for report in run.improvements), Counter[int](), []
    for report in run.improvements:
        so_far[report.iteration] += 1
        places.append(report.iteration + so_far[report.iteration] / total[report.iteration])
    return places


def _dot(run: Run) -> str:
    """Return the marker of an update: none on a model, where there are many; on real trials there may be only one."""
    return "o" if _on_real(run) and len(run.improvements) <= MARKED else ""


def _draw_trials(axes: Axes, run: Run, limits: Sequence[tuple[int, Constraint]]) -> None:
    """Draw the safety cost of the trials' episodes, and the limits on its mean."""
    trials = run.trials
    real, predicted = [t.safety_cost for t in trials], [t.predicted_safety for t in trials]
    real_and_predicted(axes, [t.iteration for t in trials], real, predicted)
    bounds = [bound for i, constraint in limits for bound in _draw_limit(axes, run, i, constraint)]
    name_axes(axes, y="safety cost of an\nepisode (mean) [cost]")
    from_zero_with_peaks(axes, [*real, *predicted], bounds)
    legend_above(axes)


def _draw_constraint(axes: Axes, run: Run, i: int, constraint: Constraint) -> None:
    """Draw the value of constraint i, on the model or in the trials, with its limit and its target."""
    values = [report.values[i] for report in run.improvements]
    words = textwrap.fill(constraint.in_words(), 48)
    axes.plot(_places(run), values, marker=_dot(run), markersize=5, color=CYCLE[i % len(CYCLE)][0], label=plain(words))
    bounds = _draw_limit(axes, run, i, constraint)
    unit = ("share" if isinstance(constraint, Chance) else "cost") + (" per step" if constraint.per_step else "")
    name_axes(axes, y=f"{'in the trial' if _on_real(run) else 'on the model'}\n[{unit}]")
    from_zero_with_peaks(axes, [*values, *bounds], [constraint.limit, bounds[-1]])
    legend_above(axes)


def _draw_limit(axes: Axes, run: Run, i: int, constraint: Constraint) -> list[float]:
    """Draw the limit of constraint i, and its target if that differs; return these values."""
    targets = [report.targets[i] for report in run.improvements]
    axes.axhline(constraint.limit, color=INK, linestyle="--", label=f"limit {constraint.limit:.3g}")
    if set(targets) != {constraint.limit}:
        label = f"target {targets[-1]:.3g}" if len(set(targets)) == 1 else "target"
        axes.plot(_places(run), targets, color=INK, linestyle=":", drawstyle="steps-pre", label=label)
    return [constraint.limit, *targets]


def _draw_multipliers(axes: Axes, run: Run) -> None:
    """Draw λ of each constraint."""
    name_axes(axes, y="λ, weight of\nthe constraint")
    if run.row.update.own_dual:
        assert isinstance(run.settings, PolicyGradientSettings)
        _draw_found_multipliers(
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
        from_zero(axes, everything)
    if len(run.constraints) > 1:
        legend_above(axes, columns=1)


def _draw_found_multipliers(axes: Axes, x: Sequence[float], values: Sequence[float], cap: float) -> None:
    """Draw the λ of updates that each find their own, as points without a line between them.

    λ is at its cap if no step in the trust region satisfied the limit, so that the update reduced the constraint alone.
    These points are drawn along the upper edge, because on the axis they would press the others down to zero.
    """
    below = [(place, value) for place, value in zip(x, values, strict=True) if value < cap]
    alone = [place for place, value in zip(x, values, strict=True) if value >= cap]
    few = len(x) <= MARKED
    if below:
        axes.plot(*zip(*below, strict=True), "o", color=BLUE, markersize=5 if few else 3, label="found by the update")
        from_zero(axes, [value for _, value in below])
    else:
        axes.set_yticks([])
    if alone:
        axes.set_ylim(top=1.25 * axes.get_ylim()[1])
        (marks,) = axes.plot(alone, [0.91] * len(alone), "^", color=VERMILION, transform=axes.get_xaxis_transform())
        marks.set(markersize=6 if few else 4, label=f"at its cap ({cap:g}): constraint only")
    legend_above(axes)
