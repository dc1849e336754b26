"""The pictures of a benchmark for a page: with zoom, and figures under the pointer. As Plotly's plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from samba_rl.report.records import Group, ResultRecord, groups, look_of, title_of
from samba_rl.report.results import (
    CURVES,
    Floats,
    band,
    front,
    in_short,
    per_episode,
    promised,
    safety_and_return,
    unique,
)
from samba_rl.report.style import BLUE, INK, VERMILION

Json = dict[str, Any]
_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
_MARKERS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
    "*": "star", "<": "triangle-left", ">": "triangle-right", "p": "pentagon",
}  # fmt: skip
NOTHING = 0.1
"""Where nothing at all is drawn on a logarithmic axis of costs or counts, which has no zero."""
MARKED = 40
"""More points than this are drawn without markers, which would run into each other."""
_GRID = "#E4E7EC"
_AXIS: Json = {"gridcolor": _GRID, "linecolor": "#98A2B3", "zeroline": False, "ticks": "outside", "automargin": True}


@dataclass(frozen=True)
class Plot:
    """A picture: what Plotly draws, and what stands beside it."""

    name: str
    """Of its element on the page."""
    title: str
    alt: str
    """For who cannot see it."""
    height: int
    """[pixels]"""
    data: Sequence[Json]
    layout: Json


# Learning curves ------------------------------------------------------------------------------------------------------


def curves(results: Sequence[ResultRecord]) -> list[Plot]:
    """Return, safety cost and unsafe steps against real samples, one above the other; a picture for each system."""
    plots = []
    for task, drawn in _by_system([g for g in groups(results) if all(r.curve for r in g.results)]):
        data: list[Json] = []
        layout = _layout("real samples [steps]", log_x=True)
        rows = len(CURVES)
        for row, (label, value) in enumerate(CURVES):
            suffix = "" if row == 0 else str(row + 1)
            top = 1 - row / rows
            axis: Json = {**_AXIS, "title": {"text": label.replace("\n", "<br>")}, "domain": [top - 0.87 / rows, top]}
            counts = row > 0
            largest = 1.0
            for group in drawn:
                lines = [([p.real_samples for p in r.curve], [value(p) for p in r.curve]) for r in group.results]
                values = band(lines)
                largest = max(largest, float(values.high.max()))
                what = label.split("\n")[0]
                data += _band(
                    group, values.x, values.low, values.mean, values.high, f"y{suffix}", what, counts, row == 0
                )
            if counts:
                powers = range(int(np.ceil(np.log10(largest))) + 1)
                axis |= {
                    "type": "log",
                    "tickvals": [NOTHING, *(10**power for power in powers)],
                    "ticktext": ["0", *(f"{10**power:,}" for power in powers)],
                    "range": [np.log10(NOTHING) - 0.15, np.log10(largest) + 0.15],
                }
            layout[f"yaxis{suffix}"] = axis
        layout["xaxis"]["anchor"] = f"y{rows}"
        title = f"Learning on {title_of(task)}"
        alt = f"{title}: return, safety cost and unsafe steps against real samples, for {_names(drawn)}."
        plots.append(Plot(f"curves-{task}", title, alt, 860, data, layout))
    return plots


def _band(
    group: Group, x: Floats, low: Floats, mean: Floats, high: Floats, axis: str, what: str, counts: bool, legend: bool
) -> list[Json]:
    """The range of the seeds, and above it their mean."""

    def y(values: Floats) -> list[float]:
        return [max(float(value), NOTHING) if counts else float(value) for value in values]

    look = look_of(group.learner)
    edge: Json = {"x": x.tolist(), "yaxis": axis, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    edge |= {"legendgroup": group.label, "showlegend": False}
    seeds = len(group.results)
    several = f"<br>seeds {{}} to {{}} ({seeds})" if seeds > 1 else ""
    text = [
        f"<b>{_text(group.label)}</b><br>{samples:,.0f} real samples<br>{what} {at:,.4g}"
        + several.format(f"{least:,.4g}", f"{most:,.4g}")
        for samples, least, at, most in zip(x, low, mean, high, strict=True)
    ]
    line = {
        "x": x.tolist(), "y": y(mean), "yaxis": axis, "name": _text(group.label),
        "mode": "lines+markers" if len(x) <= MARKED else "lines",
        "legendgroup": group.label, "showlegend": legend, "text": text, "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": _colour(look.colour), "dash": _DASHES[look.dashes], "width": 2}, "marker": _marker(group, 5),
    }  # fmt: skip
    if seeds == 1:
        return [line]
    return [
        {**edge, "y": y(low)},
        {**edge, "y": y(high), "fill": "tonexty", "fillcolor": _colour(look.colour) + "24"},
        line,
    ]


# The trade-off --------------------------------------------------------------------------------------------------------


def trade_off(results: Sequence[ResultRecord]) -> list[Plot]:
    """Return against safety cost: medians, seeds and the Pareto front; a picture for each system."""
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
            common: Json = {"mode": "markers", "legendgroup": group.label, "hovertemplate": "%{text}<extra></extra>"}
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
        title = f"Return against safety on {title_of(task)}"
        alt = f"{title}: the best lie up and to the left. Shown are {_names(drawn)}."
        plots.append(Plot(f"trade-off-{task}", title, alt, 480, data, layout))
    return plots


# The tail -------------------------------------------------------------------------------------------------------------


def tail(results: Sequence[ResultRecord]) -> list[Plot]:
    """What the model promised of the constraint after each trial, and what was realised; a picture for each group."""
    plots = []
    for group in groups(results):
        if not promised(group):
            continue
        short = in_short(group)
        data: list[Json] = []
        for name, label, colour, dash in (
            ("predicted", f"promised: {short}", BLUE, "solid"),
            ("realised", f"realised: {short}", VERMILION, "dash"),
            ("target", "held under", INK, "dot"),
        ):
            lines = []
            for result in group.results:
                scale = per_episode(result)
                lines.append(([t.iteration for t in result.tail], [scale * getattr(t, name) for t in result.tail]))
            values = band(lines)
            text = [f"{label} {v:.3g}<br>after trial {i:.0f}" for i, v in zip(values.x, values.mean, strict=True)]
            data.append({
                "x": values.x.tolist(), "y": values.mean.tolist(), "mode": "lines+markers", "name": label,
                "line": {"color": colour, "dash": dash, "width": 2}, "marker": {"size": 5}, "text": text,
                "hovertemplate": "%{text}<extra></extra>",
            })  # fmt: skip
        layout = _layout("after real trial")
        layout["yaxis"] = {**_AXIS, "title": {"text": "constraint of an episode [cost]"}, "rangemode": "tozero"}
        title = f"The constraint of {group.label} on {title_of(group.task)}"
        alt = f"{title}: promised by the model, and realised on the system, after each trial."
        plots.append(Plot(f"tail-{group.task}-{group.learner}-{group.variant}", title, alt, 380, data, layout))
    return plots


# What they share ------------------------------------------------------------------------------------------------------


def _by_system(drawn: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    return [(task, [g for g in drawn if g.task == task]) for task in unique(g.task for g in drawn)]


def _names(drawn: Sequence[Group]) -> str:
    return ", ".join(unique(group.label for group in drawn))


def _layout(x: str, log_x: bool = False) -> Json:
    axis: Json = {**_AXIS, "title": {"text": x}}
    if log_x:
        axis |= {"type": "log", "tickformat": ",d"}
    return {
        "xaxis": axis, "margin": {"l": 64, "r": 12, "t": 36, "b": 48}, "hovermode": "closest",
        "paper_bgcolor": "white", "plot_bgcolor": "white", "font": {"size": 13, "color": INK},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        "hoverlabel": {"bgcolor": "white", "font": {"color": INK}, "align": "left"},
    }  # fmt: skip


def _marker(group: Group, size: int) -> Json:
    """The markers of a learner's second group are hollow."""
    look, hollow = look_of(group.learner), group.variant % 2 == 1
    return {
        "size": size, "color": _colour(look.colour), "symbol": _MARKERS[look.marker] + ("-open" if hollow else ""),
    }  # fmt: skip


def _colour(name: str) -> str:
    """Matplotlib's greys are numbers between 0 and 1."""
    return name if name.startswith("#") else "#" + 3 * f"{round(255 * float(name)):02x}"


def _text(words: str) -> str:
    """Plotly reads a few tags in its texts; names hold none."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
