"""How much each part of the state space would teach a model: ζ_LOO, ζ_bootstrap and entropy, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Generator, Tensor

from samba_rl.agents.first import first_policy
from samba_rl.errors import UserError
from samba_rl.models.gp import GPDynamics
from samba_rl.models.zeta import entropy, zeta_bootstrap, zeta_loo
from samba_rl.report.style import FONT_SIZE, INK, new_figure
from samba_rl.tasks.cart_double_pendulum import SafeCartPoleDoublePendulum
from samba_rl.tasks.fetch_reach import START, SafeFetchReach
from samba_rl.tasks.hazard import wrap
from samba_rl.tasks.pendulum import SafePendulum
from samba_rl.tasks.render.drawing import UNSAFE
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

METRICS: dict[str, tuple[str, Callable[[GPDynamics, Tensor], Tensor]]] = {
    "loo": ("$ζ_\\mathrm{LOO}$", zeta_loo),
    "bootstrap": ("$ζ_\\mathrm{bootstrap}$", zeta_bootstrap),
    "entropy": ("entropy", entropy),
}
"""What is measured of a query: its label, and the function."""
SAMPLES = {
    "safe-pendulum": (20, 40, 100),
    "safe-cart-pole-double-pendulum": (100, 200, 500),
    "safe-fetch-reach": (20, 40, 100),
}
"""Of the models, by system."""
HOLD = {"safe-cart-pole-double-pendulum": 5}
"""For how many steps a random action is kept, where not for one: forces that change at every step leave the links
hanging, far from the unsafe region."""
TEST_POINTS = 20_000
CHUNK = 2000
"""Queries at a time: the covariances of all of them with 500 points, six outputs over, would take half a gigabyte."""
CELLS = 46
"""Cells across a panel."""
UNSAFE_RED = "#{:02x}{:02x}{:02x}".format(*UNSAFE)


@dataclass(frozen=True)
class Plane:
    """Two numbers of a state, and where on the first of them a system is unsafe."""

    labels: tuple[str, str]
    """Of the axes, across and up, with units."""
    place: Callable[[Tensor], Tensor]
    """Where states [N, nx] lie [N, 2]."""
    unsafe: tuple[float, float]
    """The ends of the unsafe region, across."""
    across: tuple[float, float] | None = None
    """What is shown; None: all."""
    ticks: tuple[float, ...] = ()
    """Of the axis across; none given: wherever they fall."""


@dataclass(frozen=True)
class Measured:
    """What a model of `samples` real samples says of the test points."""

    samples: int
    training: Tensor
    """Where the model's own samples lie on the plane [n, 2]."""
    points: Tensor
    """Where the test points lie [N, 2]."""
    values: dict[str, Tensor]
    """Of each metric there [N]."""


@singledispatch
def plane(task: Task) -> Plane:
    """The plane on which a system's states are seen; a user's own system can have one by `@plane.register`."""
    raise UserError(f"{task.name}: this figure is for the systems {', '.join(SAMPLES)}")


@plane.register
def _pendulum(task: SafePendulum) -> Plane:
    return _angle_and_speed(task, 0, 1, task.hazard.unsafe)


@plane.register
def _double_pendulum(task: SafeCartPoleDoublePendulum) -> Plane:
    return _angle_and_speed(task, 4, 2, task.hazard.unsafe)


@plane.register
def _fetch(_: SafeFetchReach) -> Plane:
    """How much of the way to the goal along x is done: goals differ, the slab is always the middle half of the way."""

    def place(x: Tensor) -> Tensor:
        return torch.stack([(x[:, 0] - START[0]) / (x[:, 6] - START[0]), x[:, 1]], dim=1)

    # A goal close by makes a few shares huge.
    return Plane(("way to the goal along x\n[share]", "gripper y [m]"), place, (0.25, 0.75), (-1.5, 2.5))


def _angle_and_speed(task: Task, angle: int, speed: int, unsafe: tuple[float, float]) -> Plane:
    def place(x: Tensor) -> Tensor:
        return torch.stack([wrap(x[:, angle]).rad2deg(), x[:, speed]], dim=1)

    low, high = (math.degrees(end) for end in unsafe)
    labels = (f"{task.states[angle].name} [°]", f"{task.states[speed].name} [{task.states[speed].unit}]")
    return Plane(labels, place, (low, high), (-180.0, 180.0), (-180, -90, 0, 90, 180))


def random_steps(task: Task, count: int, generator: Generator, hold: int = 1) -> Transitions:
    """The first `count` steps of random episodes on the true system, each action kept for `hold` steps."""
    world, parts, found = task.world(0), [], 0
    try:
        while found < count:
            episodes = -(-(count - found) // task.horizon)
            policy = first_policy(task, "held" if hold > 1 else "uniform", episodes, hold, generator)
            parts.append(rollout(world, policy, episodes, generator=generator).transitions())
            found += len(parts[-1])
    finally:
        world.close()
    return Transitions(**{name: torch.cat([getattr(part, name) for part in parts])[:count] for name in vars(parts[0])})


def fitted(task: Task, steps: Transitions, samples: int) -> GPDynamics:
    """A model of the first `samples` of the steps."""
    model = GPDynamics(task)
    model.fit(Transitions(**{name: value[:samples] for name, value in vars(steps).items()}))
    return model


def measure(
    task: Task, samples: Sequence[int] | None = None, test_points: int = TEST_POINTS, seed: int = 0
) -> list[Measured]:
    """What models of so many samples each say of the same test points; the smaller have a part of the largest's data.

    Training and test points are of different random episodes.
    """
    sizes = tuple(samples or SAMPLES.get(task.name, (20, 40, 100)))
    if min(sizes) < 2 or test_points < 1:
        raise UserError(f"models of {sizes} samples, {test_points} test points; at least 2 and 1 are needed")
    seen = plane(task)
    generator = torch.Generator().manual_seed(seed)
    hold = HOLD.get(task.name, 1)
    training = random_steps(task, max(sizes), generator, hold)
    test = random_steps(task, test_points, generator, hold)
    queries, points = task.model_inputs(test.x, test.u), seen.place(test.x)
    found = []
    for size in sizes:
        model = fitted(task, training, size)
        values = {
            name: torch.cat([metric(model, part) for part in torch.split(queries, CHUNK)])
            for name, (_, metric) in METRICS.items()
        }
        found.append(Measured(size, seen.place(training.x[:size]), points, values))
    return found


def information(
    task: Task, samples: Sequence[int] | None = None, test_points: int = TEST_POINTS, seed: int = 0
) -> Figure:
    """A panel for each metric (rows) and each model (columns), with the unsafe region in a red box."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    columns, seen = measure(task, samples, test_points, seed), plane(task)
    figure = new_figure(7.6, f"{task.title}: what would teach the model most")
    grid = figure.subplots(len(METRICS), len(columns), sharex=True, sharey=True, squeeze=False)
    for k, (row, (name, (label, _))) in enumerate(zip(grid, METRICS.items(), strict=True)):
        for axes, measured in zip(row, columns, strict=True):
            drawn = _panel(axes, seen, measured, name)
            samples_in = f"{measured.samples} samples\n" if k == 0 else ""
            axes.set_title(samples_in + _range(measured.values[name]), fontsize=FONT_SIZE - 1)
        bar = figure.colorbar(drawn, ax=list(row), pad=0.015, aspect=16, ticks=[0, 25, 50, 75, 100])
        bar.set_label(f"{label}\n[% of test points below]", fontsize=FONT_SIZE)
        bar.ax.tick_params(labelsize=FONT_SIZE - 1.5)
        row[0].set_ylabel(seen.labels[1], fontsize=FONT_SIZE)
    for axes in grid[-1]:
        axes.set_xlabel(seen.labels[0], fontsize=FONT_SIZE)
    entries = [
        Line2D([], [], linestyle="", marker="o", markersize=4, **_DOT, label="the model's samples"),
        Patch(facecolor="none", edgecolor=UNSAFE_RED, linewidth=1.6, label="unsafe region"),
        Line2D([], [], linestyle="", marker="h", markersize=6, color="#21918c", label=_points_in_words(columns)),
    ]
    figure.legend(
        handles=entries, loc="outside lower center", ncols=3, frameon=False, fontsize=FONT_SIZE - 0.5, handlelength=1.3
    )
    return figure


_DOT: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": INK, "markeredgewidth": 0.6}


def _points_in_words(columns: Sequence[Measured]) -> str:
    return f"mean of the {len(columns[0].points):,} test points by cell"


def _range(values: Tensor) -> str:
    """Where nine tenths of values [N] lie: their colours show the order alone."""
    low, high = np.quantile(values.numpy(), [0.05, 0.95]).tolist()
    return f"{_number(low)} to {_number(high)} nats"


def _number(value: float) -> str:
    """With two digits, or as a power of ten where they would not show."""
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.2g}".replace("-", "\N{MINUS SIGN}")
    power = math.floor(math.log10(abs(value)))
    return f"${value / 10**power:.0f}·10^{{{power}}}$"


def ranks(values: Tensor) -> Tensor:
    """The share of the values [N] below each of them, in per cent [N].

    ζ spreads over powers of ten, and by others for each model: on one scale most panels would have a single colour.
    """
    ordered = values.sort().values
    return 100 * torch.searchsorted(ordered, values).to(values) / max(len(values) - 1, 1)


def _panel(axes: Axes, seen: Plane, measured: Measured, name: str) -> PolyCollection:
    """Draw the mean rank of a metric by cells, the model's samples and the unsafe region."""
    points, values = measured.points.numpy(), ranks(measured.values[name]).numpy()
    left, right = seen.across or (float(points[:, 0].min()), float(points[:, 0].max()))
    bottom, top = float(points[:, 1].min()), float(points[:, 1].max())
    inside = (points[:, 0] >= left) & (points[:, 0] <= right)
    drawn = axes.hexbin(
        points[inside, 0],
        points[inside, 1],
        C=values[inside],
        reduce_C_function=np.mean,
        gridsize=(CELLS, round(CELLS / 2)),
        extent=(left, right, bottom, top),
        cmap="viridis",
        vmin=0,
        vmax=100,
        linewidths=0.1,
        rasterized=True,
    )
    # Many samples are drawn small, so that what is measured stays in sight.
    size = float(np.clip(24 / math.sqrt(measured.samples), 1.3, 3.6))
    axes.plot(*measured.training.numpy().T, linestyle="", marker="o", markersize=size, clip_on=True, **_DOT)
    room = 0.04 * (top - bottom)
    low, high = seen.unsafe
    axes.add_patch(_box(low, bottom - 0.4 * room, high - low, top - bottom + 0.8 * room))
    axes.set_xlim(left, right)
    axes.set_ylim(bottom - room, top + room)
    if seen.ticks:
        axes.set_xticks(seen.ticks)
    axes.tick_params(labelsize=FONT_SIZE - 1.5)
    axes.set_facecolor("0.93")
    return drawn


def _box(x: float, y: float, width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, fill=False, edgecolor=UNSAFE_RED, linewidth=1.6, zorder=4)
