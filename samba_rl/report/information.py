"""Figure of what each part of the state space would teach a model: ζ_LOO, ζ_bootstrap and entropy side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.zeta import ZETAS
from samba_rl.report.models import fitted, model_sizes, random_steps
from samba_rl.report.style import FONT_SIZE, INK, new_figure
from samba_rl.report.views import View, view
from samba_rl.tasks.render.drawing import UNSAFE
from samba_rl.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

LABELS = {"loo": "$ζ_\\mathrm{LOO}$", "bootstrap": "$ζ_\\mathrm{bootstrap}$", "entropy": "entropy"}
"""Label of each variant of ζ, in the order of the rows."""
HOLD = {"safe-cart-pole-double-pendulum": 5}
"""Number of steps for which a random action is held, by system; 1 for others. Forces that change at every step would
leave the links hanging, far from the unsafe region."""
TEST_POINTS = 20_000
CHUNK = 2000
"""Number of queries at a time, which limits the memory for their covariances with the training data."""
CELLS = 46
"""Number of cells across a panel."""
UNSAFE_RED = "#{:02x}{:02x}{:02x}".format(*UNSAFE)


@dataclass(frozen=True)
class Measured:
    """Every variant of ζ of a model at the test points."""

    samples: int
    """Number of real samples that the model was fitted to."""
    training: Tensor
    """Coordinates of the model's samples [n, 2]."""
    points: Tensor
    """Coordinates of the test points [N, 2]."""
    values: dict[str, Tensor]
    """ζ at the test points [N], by variant."""


def measure(
    task: Task, samples: Sequence[int] | None = None, seed: int = 0, *, test_points: int = TEST_POINTS
) -> tuple[View, list[Measured]]:
    """Measure models of several sizes at the same test points; return the view of the system and the measurements.

    Smaller models are fitted to the first part of the largest model's data. Training and test points come from
    different random episodes.
    """
    sizes = model_sizes(task, samples)
    if min(sizes) < 2 or test_points < 1:
        raise UserError(f"models of {sizes} samples and {test_points} test points; at least 2 and 1 are needed")
    generator = torch.Generator().manual_seed(seed)
    hold = HOLD.get(task.name, 1)
    training = random_steps(task, max(sizes), generator, hold)
    test = random_steps(task, test_points, generator, hold)
    seen = view(task, training)
    if len(seen.labels) < 2:
        raise UserError(f"{task.name} has a single coordinate; this figure needs two")
    queries, points = task.model_inputs(test.x, test.u), seen.place(test.x)
    found = []
    for size in sizes:
        model = fitted(task, training, size)
        values = {
            name: torch.cat([ZETAS[name].predict(model, part)[1] for part in torch.split(queries, CHUNK)])
            for name in LABELS
        }
        found.append(Measured(size, seen.place(training.x[:size]), points, values))
    return seen, found


def information(
    task: Task, samples: Sequence[int] | None = None, seed: int = 0, *, test_points: int = TEST_POINTS
) -> Figure:
    """Draw a panel for each variant of ζ (rows) and each model (columns), with a red box around the unsafe region."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    seen, columns = measure(task, samples, seed, test_points=test_points)
    figure = new_figure(7.6, f"{task.title}: information gain for the model")
    grid = figure.subplots(len(LABELS), len(columns), sharex=True, sharey=True, squeeze=False)
    for k, (row, (name, label)) in enumerate(zip(grid, LABELS.items(), strict=True)):
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
    cells = f"mean of the {len(columns[0].points):,} test points by cell"
    entries: list[Artist] = [
        Line2D([], [], linestyle="", marker="o", markersize=4, **_DOT, label="the model's samples"),
        Line2D([], [], linestyle="", marker="h", markersize=6, color="#21918c", label=cells),
    ]
    if seen.unsafe is not None:
        entries.insert(1, Patch(facecolor="none", edgecolor=UNSAFE_RED, linewidth=1.6, label="unsafe region"))
    figure.legend(
        handles=entries, loc="outside lower center", ncols=3, frameon=False, fontsize=FONT_SIZE - 0.5, handlelength=1.3
    )
    return figure


_DOT: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": INK, "markeredgewidth": 0.6}


def _range(values: Tensor) -> str:
    """Return the middle nine tenths of values [N] as text, because the colours show only their order."""
    low, high = np.quantile(values.numpy(), [0.05, 0.95]).tolist()
    return f"{_number(low)} to {_number(high)} nats"


def _number(value: float) -> str:
    """Return a number with two digits, or with one and a power of ten if it is very small or large."""
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.2g}".replace("-", "\N{MINUS SIGN}")
    power = math.floor(math.log10(abs(value)))
    return f"${value / 10**power:.0f}·10^{{{power}}}$"


def ranks(values: Tensor) -> Tensor:
    """Return the percentage of values [N] below each of them [N].

    ζ spans several powers of ten, and different ones for each model; on one linear scale most panels would have a
    single colour.
    """
    ordered = values.sort().values
    return 100 * torch.searchsorted(ordered, values).to(values) / max(len(values) - 1, 1)


def _panel(axes: Axes, seen: View, measured: Measured, name: str) -> PolyCollection:
    """Draw the mean rank of ζ by cells, the model's samples and the unsafe region."""
    from matplotlib.patches import Rectangle

    points, values = measured.points.numpy(), ranks(measured.values[name]).numpy()
    left, right = seen.limits[0] or (float(points[:, 0].min()), float(points[:, 0].max()))
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
    # Many samples are drawn small, so that the cells below them can be seen.
    size = float(np.clip(24 / math.sqrt(measured.samples), 1.3, 3.6))
    axes.plot(*measured.training.numpy().T, linestyle="", marker="o", markersize=size, clip_on=True, **_DOT)
    room = 0.04 * (top - bottom)
    if seen.unsafe is not None:
        low, high = seen.unsafe
        corner, width, height = (low, bottom - 0.4 * room), high - low, top - bottom + 0.8 * room
        axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=UNSAFE_RED, linewidth=1.6, zorder=4))
    axes.set_xlim(left, right)
    axes.set_ylim(bottom - room, top + room)
    if seen.is_angle:
        axes.set_xticks(range(-180, 181, 90))
    axes.tick_params(labelsize=FONT_SIZE - 1.5)
    axes.set_facecolor("0.93")
    return drawn
