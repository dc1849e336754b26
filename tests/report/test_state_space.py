"""The figure of the visited states."""

import math
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from numpy.testing import assert_allclose

from samba_rl import SafeCartPoleDoublePendulum, SafeFetchReach, SafePendulum
from samba_rl.report.state_space import GRID, state_space
from samba_rl.tasks.fetch_reach import START
from samba_rl.tasks.gym.task import GymTask
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions
from tests.report.panels import legend
from tests.report.runs import data_of
from tests.tasks.own_envs import Drift, danger

WAY = "way to the goal in x [0: start, 1: goal]"


def steps_to(task: Task, x: list[list[float]]) -> Transitions:
    """Make an episode that reaches these states."""
    reached = torch.tensor(x, dtype=torch.float64)
    n = len(reached)
    u = torch.zeros(n, len(task.actions), dtype=torch.float64)
    return Transitions(
        x=reached,
        u=u,
        x_next=reached,
        cost=torch.zeros(n, dtype=torch.float64),
        safety=task.safety(reached, u),
        violation=task.violation(reached, u),
        terminated=torch.zeros(n, dtype=torch.bool),
        episode=torch.zeros(n, dtype=torch.int64),
        step=torch.arange(n),
    )


def drawn(task: Task, steps: Transitions) -> tuple[Axes, Any, Any]:
    """Return the panel, its safe states and its unsafe states."""
    axes = state_space(task, steps, "title").axes[0]
    states, crosses = axes.collections
    return axes, states, crosses


def colours_at(axes: Axes, x: float, y: float) -> list[int]:
    """Return the shade [red, green, blue] at a place over a white background, from 0 to 255."""
    (image,) = axes.images
    left, right, bottom, top = image.get_extent()
    row, column = (
        round((y - bottom) / (top - bottom) * (GRID[1] - 1)),
        round((x - left) / (right - left) * (GRID[0] - 1)),
    )
    rgba = np.asarray(image.get_array())[row, column]
    mixed: list[int] = (255 * (rgba[:3] * rgba[3] + 1 - rgba[3])).round().astype(int).tolist()
    return mixed


def test_pendulum_shows_wrapped_angles_over_its_hazard() -> None:
    task = SafePendulum()
    # The second has made a full turn and is in the unsafe region; the third is in the hazard.
    steps = steps_to(task, [[math.pi / 2, 1.0], [2 * math.pi + math.radians(25), -2.0], [math.radians(-10), 8.0]])
    axes, states, crosses = drawn(task, steps)
    assert axes.get_xlabel() == "θ [°]" and axes.get_ylabel() == "θ̇ [rad/s]"
    assert_allclose(states.get_offsets(), [[90, 1], [-10, 8]])
    assert_allclose(crosses.get_offsets(), [[25, -2]])
    assert_allclose(states.get_array(), [1, 3])
    assert_allclose(crosses.get_array(), [2])
    assert states.get_cmap().name == crosses.get_cmap().name == "viridis"
    assert len(states.get_paths()[0].vertices) != len(crosses.get_paths()[0].vertices)
    assert legend(axes) == ["hazard", "unsafe", "state reached (2)", "unsafe step (1)"]
    white, orange, red = colours_at(axes, -120, 0), colours_at(axes, -10, 0), colours_at(axes, 25, 0)
    assert white == [255, 255, 255]
    assert orange[0] > 240 > orange[1] > 180 and orange[1] > orange[2] + 30 and red[0] > 220 and red[1] < 150
    assert colours_at(axes, 75 + 3, 5) == white != colours_at(axes, 75 - 3, 5)
    assert axes.figure is not None and axes.figure.axes[1].get_ylabel().endswith("[step]")


def test_double_pendulum_shows_the_inner_link() -> None:
    task = SafeCartPoleDoublePendulum()
    steps = steps_to(task, [[0.1, 0.2, 3.0, 4.0, math.pi, 1.0], [0.1, 0.2, -5.0, 4.0, -1.0, 2.0]])
    axes, states, _ = drawn(task, steps)
    assert axes.get_xlabel() == "θ₁ [°]" and axes.get_ylabel() == "θ̇₁ [rad/s]"
    assert_allclose(states.get_offsets(), [[-180.0, 3.0], [math.degrees(-1), -5.0]])
    assert colours_at(axes, 25, 0)[1] < 150 and legend(axes)[:2] == ["hazard", "unsafe"]


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_fetch_shows_the_way_to_the_goal(sign: float) -> None:
    task = SafeFetchReach()
    goal = [START[0] + 0.1 * sign, 0.8, 0.5]
    shares = [0.1, 0.5, 0.9, 7.0]
    steps = steps_to(task, [[START[0] + share * 0.1 * sign, *START[1:], *goal] for share in shares])
    axes, states, crosses = drawn(task, steps)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step of the episode", WAY)
    assert_allclose(states.get_offsets(), [[1, 0.1], [3, 0.9], [4, 7.0]])
    assert_allclose(crosses.get_offsets(), [[2, 0.5]])
    white = [255, 255, 255]
    assert [colours_at(axes, 2, y) == white for y in (0.2, 0.3, 0.7, 0.8)] == [True, False, False, True]
    # A state far beyond the goal, which would shrink the slab to a line, is out of view but counted.
    assert legend(axes) == ["unsafe", "state reached (3)", "unsafe step (1)", "out of view (1)"]
    low, high = axes.get_ylim()
    assert low <= -0.5 and 1.5 < high < 7


class Three(gymnasium.Env[Any, Any]):
    """A system with three state variables of which only the spaces matter."""

    observation_space = gymnasium.spaces.Box(-5, 5, (3,), dtype=np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), dtype=np.float32)


class One(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-5, 5, (1,), dtype=np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), dtype=np.float32)


def test_other_systems_show_the_dimensions_over_which_the_safety_cost_varies() -> None:
    def in_a_corner(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return (x[:, 1] + x[:, 2] - 1).clamp(0, 1)

    task = GymTask(Three, safety=in_a_corner, violation=lambda x, u: in_a_corner(x, u) > 0.5, horizon=5)
    generator = torch.Generator().manual_seed(0)
    x = (2 * torch.rand(200, 3, generator=generator) - 1).tolist()
    steps = steps_to(task, x)
    axes, states, crosses = drawn(task, steps)
    assert (axes.get_xlabel(), axes.get_ylabel()) == (task.states[1].name, task.states[2].name)
    assert len(states.get_offsets()) + len(crosses.get_offsets()) == 200
    assert_allclose(crosses.get_offsets(), steps.x_next[steps.violation[:, 0]][:, 1:])
    assert colours_at(axes, 0, 0) == [255, 255, 255]
    hazard, unsafe = colours_at(axes, 0.6, 0.6), colours_at(axes, 0.9, 0.9)
    assert hazard[1] > 180 > unsafe[1]


def test_without_safety_costs_the_first_dimensions_that_change_are_shown() -> None:
    task = GymTask(Three, safety=lambda x, u: 0 * x[:, 0], horizon=5)
    steps = steps_to(task, [[1.0, 2.0, 3.0], [1.0, 4.0, 5.0]])
    axes, states, _ = drawn(task, steps)
    assert_allclose(states.get_offsets(), [[2, 3], [4, 5]])
    assert legend(axes) == ["state reached (2)"]
    still = steps_to(task, [[1.0, 2.0, 3.0]])
    assert_allclose(drawn(task, still)[1].get_offsets(), [[1, 2]])


def test_one_dimension_is_shown_against_time() -> None:
    task = GymTask(One, safety=lambda x, u: (x[:, 0] - 1).clamp(0, 1), horizon=5)
    axes, states, crosses = drawn(task, steps_to(task, [[0.5], [1.5], [-1.0]]))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step of the episode", task.states[0].name)
    assert_allclose(states.get_offsets(), [[1.0, 0.5], [3.0, -1.0]])
    assert_allclose(crosses.get_offsets(), [[2, 1.5]])


def test_a_measured_safety_cost_has_no_regions() -> None:
    task = GymTask(Drift, horizon=20)
    steps = data_of(task).transitions
    axes, states, crosses = drawn(task, steps)
    assert not axes.images and len(states.get_offsets()) + len(crosses.get_offsets()) == len(steps)
    assert len(crosses.get_offsets()) == int(steps.violation.sum()) > 0
    known = drawn(GymTask(Drift, safety=danger, horizon=20), steps)[0]
    assert known.images and legend(known)[0] == "unsafe"


def test_units_of_a_users_quantities_are_shown() -> None:
    task = GymTask(Drift, safety=danger, horizon=20)
    position, speed = task.states
    named = (replace(position, name="place", unit="m"), replace(speed, name="speed in $", unit="m/s"))
    object.__setattr__(task, "states", named)
    axes = drawn(task, data_of(task).transitions)[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("place [m]", r"speed in \$ [m/s]")


def test_the_legend_fits_with_large_numbers() -> None:
    task = SafeFetchReach()
    goal = [START[0] + 0.1, 0.8, 0.5]
    few = steps_to(task, [[START[0] + share * 0.1, *START[1:], *goal] for share in [0.1] * 9 + [0.5] * 2 + [7.0]])
    many = Transitions(**{field: getattr(few, field).repeat_interleave(1000, 0) for field in vars(few)})
    figure = state_space(task, many, "title")
    figure.draw_without_rendering()
    found = figure.axes[0].get_legend()
    assert found is not None and legend(figure.axes[0])[1:] == [
        "state reached (10,000)",
        "unsafe step (2,000)",
        "out of view (1,000)",
    ]
    assert found.get_window_extent().x1 <= figure.bbox.x1
