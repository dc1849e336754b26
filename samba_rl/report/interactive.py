"""Interactive figures of benchmark results for a web page, as plain data for Plotly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from samba_rl.benchmark.cells import CellResult, Point
from samba_rl.benchmark.names import system_name
from samba_rl.report.groups import Group, groups, look_of
from samba_rl.report.series import (
    CURVES,
    TAIL,
    Band,
    Floats,
    constraint_kind,
    curve_band,
    front,
    has_curve,
    has_tail,
    safety_and_return,
    tail_band,
    unique,
)
from samba_rl.report.style import CYCLE, INK, MARKED

Json = dict[str, Any]
_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
_MARKERS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
    "*": "star", "<": "triangle-left", ">": "triangle-right", "p": "pentagon",
}  # fmt: skip
ZERO = 0.1
"""Position of zero on a logarithmic axis of costs or counts."""
_GRID = "#E4E7EC"
_AXIS: Json = {"gridcolor": _GRID, "linecolor": "#98A2B3", "zeroline": False, "ticks": "outside", "automargin": True}
_HOVER: Json = {"hovertemplate": "%{text}<extra></extra>"}


@dataclass(frozen=True)
class Plot:
    """A figure for Plotly, and the texts around it."""

    name: str
    """Id of its element on the page."""
    title: str
    alt: str
    """Description for readers who cannot see the figure."""
    height: int
    """Height on the page [pixels]."""
    data: Sequence[Json]
    """Plotly's traces."""
    layout: Json
    """Plotly's layout."""


# Learning curves ------------------------------------------------------------------------------------------------------


def curves(results: Sequence[CellResult]) -> list[Plot]:
    """Return a figure for each system: return, safety cost and unsafe steps against real samples."""
    plots = []
    for task, drawn in _by_system([g for g in groups(results) if has_curve(g)]):
        data: list[Json] = []
        layout = _layout("real samples [steps]", log_x=True)
        rows = len(CURVES)
        for row, (label, value) in enumerate(CURVES):
            suffix = "" if row == 0 else str(row + 1)
            top = 1 - row / rows
            axis: Json = {**_AXIS, "title": {"text": label.replace("\n", "<br>")}, "domain": [top - 0.87 / rows, top]}
            bands = [curve_band(group, value) for group in drawn]
            for group, values in zip(drawn, bands, strict=True):
                what = label.split("\n")[0]
                data += _curve(group, values, f"y{suffix}", what, log=row > 0, legend=row == 0)
            layout[f"yaxis{suffix}"] = {**axis, **(_log_axis(bands) if row > 0 else {})}
        layout["xaxis"]["anchor"] = f"y{rows}"
        title = f"Learning curves on {system_name(task)}"
        alt = f"{title}: return, safety cost and unsafe steps against real samples, for {_names(drawn)}."
        plots.append(Plot(f"curves-{task}", title, alt, 860, data, layout))
    return plots


def _log_axis(bands: Sequence[Band]) -> Json:
    """Return a logarithmic axis with a mark for zero at its lower end."""
    largest = max(1.0, *(float(values.high.max()) for values in bands))
    powers = range(int(np.ceil(np.log10(largest))) + 1)
    return {
        "type": "log",
        "tickvals": [ZERO, *(10**power for power in powers)],
        "ticktext": ["0", *(f"{10**power:,}" for power in powers)],
        "range": [np.log10(ZERO) - 0.15, np.log10(largest) + 0.15],
    }


def _curve(group: Group, values: Band, axis: str, what: str, *, log: bool, legend: bool) -> list[Json]:
    """Return the traces of a learning curve: the range of the seeds, and their mean on top."""

    def y(numbers: Floats) -> list[float]:
        return [max(float(number), ZERO) if log else float(number) for number in numbers]

    look, x = look_of(group.learner), values.x.tolist()
    edge: Json = {"x": x, "yaxis": axis, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    edge |= {"legendgroup": group.label, "showlegend": False}
    seeds = len(group.results)
    several = f"<br>seeds {{}} to {{}} ({seeds})" if seeds > 1 else ""
    text = [
        f"<b>{_text(group.label)}</b><br>{samples:,.0f} real samples<br>{what} {at:,.4g}"
        + several.format(f"{least:,.4g}", f"{most:,.4g}")
        for samples, least, at, most in zip(x, values.low, values.mean, values.high, strict=True)
    ]
    line = {
        "x": x, "y": y(values.mean), "yaxis": axis, "name": _text(group.label),
        "mode": "lines+markers" if len(x) <= MARKED else "lines", "legendgroup": group.label, "showlegend": legend,
        "text": text, **_HOVER, "line": _line(look.colour, look.dashes, look.size * (1.2 if group.variant % 2 else 2)),
        "marker": _marker(group, 5),
    }  # fmt: skip
    if seeds == 1:
        return [line]
    return [
        {**edge, "y": y(values.low)},
        {**edge, "y": y(values.high), "fill": "tonexty", "fillcolor": _colour(look.colour) + "24"},
        line,
    ]


def run_curve(
    name: str, title: str, runs: Sequence[tuple[str, Sequence[Point]]], limit: tuple[str, float] | None = None
) -> Plot:
    """Return a figure of the trials of some runs: their return, and below it their safety cost beside the limit.

    Args:
        name: Id of its element on the page.
        title: Title.
        runs: Name and learning curve of each run.
        limit: Words and value of the limit on the safety cost of an episode.
    """
    data: list[Json] = []
    for i, (which, points) in enumerate(runs):
        colour, dashes = CYCLE[i % len(CYCLE)]
        x = [point.real_samples for point in points]
        common: Json = {"x": x, "name": _text(which), "legendgroup": which, "line": _line(colour, dashes), **_HOVER}
        common |= {"mode": "lines+markers" if len(x) <= MARKED else "lines", "marker": {"size": 5}}
        for axis, what, values in (
            ("y", "return", [point.return_mean for point in points]),
            ("y2", "safety cost", [point.safety_cost for point in points]),
        ):
            text = [
                f"<b>{_text(which)}</b><br>{at:,} real samples<br>{what} {value:,.4g}"
                for at, value in zip(x, values, strict=True)
            ]
            shown = axis == "y" and len(runs) > 1
            data.append({**common, "y": values, "yaxis": axis, "text": text, "showlegend": shown})
    layout = _layout("real samples [steps]")
    layout["xaxis"] |= {"anchor": "y2", "rangemode": "tozero"}
    layout["yaxis"] = {**_AXIS, "title": {"text": "return of a trial"}, "domain": [0.56, 1]}
    layout["yaxis2"] = {**_AXIS, "title": {"text": "safety cost"}, "domain": [0, 0.46], "rangemode": "tozero"}
    if limit is not None:
        words, value = limit
        line = {"color": "#D55E00", "dash": "dash", "width": 1.5}
        layout["shapes"] = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y2", "y0": value, "y1": value, "line": line}
        ]
        layout["annotations"] = [{
            "xref": "paper", "x": 1, "xanchor": "right", "yref": "y2", "y": value, "yanchor": "bottom",
            "text": _text(words), "showarrow": False, "font": {"size": 11, "color": "#B54708"},
        }]  # fmt: skip
    alt = f"{title}: return and safety cost of each trial against real samples."
    return Plot(name, title, alt, 340, data, layout)


# Trade-off ------------------------------------------------------------------------------------------------------------


def trade_off(results: Sequence[CellResult]) -> list[Plot]:
    """Return a figure for each system: return against safety cost, with medians, seeds and the Pareto front."""
    plots = []
    for task, drawn in _by_system(groups(results)):
        data: list[Json] = []
        medians = []
        for group in drawn:
            points = [safety_and_return(result) for result in group.results]
            x, y = [point[0] for point in points], [point[1] for point in points]
            medians.append((median(x), median(y)))
            each = [
                f"<b>{_text(group.label)}</b>, seed {r.cell.seed}<br>return {value:,.4g}<br>safety cost {cost:,.4g}"
                for r, (cost, value) in zip(group.results, points, strict=True)
            ]
            common: Json = {"mode": "markers", "legendgroup": group.label, **_HOVER}
            seeds = {"x": x, "y": y, "text": each, "showlegend": False, "marker": _marker(group, 6), "opacity": 0.45}
            words = (
                f"<b>{_text(group.label)}</b>, median of {len(points)}<br>return {medians[-1][1]:,.4g}<br>"
                f"safety cost {medians[-1][0]:,.4g}"
            )
            middle = {"x": [medians[-1][0]], "y": [medians[-1][1]], "text": [words], "name": _text(group.label)}
            data += [{**common, **seeds}] if len(points) > 1 else []
            data.append({**common, **middle, "marker": _marker(group, 12)})
        best = front(medians)
        step: Json = {"x": [p[0] for p in best], "y": [p[1] for p in best], "mode": "lines", "name": "Pareto front"}
        if len(best) > 1:
            data.insert(0, {**step, "line": {"shape": "hv", "color": "#98A2B3", "width": 1.5}, "hoverinfo": "skip"})
        layout = _layout("safety cost of an episode, mean [cost]")
        layout["yaxis"] = {**_AXIS, "title": {"text": "return of an episode, mean [negative cost]"}}
        title = f"Return against safety on {system_name(task)}"
        alt = f"{title}: the best policies are at the top left. Shown are {_names(drawn)}."
        plots.append(Plot(f"trade-off-{task}", title, alt, 480, data, layout))
    return plots


# Constraint after each trial ------------------------------------------------------------------------------------------


def tail(results: Sequence[CellResult]) -> list[Plot]:
    """Return a figure for each group: its constraint after each trial, predicted by the model and measured."""
    plots = []
    for group in groups(results):
        if not has_tail(group):
            continue
        data: list[Json] = []
        for name, (label, look) in TAIL.items():
            values = tail_band(group, name)
            text = [f"{label}: {v:.3g}<br>after trial {i:.0f}" for i, v in zip(values.x, values.mean, strict=True)]
            data.append({
                "x": values.x.tolist(), "y": values.mean.tolist(), "mode": "lines+markers", "name": label,
                "line": _line(look.colour, look.dashes), "marker": {"size": 5}, "text": text, **_HOVER,
            })  # fmt: skip
        layout = _layout("after real trial")
        value = f"{_text(constraint_kind(group))} of an episode [cost]"
        layout["yaxis"] = {**_AXIS, "title": {"text": value}, "rangemode": "tozero"}
        title = f"Constraint of {group.label} on {system_name(group.task)}"
        alt = f"{title}: predicted by the model and measured on the real system, after each trial."
        plots.append(Plot(f"tail-{group.task}-{group.learner}-{group.variant}", title, alt, 380, data, layout))
    return plots


# Shared parts ---------------------------------------------------------------------------------------------------------


def _by_system(drawn: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    return [(task, [g for g in drawn if g.task == task]) for task in unique(g.task for g in drawn)]


def _names(drawn: Sequence[Group]) -> str:
    return ", ".join(unique(group.label for group in drawn))


def _layout(x: str, *, log_x: bool = False) -> Json:
    axis: Json = {**_AXIS, "title": {"text": x}}
    if log_x:
        axis |= {"type": "log", "tickformat": ",d"}
    return {
        "xaxis": axis, "margin": {"l": 64, "r": 12, "t": 36, "b": 48}, "hovermode": "closest",
        "paper_bgcolor": "white", "plot_bgcolor": "white", "font": {"size": 13, "color": INK},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        "hoverlabel": {"bgcolor": "white", "font": {"color": INK}, "align": "left"},
    }  # fmt: skip


def _line(colour: str, dashes: str, width: float = 2.0) -> Json:
    return {"color": _colour(colour), "dash": _DASHES[dashes], "width": width}


def _marker(group: Group, size: int) -> Json:
    """Return the marker of a group; those of a learner's second group are hollow."""
    look, hollow = look_of(group.learner), group.variant % 2 == 1
    return {
        "size": size, "color": _colour(look.colour), "symbol": _MARKERS[look.marker] + ("-open" if hollow else ""),
    }  # fmt: skip


def _colour(name: str) -> str:
    """Return a colour for Plotly; Matplotlib's greys are numbers between 0 and 1."""
    return name if name.startswith("#") else "#" + 3 * f"{round(255 * float(name)):02x}"


def _text(words: str) -> str:
    """Return a text in which Plotly finds no tags."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
