"""How far a model can be followed: trajectories that it imagines against the true one, under the same actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from samba_rl.agents.first import first_policy
from samba_rl.errors import UserError
from samba_rl.models.world import ModelWorld
from samba_rl.report.information import SAMPLES, fitted, random_steps
from samba_rl.report.style import FONT_SIZE, SKY, new_figure, tidy
from samba_rl.tasks.task import Task, World

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = {
    "safe-pendulum": (0, 1),
    "safe-cart-pole-double-pendulum": (0, 4, 5),
    "safe-fetch-reach": (0, 1, 2),
}
"""The columns of the state that are drawn, by system."""
STEPS = 100
TRACES = 8
"""Sampled of each model."""


@dataclass(frozen=True)
class Imagined:
    """Trajectories that a model of `samples` real samples imagines."""

    samples: int
    x: Tensor
    """States [K, T + 1, nx]."""


def traces(
    task: Task, samples: Sequence[int] | None = None, steps: int = STEPS, count: int = TRACES, seed: int = 0
) -> tuple[Tensor, list[Imagined]]:
    """The true trajectory [T + 1, nx] under random actions, and what each model makes of the same ones.

    Every imagined trajectory begins where the true one did and never sees it again.
    """
    sizes = tuple(samples or SAMPLES.get(task.name, (20, 40, 100)))
    if min(sizes) < 2 or steps < 1 or count < 1:
        raise UserError(f"models of {sizes} samples, {count} traces of {steps} steps; at least 2, 1 and 1 are needed")
    generator = torch.Generator().manual_seed(seed)
    training = random_steps(task, max(sizes), generator)
    policy = first_policy(task, "uniform", 1, 1, generator)
    actions = torch.stack([policy(training.x[:1], generator)[0] for _ in range(steps)])
    real = task.world(0)
    try:
        truth = _followed(real, actions, 1, generator, None)
    finally:
        real.close()
    found = []
    for size in sizes:
        world = ModelWorld(fitted(task, training, size))
        found.append(Imagined(size, _followed(world, actions, count, generator, truth[:, 0])))
    return truth[0], found


@torch.no_grad()
def _followed(world: World, actions: Tensor, n: int, generator: Generator, start: Tensor | None) -> Tensor:
    """The states [n, T + 1, nx] of n episodes from the same start [1, nx] (None: the task's) under actions [T, nu].

    They go on after the task has been done: what is looked at is the motion.
    """
    x = world.reset(n, generator, x=None if start is None else start.repeat(n, 1))
    states = [x]
    for u in actions:
        x = world.step(x, u.repeat(n, 1)).x
        states.append(x)
    return torch.stack(states, dim=1)


def predictions(
    task: Task, samples: Sequence[int] | None = None, steps: int = STEPS, count: int = TRACES, seed: int = 0
) -> Figure:
    """A panel for each shown state (rows) and each model (columns): what it imagines, and the truth in black."""
    from matplotlib.lines import Line2D

    truth, columns = traces(task, samples, steps, count, seed)
    shown = SHOWN.get(task.name, task.predicted)
    figure = new_figure(1.55 * len(shown) + 1.1, f"{task.title}: predictions under random actions")
    grid = figure.subplots(len(shown), len(columns), sharex=True, sharey="row", squeeze=False)
    for row, column in zip(grid, shown, strict=True):
        for axes, imagined in zip(row, columns, strict=True):
            _panel(axes, task, truth[:, column], imagined.x[:, :, column], column)
        row[0].set_ylabel(_label(task, column), fontsize=FONT_SIZE)
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
    # The truth below: a good model's trajectories would vanish under it.
    axes.plot(time, _shown(task, truth, column), color="black", linewidth=2.0)
    for trace in _shown(task, imagined, column):
        axes.plot(time, trace, color=SKY, linestyle="--", linewidth=0.9)
    axes.tick_params(labelsize=FONT_SIZE - 1.5)


def _shown(task: Task, values: Tensor, column: int) -> Tensor:
    """Values of a column of the state in the unit in which they are drawn."""
    return values.rad2deg() if task.states[column].unit == "rad" else values


def _label(task: Task, column: int) -> str:
    quantity = task.states[column]
    unit = {"rad": "°"}.get(quantity.unit, quantity.unit)
    return f"{quantity.name} [{unit}]" if unit else quantity.name


def _limits(truth: Tensor, task: Task, column: int, columns: Sequence[Imagined]) -> tuple[float, float]:
    """What is shown of a row: a model that runs away must not press the truth flat."""
    everything = torch.cat([_shown(task, each.x[:, :, column], column).flatten() for each in columns])
    low, high = float(truth.min()), float(truth.max())
    span = (high - low) or 1.0
    low, high = max(float(everything.min()), low - span), min(float(everything.max()), high + span)
    low, high = min(low, float(truth.min())), max(high, float(truth.max()))
    room = 0.05 * (high - low)
    return low - room, high + room
