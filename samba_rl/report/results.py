"""Figures of benchmark results: learning curves, return against safety, and the constraint after each trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.names import place, system_name
from samba_rl.errors import UserError
from samba_rl.learners import LEARNERS
from samba_rl.report.groups import Group, groups, look_of
from samba_rl.report.series import (
    CURVES,
    TAIL,
    Band,
    constraint_kind,
    curve_band,
    front,
    has_curve,
    has_tail,
    safety_and_return,
    tail_band,
    unique,
)
from samba_rl.report.style import FONT_SIZE, new_figure, plain, tidy, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TAIL_COLUMNS = 3
"""Largest number of panels beside each other in the figure of constraints."""
HOW = "run `samba-rl benchmark paper` (or `smoke` for a quick try) and give its results folder with --results"


# Learning curves ------------------------------------------------------------------------------------------------------


def curves(results: Sequence[CellResult], task: str | None = None) -> Figure:
    """Draw return, safety cost and unsafe steps against real samples, by learner and system.

    Lines are means over the seeds and bands their range.
    """
    drawn = _needed([g for g in groups(results, task) if has_curve(g)], "learning curves", task)
    tasks = unique(group.task for group in drawn)
    figure = new_figure(7.4, "Learning curves: mean and range of the seeds")
    grid = figure.subplots(len(CURVES), len(tasks), sharex="col", squeeze=False)
    for row, (label, value) in zip(grid, CURVES, strict=True):
        for axes, name in zip(row, tasks, strict=True):
            _tidy(axes)
            for group in drawn:
                if group.task == name:
                    _draw_curve(axes, curve_band(group, value), group)
            axes.set_xscale("log")
            if value is not CURVES[0][1]:
                # Costs and counts range from zero to hundreds of thousands: logarithmic above one, linear below.
                axes.set_yscale("symlog", linthresh=1)
                axes.set_ylim(bottom=-0.2)  # room for markers at zero
        row[0].set_ylabel(label, fontsize=FONT_SIZE)
    for axes, name in zip(grid[0], tasks, strict=True):
        axes.set_title(_title(name, len(tasks)), fontsize=FONT_SIZE)
    for axes in grid[-1]:
        axes.set_xlabel("real samples [steps]", fontsize=FONT_SIZE)
    figure.align_ylabels(list(grid[:, 0]))
    _legend(figure, drawn, lines=True)
    return figure


def _draw_curve(axes: Axes, values: Band, group: Group) -> None:
    axes.fill_between(values.x, values.low, values.high, color=look_of(group.learner).colour, alpha=0.16, linewidth=0)
    # A few markers, which tell lines apart where colours do not.
    every = max(1, len(values.x) // 5)
    axes.plot(values.x, values.mean, label=group.label, markevery=every, **_drawn(group, 4.0))


# Trade-off ------------------------------------------------------------------------------------------------------------


def trade_off(results: Sequence[CellResult], task: str | None = None) -> Figure:
    """Draw return against safety cost: the seeds of each learner, their median, and the Pareto front of the medians."""
    drawn = _needed(groups(results, task), "results", task)
    tasks = unique(group.task for group in drawn)
    figure = new_figure(3.9, "Return against safety: medians and seeds")
    (row,) = figure.subplots(1, len(tasks), squeeze=False)
    for axes, name in zip(row, tasks, strict=True):
        _tidy(axes)
        medians = []
        for group in drawn:
            if group.task != name:
                continue
            x, y = zip(*(safety_and_return(result) for result in group.results), strict=True)
            medians.append((median(x), median(y)))
            look = {**_drawn(group, 7.0), "linestyle": ""}
            small = {"markerfacecolor": look["color"], "markeredgewidth": 0, "markersize": 3.5, "alpha": 0.45}
            axes.plot(x, y, **{**look, **small, "zorder": 2})
            axes.plot(*medians[-1], label=group.label, **look)
        axes.margins(0.1)
        (_, right), (bottom, _), best = axes.get_xlim(), axes.get_ylim(), front(medians)
        # From the lower edge to the right edge: nothing lies above and to the left of it.
        x, y = zip((best[0][0], bottom), *best, (right, best[-1][1]), strict=True)
        axes.step(
            x, y, where="post", color="0.75", linewidth=1.2, zorder=1, label="Pareto front", scalex=False, scaley=False
        )
        axes.set_title(_title(name, len(tasks)), fontsize=FONT_SIZE)
        axes.set_xlabel("safety cost of an episode\n(mean) [cost]", fontsize=FONT_SIZE)
    row[0].set_ylabel("return of an episode\n(mean) [negative cost]", fontsize=FONT_SIZE)
    _legend(figure, drawn, lines=False)
    return figure


# Constraint after each trial ------------------------------------------------------------------------------------------


def tail(results: Sequence[CellResult], task: str | None = None) -> Figure:
    """Draw the constraint of the policy after each trial, as the model predicted it and as an audit measured it."""
    drawn = _needed(
        [g for g in groups(results, task) if has_tail(g)],
        "learners with a model and a constraint (SAMBA, SPPILCO)",
        task,
    )
    columns = min(len(drawn), TAIL_COLUMNS)
    rows = -(-len(drawn) // columns)
    figure = new_figure(2.1 * rows + 1.0, "Constraint: predicted by the model and measured on the real system")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, group in zip(grid.flat, drawn, strict=False):
        _draw_tail(axes, group)
        axes.set_title(f"{_title(group.task, columns)}\n{plain(group.label)}", fontsize=FONT_SIZE - 0.5)
        axes.set_xlabel("after real trial", fontsize=FONT_SIZE)
        whole_numbers(axes)
    for axes in grid.flat[len(drawn) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("constraint of\nan episode [cost]", fontsize=FONT_SIZE)
    handles = grid[0, 0].get_legend_handles_labels()[0]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=FONT_SIZE - 0.5)
    figure.align_ylabels(list(grid[:, 0]))
    return figure


def _draw_tail(axes: Axes, group: Group) -> None:
    _tidy(axes)
    # In each panel, because the level of CVaR may differ between systems.
    kind = plain(constraint_kind(group))
    axes.text(0.98, 0.97, kind, transform=axes.transAxes, ha="right", va="top", fontsize=FONT_SIZE - 1.5)
    top = 0.0
    for name, (label, look) in TAIL.items():
        values = tail_band(group, name)
        axes.fill_between(values.x, values.low, values.high, color=look.colour, alpha=0.16, linewidth=0)
        (line,) = axes.plot(values.x, values.mean, color=look.colour, linestyle=look.dashes, linewidth=1.3, label=label)
        line.set(marker=look.marker, markersize=3.5)
        top = max(top, float(values.high.max()))
    axes.set_ylim(-0.04 * (top or 1), 1.08 * (top or 1))


# Shared parts ---------------------------------------------------------------------------------------------------------


def _needed(found: list[Group], what: str, task: str | None) -> list[Group]:
    if not found:
        where = "" if task is None else f" of {task}"
        raise UserError(f"the results hold no {what}{where}, so there is nothing to draw; {HOW}")
    return found


def _title(task: str, columns: int) -> str:
    """Return the name of a system, on two lines where panels are narrow."""
    title = system_name(task)
    return title.replace("Cart-Pole ", "Cart-Pole\n") if columns > 1 else title


def _tidy(axes: Axes) -> None:
    tidy(axes)
    axes.grid(linewidth=0.5, color="0.9")
    axes.tick_params(labelsize=FONT_SIZE - 1.5)


def _drawn(group: Group, size: float) -> dict[str, Any]:
    """Return how Matplotlib draws a group, with markers of this size; a learner's second group is hollow and thin.

    Learners are drawn over those that follow in the order of the tables.
    """
    look, second = look_of(group.learner), group.variant % 2 == 1
    return {
        "color": look.colour,
        "linewidth": (0.7 if second else 1.4) * look.size,
        "linestyle": look.dashes,
        "marker": look.marker,
        "markersize": size * look.size**0.5,
        "markeredgecolor": look.colour if second else "white",
        "markeredgewidth": 1.0 if second else 0.5,
        "markerfacecolor": "white" if second else look.colour,
        "zorder": 3 - 0.01 * place(group.learner, LEARNERS)[0],
    }


def _legend(figure: Figure, drawn: Sequence[Group], *, lines: bool) -> None:
    """Draw one legend for all panels below them."""
    from matplotlib.lines import Line2D

    by_label = {group.label: group for group in reversed(drawn)}
    labels = sorted(by_label, key=lambda label: (place(by_label[label].learner, LEARNERS), by_label[label].variant))
    entries = []
    for label in labels:
        look = _drawn(by_label[label], 5.5)
        entries.append(Line2D([], [], label=plain(label), **(look if lines else {**look, "linestyle": ""})))
    if not lines:
        entries.append(Line2D([], [], color="0.75", label="Pareto front"))
    widest = max(len(label) for label in labels)
    columns = min(len(entries), max(1, math.floor(72 / (widest + 8))), 5)
    figure.legend(
        handles=entries,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=FONT_SIZE - 0.5,
        handlelength=2.4 if lines else 1.2,
    )
