"""Pictures of what came of a benchmark: learning curves, the trade-off, and what models promised of the constraint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from samba_rl.errors import UserError
from samba_rl.learners import LEARNERS
from samba_rl.report.records import Group, PointRecord, ResultRecord, groups, look_of, place, title_of
from samba_rl.report.style import BLUE, FONT_SIZE, INK, VERMILION, new_figure, plain, tidy, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
HOW = "run `samba-rl benchmark paper` (or smoke, to try it) and give its folder with --results"


# Learning curves ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Band:
    """Something over real samples or trials: the mean of the seeds, the least and the largest of them; each [K]."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def band(seeds: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Band:
    """The mean and the range of lines (x, y) with different x, straight between their points.

    It is given wherever any line has a point, from where the last begins to where the first ends.
    """
    begin, end = max(x[0] for x, _ in seeds), min(x[-1] for x, _ in seeds)
    x = np.array(sorted({value for line, _ in seeds for value in line if begin <= value <= end}), dtype=np.float64)
    if not len(x):  # they do not overlap: nothing can be averaged
        x = np.array([end], dtype=np.float64)
    y = np.stack([np.interp(x, line, values) for line, values in seeds])
    return Band(x, y.mean(0), y.min(0), y.max(0))


CURVES: tuple[tuple[str, Callable[[PointRecord], float]], ...] = (
    ("return of an episode\n[negative cost]", lambda point: point.return_mean),
    ("safety cost so far\n(learning TC) [cost]", lambda point: point.learning_TC),
    ("unsafe steps so far\n(learning TV) [steps]", lambda point: float(point.learning_TV)),
)


def curves(results: Sequence[ResultRecord], task: str | None = None) -> Figure:
    """Return, safety cost and unsafe steps against real samples: mean and range of the seeds, by learner and system."""
    drawn = _needed([g for g in groups(results, task) if all(r.curve for r in g.results)], "learning curves", task)
    tasks = unique(group.task for group in drawn)
    figure = new_figure(7.4, "Learning, mean and range of the seeds")
    grid = figure.subplots(len(CURVES), len(tasks), sharex="col", squeeze=False)
    for row, (label, value) in zip(grid, CURVES, strict=True):
        for axes, name in zip(row, tasks, strict=True):
            _tidy(axes)
            for group in drawn:
                if group.task == name:
                    lines = [([p.real_samples for p in r.curve], [value(p) for p in r.curve]) for r in group.results]
                    _band(axes, band(lines), group)
            axes.set_xscale("log")
            if value is not CURVES[0][1]:
                # From nothing at all to hundreds of thousands: powers of ten, and even steps up to one.
                axes.set_yscale("symlog", linthresh=1)
                axes.set_ylim(bottom=-0.2)  # room for the markers of those that had none
        row[0].set_ylabel(label, fontsize=FONT_SIZE)
    for axes, name in zip(grid[0], tasks, strict=True):
        axes.set_title(_title(name, len(tasks)), fontsize=FONT_SIZE)
    for axes in grid[-1]:
        axes.set_xlabel("real samples [steps]", fontsize=FONT_SIZE)
    figure.align_ylabels(list(grid[:, 0]))
    _legend(figure, drawn, lines=True)
    return figure


def _band(axes: Axes, values: Band, group: Group) -> None:
    look = look_of(group.learner)
    axes.fill_between(values.x, values.low, values.high, color=look.colour, alpha=0.16, linewidth=0)
    # A few markers only: they tell lines apart where colours do not.
    every = max(1, len(values.x) // 5)
    axes.plot(values.x, values.mean, label=group.label, markevery=every, markersize=4, linewidth=1.3, **_drawn(group))


# The trade-off --------------------------------------------------------------------------------------------------------


def safety_and_return(result: ResultRecord) -> tuple[float, float]:
    """What an episode of the learned policy costs in safety and gives as return, on average."""
    evaluation = result.with_noise
    return evaluation.TC / evaluation.episodes, evaluation.return_mean


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those of the points (safety cost, return) that no other beats in both, from the safest on."""
    kept: list[tuple[float, float]] = []
    for cost, value in sorted(points, key=lambda p: (p[0], -p[1])):
        if not kept or value > kept[-1][1]:
            kept.append((cost, value))
    return kept


def trade_off(results: Sequence[ResultRecord], task: str | None = None) -> Figure:
    """Return against safety cost: each learner's median, its seeds faintly, and the Pareto front of the medians."""
    drawn = _needed(groups(results, task), "results", task)
    tasks = unique(group.task for group in drawn)
    figure = new_figure(3.9, "Return against safety, medians and seeds")
    (row,) = figure.subplots(1, len(tasks), squeeze=False)
    for axes, name in zip(row, tasks, strict=True):
        _tidy(axes)
        medians = []
        for group in drawn:
            if group.task != name:
                continue
            x, y = zip(*(safety_and_return(result) for result in group.results), strict=True)
            medians.append((median(x), median(y)))
            look = {**_drawn(group), "linestyle": ""}
            axes.plot(
                x, y, markersize=3.5, alpha=0.45, **{**look, "markeredgewidth": 0, "markerfacecolor": look["color"]}
            )
            axes.plot(*medians[-1], markersize=7.5, zorder=3, label=group.label, **look)
        axes.margins(0.1)
        (_, right), (bottom, _), best = axes.get_xlim(), axes.get_ylim(), front(medians)
        # From the edge below the safest to the edge beyond the best: nothing better lies up and to the left of it.
        x, y = zip((best[0][0], bottom), *best, (right, best[-1][1]), strict=True)
        axes.step(
            x, y, where="post", color="0.75", linewidth=1.2, zorder=1, label="Pareto front", scalex=False, scaley=False
        )
        axes.set_title(_title(name, len(tasks)), fontsize=FONT_SIZE)
        axes.set_xlabel("safety cost of an episode\n(mean) [cost]", fontsize=FONT_SIZE)
    row[0].set_ylabel("return of an episode\n(mean) [negative cost]", fontsize=FONT_SIZE)
    _legend(figure, drawn, lines=False)
    return figure


# The tail -------------------------------------------------------------------------------------------------------------


def tail(results: Sequence[ResultRecord], task: str | None = None) -> Figure:
    """What the model promised of the constraint after each trial, and what the policy then realised."""
    drawn = _needed(
        [g for g in groups(results, task) if promised(g)],
        "learners with a model and a constraint (samba, sppilco)",
        task,
    )
    tasks, labels = unique(group.task for group in drawn), unique(group.label for group in drawn)
    figure = new_figure(2.0 * len(labels) + 1.4, "The constraint: promised by the model, realised on the system")
    grid = figure.subplots(len(labels), len(tasks), squeeze=False, sharex="col")
    for row, label in zip(grid, labels, strict=True):
        for axes, name in zip(row, tasks, strict=True):
            here = [group for group in drawn if (group.task, group.label) == (name, label)]
            _tail(axes, here[0]) if here else axes.set_axis_off()
        row[0].set_ylabel(f"{plain(label)}: constraint\nof an episode [cost]", fontsize=FONT_SIZE)
    for axes, name in zip(grid[0], tasks, strict=True):
        axes.set_title(_title(name, len(tasks)), fontsize=FONT_SIZE)
    for axes in grid[-1]:
        axes.set_xlabel("after real trial", fontsize=FONT_SIZE)
        whole_numbers(axes)
    handles = next(axes for axes in grid.flat if axes.lines).get_legend_handles_labels()[0]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=FONT_SIZE - 0.5)
    figure.align_ylabels(list(grid[:, 0]))
    return figure


def promised(group: Group) -> bool:
    """Whether a model promised something of the constraint, and it is known what was realised."""
    has_model = group.learner not in LEARNERS or LEARNERS[group.learner].traces == "model"
    return has_model and all(result.tail for result in group.results)


def _tail(axes: Axes, group: Group) -> None:
    _tidy(axes)
    # In each panel: systems may have different levels.
    corner: dict[str, Any] = {"transform": axes.transAxes, "ha": "right", "va": "top", "fontsize": FONT_SIZE - 1.5}
    axes.text(0.98, 0.97, plain(in_short(group)), **corner)
    names: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("predicted", "promised by the model", {"color": BLUE, "marker": "o"}),
        ("realised", "realised on the system", {"color": VERMILION, "linestyle": "--", "marker": "D"}),
        ("target", "held under", {"color": INK, "linestyle": ":"}),
    )
    top = 0.0
    for name, label, look in names:
        lines = []
        for result in group.results:
            scale = per_episode(result)
            lines.append(([t.iteration for t in result.tail], [scale * getattr(t, name) for t in result.tail]))
        values = band(lines)
        axes.fill_between(values.x, values.low, values.high, color=look["color"], alpha=0.16, linewidth=0)
        axes.plot(values.x, values.mean, label=plain(label), markersize=3.5, linewidth=1.3, **look)
        top = max(top, float(values.high.max()))
    axes.set_ylim(-0.04 * (top or 1), 1.08 * (top or 1))


def in_short(group: Group) -> str:
    """What the first constraint of a group is: CVaR 0.9."""
    constraints = group.results[0].with_noise.constraints
    return constraints[0][0].split(" of ")[0] if constraints else "constraint"


def per_episode(result: ResultRecord) -> float:
    """By what a constraint's value is multiplied to be that of an episode: limits may be meant for a step."""
    evaluation = result.with_noise
    if evaluation.limit is None or not evaluation.constraints or not evaluation.constraints[0][2]:
        return 1.0
    return evaluation.limit / evaluation.constraints[0][2]


# What they share ------------------------------------------------------------------------------------------------------


def _needed(found: list[Group], what: str, task: str | None) -> list[Group]:
    if not found:
        where = "" if task is None else f" of {task}"
        raise UserError(f"the results hold no {what}{where}, so there is nothing to draw; {HOW}")
    return found


_T = TypeVar("_T")


def unique(values: Iterable[_T]) -> list[_T]:
    """Each value once, where it first was."""
    return list(dict.fromkeys(values))


def _title(task: str, columns: int) -> str:
    """The system's name, on two lines where panels are narrow."""
    title = title_of(task)
    return title.replace("Cart-Pole ", "Cart-Pole\n") if columns > 1 else title


def _tidy(axes: Axes) -> None:
    tidy(axes)
    axes.grid(linewidth=0.5, color="0.9")
    axes.tick_params(labelsize=FONT_SIZE - 1.5)


def _drawn(group: Group) -> dict[str, Any]:
    """Colour, dashes and marker; the markers of a learner's second group are hollow."""
    look = look_of(group.learner)
    return {
        "color": look.colour,
        "linestyle": look.dashes,
        "marker": look.marker,
        "markeredgecolor": look.colour if group.variant % 2 else "white",
        "markeredgewidth": 1.0 if group.variant % 2 else 0.5,
        "markerfacecolor": "white" if group.variant % 2 else look.colour,
    }


def _legend(figure: Figure, drawn: Sequence[Group], *, lines: bool) -> None:
    """One legend for all panels, below them."""
    from matplotlib.lines import Line2D

    by_label = {group.label: group for group in reversed(drawn)}
    labels = sorted(by_label, key=lambda label: (place(by_label[label].learner, LEARNERS), by_label[label].variant))
    entries = []
    for label in labels:
        look = _drawn(by_label[label])
        entries.append(
            Line2D([], [], label=plain(label), markersize=6, **(look if lines else {**look, "linestyle": ""}))
        )
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
