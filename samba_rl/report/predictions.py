"""Figure of a model's predictions: trajectories that it imagines beside the true one, under the same actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from samba_rl.agents.first import FirstSettings, first_policy
from samba_rl.errors import UserError
from samba_rl.models.world import ModelWorld
from samba_rl.report.models import fitted, model_sizes, random_steps
from samba_rl.report.style import FONT_SIZE, SKY, new_figure, tidy
from samba_rl.report.views import axis_label
from samba_rl.tasks.task import Task
from samba_rl.tasks.world import World

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = {
    "safe-pendulum": (0, 1),
    "safe-cart-pole-double-pendulum": (0, 4, 5),
    "safe-fetch-reach": (0, 1, 2),
}
"""Columns of the state that are drawn, by system; the predicted ones for others."""
STEPS = 100
"""Number of steps of a trajectory."""
TRACES = 8
"""Number of trajectories drawn from each model."""


@dataclass(frozen=True)
class Imagined:
    """Trajectories that a model imagines."""

    samples: int
    """Number of real samples that the model was fitted to."""
    x: Tensor
    """States [K, T + 1, nx]."""


def traces(
    task: Task, samples: Sequence[int] | None = None, seed: int = 0, *, steps: int = STEPS, count: int = TRACES
) -> tuple[Tensor, list[Imagined]]:
    """Return the true trajectory [T + 1, nx] under random actions, and what each model imagines for the same actions.

    An imagined trajectory starts in the true initial state and is never corrected afterwards.
    """
    sizes = model_sizes(task, samples)
    if min(sizes) < 2 or steps < 1 or count < 1:
        raise UserError(f"models of {sizes} samples, {count} traces of {steps} steps; at least 2, 1 and 1 are needed")
    generator = torch.Generator().manual_seed(seed)
    training = random_steps(task, max(sizes), generator)
    policy = first_policy(task, FirstSettings(how="uniform"), 1, generator)
    actions = torch.stack([policy(training.x[:1], generator)[0] for _ in range(steps)])
    real = task.world(0)
    try:
        truth = _follow(real, actions, 1, generator, None)
    finally:
        real.close()
    found = []
    for size in sizes:
        world = ModelWorld(fitted(task, training, size))
        found.append(Imagined(size, _follow(world, actions, count, generator, truth[:, 0])))
    return truth[0], found


@torch.no_grad()
def _follow(world: World, actions: Tensor, n: int, generator: Generator, start: Tensor | None) -> Tensor:
    """Return the states [n, T + 1, nx] of n episodes from one start [1, nx] (None: the task's) under actions [T, nu].

    The episodes continue after termination, because only the motion matters here.
    """
    x = world.reset(n, generator, x=None if start is None else start.repeat(n, 1))
    states = [x]
    for u in actions:
        x = world.step(x, u.repeat(n, 1)).x
        states.append(x)
    return torch.stack(states, dim=1)


def predictions(
    task: Task, samples: Sequence[int] | None = None, seed: int = 0, *, steps: int = STEPS, count: int = TRACES
) -> Figure:
    """Draw a panel for each state variable (rows) and each model (columns), with the true trajectory in black."""
    from matplotlib.lines import Line2D

    truth, columns = traces(task, samples, seed, steps=steps, count=count)
    shown = SHOWN.get(task.name, task.predicted)
    figure = new_figure(1.55 * len(shown) + 1.1, f"{task.title}: predictions under random actions")
    grid = figure.subplots(len(shown), len(columns), sharex=True, sharey="row", squeeze=False)
    for row, column in zip(grid, shown, strict=True):
        for axes, imagined in zip(row, columns, strict=True):
            _panel(axes, task, truth[:, column], imagined.x[:, :, column], column)
        unit = "°" if task.states[column].unit == "rad" else None
        row[0].set_ylabel(axis_label(task.states[column], unit), fontsize=FONT_SIZE)
        row[0].set_ylim(*_limits(_shown(task, truth[:, column], column), task, column, columns))
    for axes, imagined in zip(grid[0], columns, strict=True):
        axes.set_title(f"{imagined.samples} samples", fontsize=FONT_SIZE)
    for axes in grid[-1]:
        axes.set_xlabel("time [s]", fontsize=FONT_SIZE)
        axes.set_xlim(0, steps * task.dt)
    entries = [
        Line2D([], [], color="black", linewidth=2.0, label="true system"),
        Line2D([], [], color=SKY, linestyle="--", linewidth=0.9, label=f"imagined by the model ({count} draws)"),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=2, frameon=False, fontsize=FONT_SIZE - 0.5)
    figure.align_ylabels(list(grid[:, 0]))
    return figure


def _panel(axes: Axes, task: Task, truth: Tensor, imagined: Tensor, column: int) -> None:
    tidy(axes)
    axes.grid(linewidth=0.5, color="0.9")
    time = torch.arange(len(truth)) * task.dt
    # The truth is drawn first, or it would hide the trajectories of a good model.
    axes.plot(time, _shown(task, truth, column), color="black", linewidth=2.0)
    for trace in _shown(task, imagined, column):
        axes.plot(time, trace, color=SKY, linestyle="--", linewidth=0.9)
    axes.tick_params(labelsize=FONT_SIZE - 1.5)


def _shown(task: Task, values: Tensor, column: int) -> Tensor:
    """Return values of a column of the state in the unit in which they are drawn."""
    return values.rad2deg() if task.states[column].unit == "rad" else values


def _limits(truth: Tensor, task: Task, column: int, columns: Sequence[Imagined]) -> tuple[float, float]:
    """Return the range of a row's axis; a diverging model must not flatten the true trajectory."""
    everything = torch.cat([_shown(task, each.x[:, :, column], column).flatten() for each in columns])
    low, high = float(truth.min()), float(truth.max())
    span = (high - low) or 1.0
    low, high = max(float(everything.min()), low - span), min(float(everything.max()), high + span)
    low, high = min(low, float(truth.min())), max(high, float(truth.max()))
    room = 0.05 * (high - low)
    return low - room, high + room
