"""Views of the systems."""

from __future__ import annotations

import pytest
import torch

from samba_rl import SafePendulum, make_task
from samba_rl.report.models import random_steps
from samba_rl.report.views import View, view
from samba_rl.tasks import TASKS
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions
from tests.report.results import FETCH, PENDULUM


@pytest.mark.parametrize("name", TASKS)
def test_the_unsafe_range_is_where_the_system_is_unsafe(name: str) -> None:
    task = make_task(name)
    x = task.start(400, torch.Generator().manual_seed(1))
    # Initial states are safe: spread the angle over the circle, the gripper over the way to the goal.
    if name == FETCH:
        x[:, 0] += torch.linspace(-0.2, 0.2, 400)
    else:
        x[:, 0 if name == PENDULUM else 4] = torch.linspace(-4, 4, 400)
    seen = view(task, random_steps(task, 30, torch.Generator().manual_seed(0)))
    assert seen.unsafe is not None
    low, high = seen.unsafe
    across = seen.place(x)[:, 0]
    inside = (across > low) & (across < high)
    assert 0 < inside.sum() < 400
    assert torch.equal(inside, task.violation(x)[:, 0])


@pytest.mark.parametrize("name", TASKS)
def test_lifted_points_are_at_their_places(name: str) -> None:
    task = make_task(name)
    steps = random_steps(task, 30, torch.Generator().manual_seed(0))
    seen = view(task, steps)
    first = 1 if name == FETCH else 2  # the gripper's y does not matter for safety, and is not lifted
    points = torch.tensor([[10.0, 1.0], [-0.5, 0.0], [0.5, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(seen.place(seen.lift(points))[:, :first], points[:, :first])


def test_a_system_can_have_a_view_of_its_own() -> None:
    class OwnTask(Task):
        """A task of which only the class matters here."""

    plane = View(("a", "b"), lambda x: x, lambda points: points, (None, None))

    @view.register(OwnTask)
    def own_view(task: OwnTask, steps: Transitions) -> View:
        return plane

    assert view.dispatch(OwnTask) is own_view and view.dispatch(SafePendulum) is not own_view
