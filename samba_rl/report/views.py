"""Views of the systems: the coordinates in which their states are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from samba_rl.tasks.cart_double_pendulum import SafeCartPoleDoublePendulum
from samba_rl.tasks.fetch_reach import START, SafeFetchReach
from samba_rl.tasks.hazard import wrap
from samba_rl.tasks.pendulum import SafePendulum
from samba_rl.tasks.task import Quantity, Task
from samba_rl.types import Transitions

Span = tuple[float, float]
BINS = 10
"""Number of groups of similar states whose mean safety costs are compared to find the most telling state variables."""


@dataclass(frozen=True)
class View:
    """Coordinates in which the states of a system are drawn."""

    labels: tuple[str, ...]
    """Axis label of each coordinate, with its unit."""
    place: Callable[[Tensor], Tensor]
    """Maps states [N, nx] to coordinates [N, C]."""
    lift: Callable[[Tensor], Tensor]
    """Maps coordinates [G, C], or the first [G, 1] of a view over time, to typical states [G, nx] that have them."""
    limits: tuple[Span | None, ...]
    """Range of each coordinate that is worth drawing; None: the range of the data."""
    unsafe: Span | None = None
    """Range of the first coordinate in which the system is unsafe; None: it is not a range, or not known."""
    is_angle: bool = False
    """Whether the first coordinate is an angle on the circle [°]."""
    over_time: bool = False
    """Whether a trajectory is best seen as the first coordinate against time."""


@singledispatch
def view(task: Task, steps: Transitions) -> View:
    """Return the view of a system, in which real `steps` are to be drawn.

    The view of any system is the two state variables over which the safety cost varies most, or its only one over
    time. The paper's systems have better ones; `@view.register(OwnTask)` sets the view of a system of your own.
    """
    columns = [0] if len(task.states) == 1 else _most_telling(steps)
    typical = steps.x_next.median(0).values

    def lift(points: Tensor) -> Tensor:
        x = typical.repeat(len(points), 1)
        x[:, columns] = points.to(x)
        return x

    return View(
        labels=tuple(axis_label(task.states[column]) for column in columns),
        place=lambda x: x[:, columns],
        lift=lift,
        limits=(None,) * len(columns),
        over_time=len(columns) == 1,
    )


@view.register(SafePendulum)
def _pendulum(task: SafePendulum, steps: Transitions) -> View:
    speed = task.states[1]
    return _angle_and_speed(task, steps, 0, 1, task.hazard.unsafe, (speed.low, speed.high))


@view.register(SafeCartPoleDoublePendulum)
def _double_pendulum(task: SafeCartPoleDoublePendulum, steps: Transitions) -> View:
    return _angle_and_speed(task, steps, 4, 2, task.hazard.unsafe, None)


@view.register(SafeFetchReach)
def _fetch(task: SafeFetchReach, steps: Transitions) -> View:
    """Return the gripper's x as a share of the way to the goal, and its y.

    Goals differ between episodes, but the unsafe slab is always the middle half of the way.
    """

    def place(x: Tensor) -> Tensor:
        return torch.stack([(x[:, 0] - START[0]) / (x[:, 6] - START[0]), x[:, 1]], dim=1)

    def lift(points: Tensor) -> Tensor:
        # The slab is the same share of the way to every goal, so that any goal serves.
        x = steps.x_next[0].repeat(len(points), 1)
        x[:, 0] = START[0] + points[:, 0] * (x[:, 6] - START[0])
        return x

    return View(
        labels=("way to the goal in x\n[0: start, 1: goal]", axis_label(task.states[1])),
        place=place,
        lift=lift,
        limits=((-1.5, 2.5), None),  # a goal close to the start makes a few shares huge
        unsafe=(0.25, 0.75),
        over_time=True,
    )


def _angle_and_speed(task: Task, steps: Transitions, angle: int, speed: int, unsafe: Span, speeds: Span | None) -> View:
    """Return an angle on the circle [°] and its speed, from these columns of the state."""
    typical = steps.x_next.median(0).values

    def place(x: Tensor) -> Tensor:
        return torch.stack([wrap(x[:, angle]).rad2deg(), x[:, speed]], dim=1)

    def lift(points: Tensor) -> Tensor:
        x = typical.repeat(len(points), 1)
        x[:, angle], x[:, speed] = points[:, 0].deg2rad(), points[:, 1]
        return x

    return View(
        labels=(axis_label(task.states[angle], "°"), axis_label(task.states[speed])),
        place=place,
        lift=lift,
        limits=((-180.0, 180.0), speeds),
        unsafe=(math.degrees(unsafe[0]), math.degrees(unsafe[1])),
        is_angle=True,
    )


def axis_label(quantity: Quantity, unit: str | None = None) -> str:
    """Return the name of a quantity with its unit, or with another `unit` in which it is drawn."""
    unit = quantity.unit if unit is None else unit
    return f"{quantity.name} [{unit}]" if unit else quantity.name


def _most_telling(steps: Transitions) -> list[int]:
    """Return the two state variables over which the safety cost varies most, or the first two if it does not vary.

    The measure of a variable is the variance of the mean safety cost between `BINS` groups of states, sorted by it.
    """
    cost = steps.safety.sum(-1)
    groups = torch.arange(len(cost)) * BINS // len(cost)
    count = torch.bincount(groups, minlength=BINS).to(cost)

    def variation(column: Tensor) -> float:
        if column.min() == column.max():
            return -1.0  # a constant says nothing, and would be drawn as a line
        means = torch.zeros(BINS).to(cost).index_add(0, groups, cost[column.argsort(stable=True)]) / count.clamp(min=1)
        return float((count * (means - cost.mean()).square()).sum())

    by_variation = sorted(range(steps.x_next.shape[1]), key=lambda i: -variation(steps.x_next[:, i]))
    return sorted(by_variation[:2])
