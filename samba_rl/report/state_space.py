"""Figure of the states that the real trials visited, over the unsafe and the hazard region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.report.style import FONT_SIZE, INK, legend_above, name_axes, new_figure, tidy
from samba_rl.report.views import Span, View, view
from samba_rl.tasks.render.drawing import HAZARD, UNSAFE
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRID = (420, 280)
"""Number of points, across and up, at which the safety cost is computed."""
DRAWN = 20_000
"""Largest number of states that are drawn of each kind; more would cover each other."""


@dataclass(frozen=True)
class Plane:
    """The visited states in the two dimensions of the figure."""

    labels: tuple[str, str]
    points: Tensor
    """Positions of the states [N, 2]."""
    limits: tuple[Span, Span]
    """Ranges of the axes, across and up."""
    lift: Callable[[Tensor], Tensor]
    """Maps positions [G, 2] to states [G, nx] whose safety stands for these positions."""


def state_space(task: Task, steps: Transitions, title: str) -> Figure:
    """Draw the states that real steps reached, coloured by time, over the unsafe and the hazard region.

    Unsafe steps are crosses.
    """
    seen = view(task, steps)
    plane = _over_time(seen, steps) if seen.over_time else _in_two_coordinates(seen, steps)
    figure = new_figure(4.6, title)
    axes = figure.subplots()
    tidy(axes)
    entries = _draw_regions(axes, task, steps, plane)
    entries += _draw_states(axes, steps, plane)
    name_axes(axes, x=plane.labels[0], y=plane.labels[1])
    axes.set_xlim(*plane.limits[0])
    axes.set_ylim(*plane.limits[1])
    if seen.is_angle:
        axes.set_xticks(range(-180, 181, 45))
    legend_above(axes, entries, handle_length=1.4)
    return figure


def _in_two_coordinates(seen: View, steps: Transitions) -> Plane:
    points = seen.place(steps.x_next)
    across, up = (
        _span(column) if limits is None else _widened(limits, 0.025)  # markers on the limits should be whole
        for column, limits in zip(points.T, seen.limits, strict=True)
    )
    return Plane((seen.labels[0], seen.labels[1]), points, (across, up), seen.lift)


def _over_time(seen: View, steps: Transitions) -> Plane:
    values = seen.place(steps.x_next)[:, 0]
    time = (steps.step + 1).to(values)
    low, high = _span(values if seen.limits[0] is None else values.clamp(*seen.limits[0]))
    if seen.unsafe is not None:
        # Keep the unsafe region in view, with one and a half of its widths on either side.
        around = _widened(seen.unsafe, 1.5)
        low, high = min(low, around[0]), max(high, around[1])
    return Plane(
        labels=("step of the episode", seen.labels[0].replace("\n", " ")),
        points=torch.stack([time, values], dim=1),
        limits=((0.0, float(time.max()) + 1), (low, high)),
        lift=lambda points: seen.lift(points[:, 1:]),
    )


def _span(values: Tensor) -> Span:
    """Return the range of values [N], widened a little."""
    low, high = float(values.min()), float(values.max())
    return _widened((low, high), 0.08) if low < high else (low - 0.5, high + 0.5)


def _widened(span: Span, share: float) -> Span:
    """Return a range with a share of its width added on either side."""
    room = share * (span[1] - span[0])
    return span[0] - room, span[1] + room


def _draw_regions(axes: Axes, task: Task, steps: Transitions, plane: Plane) -> list[Artist]:
    """Shade the unsafe and the hazard region, and return their legend entries."""
    from matplotlib.patches import Patch

    (left, right), (bottom, top) = plane.limits
    up, across = torch.meshgrid(
        torch.linspace(bottom, top, GRID[1]).double(), torch.linspace(left, right, GRID[0]).double(), indexing="ij"
    )
    x = plane.lift(torch.stack([across.ravel(), up.ravel()], dim=1))
    u = steps.u.median(0).values.expand(len(x), -1)
    try:
        cost, unsafe = task.safety(x, u).sum(-1), task.violation(x, u).any(-1)
    except UserError:
        return []  # the safety cost is measured, not computed, so its regions are unknown
    cost_here = cost.nan_to_num().reshape(up.shape).numpy()
    unsafe_here = unsafe.reshape(up.shape).numpy()
    hazard_here = (cost_here > 0) & ~unsafe_here
    depth = cost_here / max(float(cost_here.max()), 1e-12)
    picture = np.ones((*up.shape, 4))
    picture[..., 3] = 0.0
    entries: list[Artist] = []
    for name, where, colour, opacity in (
        ("hazard", hazard_here, HAZARD, 0.15 + 0.4 * depth),
        ("unsafe", unsafe_here, UNSAFE, np.full_like(depth, 0.5)),
    ):
        if not where.any():
            continue
        rgb = (colour[0] / 255, colour[1] / 255, colour[2] / 255)
        picture[where, :3] = rgb
        picture[..., 3] = np.where(where, opacity, picture[..., 3])
        entries.append(Patch(facecolor=(*rgb, 0.5), edgecolor=rgb, label=name))
    axes.imshow(picture, extent=(left, right, bottom, top), origin="lower", aspect="auto", zorder=0)
    return entries


def _draw_states(axes: Axes, steps: Transitions, plane: Plane) -> list[Artist]:
    """Draw later states over earlier ones and unsafe ones on top, and return the legend entries."""
    from matplotlib.lines import Line2D

    points, unsafe = plane.points.numpy(), steps.violation.any(-1).numpy()
    order = np.arange(1, len(points) + 1)
    size = float(np.clip(6000 / len(points), 4, 22))
    entries: list[Artist] = []
    thinnest = 1
    for name, where, marker, area in (
        ("state reached", ~unsafe, "o", size),
        ("unsafe step", unsafe, "X", 20 + 1.5 * size),
    ):
        rows = where.nonzero()[0]
        every = -(-len(rows) // DRAWN) or 1
        thinnest, rows = max(thinnest, every), rows[::every]
        drawn = axes.scatter(
            points[rows, 0],
            points[rows, 1],
            s=area,
            c=order[rows],
            vmin=1,
            vmax=max(len(points), 2),
            cmap="viridis",
            marker=marker,
            edgecolors=INK,
            linewidths=0.4,
            rasterized=True,
            label=name,
        )
        if where.any():
            named = f"{name} ({int(where.sum()):,})"
            entries.append(Line2D([], [], linestyle="", marker=marker, color="0.6", markeredgecolor=INK, label=named))
    beyond = int((~_inside(points, plane.limits)).sum())
    if beyond:
        entries.append(Line2D([], [], linestyle="", label=f"out of view ({beyond:,})"))
    bar = axes.figure.colorbar(drawn, ax=axes, label="", format="{x:,.0f}")
    thinned = f", 1 in {thinnest} drawn" if thinnest > 1 else ""
    bar.set_label(f"real sample, first to last{thinned} [step]", fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE - 0.5)
    return entries


def _inside(points: NDArray[np.float64], limits: tuple[Span, Span]) -> NDArray[np.bool_]:
    """Return which points [N, 2] lie inside the axes [N]."""
    low, high = np.array(limits).T
    inside: NDArray[np.bool_] = ((points >= low) & (points <= high)).all(1)
    return inside
