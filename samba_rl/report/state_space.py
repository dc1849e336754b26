"""Where a system has been: the states of the real trials over the regions that are unsafe or a hazard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.report.style import FONT_SIZE, INK, legend_above, name_axes, new_figure, tidy
from samba_rl.tasks.cart_double_pendulum import SafeCartPoleDoublePendulum
from samba_rl.tasks.fetch_reach import START, SafeFetchReach
from samba_rl.tasks.hazard import wrap
from samba_rl.tasks.pendulum import SafePendulum
from samba_rl.tasks.render.drawing import HAZARD, UNSAFE
from samba_rl.tasks.task import Quantity, Task
from samba_rl.types import Transitions

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Span = tuple[float, float]
GRID = (420, 280)
"""Points across and up at which the safety cost is looked at."""
DRAWN = 20_000
"""Of each kind of step at most so many are drawn, evenly spread over the run: more would cover each other."""
BINS = 10
"""Groups of states of similar value, by whose mean safety costs the dimensions are compared."""


@dataclass(frozen=True)
class View:
    """A plane on which states are seen."""

    labels: tuple[str, str]
    """Of the axes, across and up, with units."""
    points: Tensor
    """Where the states that the steps reached lie [N, 2]."""
    limits: tuple[Span, Span]
    """What is shown, across and up."""
    lift: Callable[[Tensor], Tensor]
    """States [G, nx] for points [G, 2] of the plane, to ask the system how safe they are."""
    turn: bool = False
    """Whether across is an angle in degrees."""


@singledispatch
def view(task: Task, steps: Transitions) -> View:
    """The plane on which to look at a system's states.

    This is the rule for any system: the two dimensions over which the safety cost has varied most. For the paper's
    systems there are better ones below; a user's own can have one by `@view.register(TheirTask)`.
    """
    if len(task.states) == 1:
        return _against_time(steps, steps.x_next[:, 0], _label(task.states[0]), lambda x: x[:, None])
    across, up = _telling(steps)
    typical = steps.x_next.median(0).values

    def lift(points: Tensor) -> Tensor:
        x = typical.repeat(len(points), 1)
        x[:, across], x[:, up] = points[:, 0], points[:, 1]
        return x

    points = steps.x_next[:, [across, up]]
    return View(
        (_label(task.states[across]), _label(task.states[up])), points, (_span(points[:, 0]), _span(points[:, 1])), lift
    )


@view.register(SafePendulum)
def _pendulum(task: SafePendulum, steps: Transitions) -> View:
    speed = task.states[1]
    # Speeds end at their bounds, and the markers of those should be whole.
    return _angle_and_speed(task, steps, 0, 1, (1.05 * speed.low, 1.05 * speed.high))


@view.register(SafeCartPoleDoublePendulum)
def _double_pendulum(task: SafeCartPoleDoublePendulum, steps: Transitions) -> View:
    return _angle_and_speed(task, steps, 4, 2, _span(steps.x_next[:, 2]))


@view.register(SafeFetchReach)
def _fetch(task: SafeFetchReach, steps: Transitions) -> View:
    """How much of the way to the goal along x is done, against time: goals differ, the slab is always the middle."""
    share = (steps.x_next[:, 0] - START[0]) / (steps.x_next[:, 6] - START[0])

    def lift(shares: Tensor) -> Tensor:
        # The slab is the same share of every way: any goal will do.
        x = steps.x_next[0].repeat(len(shares), 1)
        x[:, 0] = START[0] + shares * (x[:, 6] - START[0])
        return x

    # A goal close by makes a few shares huge; the slab must stay in sight.
    low, high = _span(share.clamp(-3, 4))
    label = f"{task.states[0].name} [way from start (0) to goal (1)]"
    return _against_time(steps, share, label, lift, (min(low, -0.5), max(high, 1.5)))


def _angle_and_speed(task: Task, steps: Transitions, angle: int, speed: int, speeds: Span) -> View:
    """An angle on the circle [°] and its speed."""
    typical = steps.x_next.median(0).values

    def lift(points: Tensor) -> Tensor:
        x = typical.repeat(len(points), 1)
        x[:, angle], x[:, speed] = points[:, 0].deg2rad(), points[:, 1]
        return x

    points = torch.stack([wrap(steps.x_next[:, angle]).rad2deg(), steps.x_next[:, speed]], dim=1)
    labels = (f"{task.states[angle].name} [°]", _label(task.states[speed]))
    return View(labels, points, ((-186.0, 186.0), speeds), lift, turn=True)


def _against_time(
    steps: Transitions, values: Tensor, label: str, lift: Callable[[Tensor], Tensor], span: Span | None = None
) -> View:
    """Values [N] against the step of the episode; `lift` gives states [G, nx] for values [G]."""
    time = (steps.step + 1).to(values)
    limits = ((0.0, float(time.max()) + 1), _span(values) if span is None else span)
    return View(("step of the episode", label), torch.stack([time, values], dim=1), limits, lambda p: lift(p[:, 1]))


def _label(quantity: Quantity) -> str:
    return f"{quantity.name} [{quantity.unit}]" if quantity.unit else quantity.name


def _span(values: Tensor) -> Span:
    """From the least to the largest with some room."""
    low, high = float(values.min()), float(values.max())
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room


def _telling(steps: Transitions) -> tuple[int, int]:
    """The two columns of the state over which the safety cost varies most, in their order; if it does not, the first.

    A column's measure is the variance of the mean safety cost of its `BINS` groups.
    """
    cost = steps.safety.sum(-1)
    groups = torch.arange(len(cost)) * BINS // len(cost)
    count = torch.bincount(groups, minlength=BINS).to(cost)

    def variation(column: Tensor) -> float:
        if column.min() == column.max():
            return -1.0  # says nothing, and makes no picture
        means = torch.zeros(BINS).to(cost).index_add(0, groups, cost[column.argsort(stable=True)]) / count.clamp(min=1)
        return float((count * (means - cost.mean()).square()).sum())

    by_variation = sorted(range(steps.x_next.shape[1]), key=lambda i: -variation(steps.x_next[:, i]))
    first, second = sorted(by_variation[:2])
    return first, second


# Drawing --------------------------------------------------------------------------------------------------------------


def state_space(task: Task, steps: Transitions, title: str) -> Figure:
    """The states that real steps reached, by when; unsafe steps as crosses, over the unsafe and the hazard region."""
    seen = view(task, steps)
    figure = new_figure(4.6, title)
    axes = figure.subplots()
    tidy(axes)
    entries = _regions(axes, task, steps, seen)
    entries += _states(axes, steps, seen)
    name_axes(axes, x=seen.labels[0], y=seen.labels[1])
    axes.set_xlim(*seen.limits[0])
    axes.set_ylim(*seen.limits[1])
    if seen.turn:
        axes.set_xticks(range(-180, 181, 45))
    legend_above(axes, entries, handle_length=1.4)
    return figure


def _regions(axes: Axes, task: Task, steps: Transitions, seen: View) -> list[Artist]:
    """Shade where the system is unsafe or in a hazard, and give the entries of the legend."""
    from matplotlib.patches import Patch

    (left, right), (bottom, top) = seen.limits
    up, across = torch.meshgrid(
        torch.linspace(bottom, top, GRID[1]).double(), torch.linspace(left, right, GRID[0]).double(), indexing="ij"
    )
    x = seen.lift(torch.stack([across.ravel(), up.ravel()], dim=1))
    u = steps.u.median(0).values.expand(len(x), -1)
    try:
        cost, unsafe = task.safety(x, u).sum(-1), task.violation(x, u).any(-1)
    except UserError:
        return []  # the safety cost is measured: where it lies nobody knows
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


def _states(axes: Axes, steps: Transitions, seen: View) -> list[Artist]:
    """Draw the states, the later over the earlier and the unsafe ones over all, and give the legend's entries."""
    from matplotlib.lines import Line2D

    points, unsafe = seen.points.numpy(), steps.violation.any(-1).numpy()
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
    beyond = int((~_inside(points, seen.limits)).sum())
    if beyond:
        entries.append(Line2D([], [], linestyle="", label=f"out of view ({beyond:,})"))
    bar = axes.figure.colorbar(drawn, ax=axes, label="", format="{x:,.0f}")
    thinned = f", 1 in {thinnest} drawn" if thinnest > 1 else ""
    bar.set_label(f"real sample, first to last{thinned} [step]", fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE - 0.5)
    return entries


def _inside(points: NDArray[np.float64], limits: tuple[Span, Span]) -> NDArray[np.bool_]:
    """Which points [N, 2] are in sight [N]."""
    low, high = np.array(limits).T
    inside: NDArray[np.bool_] = ((points >= low) & (points <= high)).all(1)
    return inside
