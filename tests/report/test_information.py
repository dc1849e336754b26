"""The figure of ζ over the state space, and the models behind it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle
from numpy.testing import assert_allclose

from samba_rl import SafePendulum, UserError, make_task
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.report.information import information, measure, ranks
from samba_rl.report.models import fitted, random_steps
from samba_rl.tasks.gym.task import GymTask
from tests.report.panels import figure_legend
from tests.report.results import DOUBLE
from tests.tasks.own_envs import Drift, danger
from tests.threads import one_thread

SIZES = (6, 12)


def test_all_models_are_measured_at_the_same_test_points() -> None:
    with one_thread():
        seen, (small, large) = measure(SafePendulum(), SIZES, test_points=200)
        assert (small.samples, large.samples) == SIZES
        assert small.points.shape == large.points.shape == (200, 2) and torch.equal(small.points, large.points)
        assert torch.equal(small.training, large.training[:6]) and len(large.training) == 12
        # By hand: first the data and then the test points come from one generator.
        generator = torch.Generator().manual_seed(0)
        data, test = (random_steps(SafePendulum(), n, generator) for n in (12, 200))
        model = fitted(SafePendulum(), data, 12)
        _, expected = LeaveOneOut().predict(model, SafePendulum().model_inputs(test.x, test.u))
    assert_allclose(large.values["loo"], expected, rtol=1e-9)
    assert_allclose(large.training, seen.place(data.x))
    assert all(value.shape == (200,) and value.isfinite().all() for value in large.values.values())


def test_a_panel_for_each_zeta_and_model() -> None:
    with one_thread():
        figure = information(SafePendulum(), SIZES, test_points=100)
    panels, bars = figure.axes[:6], figure.axes[6:]
    assert len(bars) == 3  # one for each row
    for axes, size in zip(panels, SIZES * 3, strict=True):
        (box,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
        assert_allclose([box.get_x(), box.get_x() + box.get_width()], [20, 30])
        (training,) = axes.get_lines()
        assert np.size(training.get_xdata()) == size
        assert axes.get_xlim() == (-180, 180)
    assert panels[0].get_title().startswith("6 samples\n") and panels[0].get_title().endswith("nats")
    assert [panels[i].get_ylabel() for i in (0, 2, 4)] == ["θ̇ [rad/s]"] * 3
    assert [axes.get_xlabel() for axes in panels[4:]] == ["θ [°]"] * 2
    assert "mean of the 100 test points by cell" in figure_legend(figure)


def test_a_system_of_one_s_own_has_no_box() -> None:
    with one_thread():
        figure = information(GymTask(Drift, safety=danger, horizon=20), SIZES[:1], test_points=50)
    assert not any(isinstance(patch, Rectangle) for patch in figure.axes[0].patches)
    assert "unsafe region" not in figure_legend(figure)


def test_numbers_that_are_too_small_are_refused() -> None:
    with pytest.raises(UserError, match=r"models of \(1, 5\) samples and 10 test points"):
        measure(SafePendulum(), (1, 5), test_points=10)


def test_ranks() -> None:
    assert_allclose(ranks(torch.tensor([3.0, 1.0, 2.0, 2.0], dtype=torch.float64)), [100, 0, 100 / 3, 100 / 3])


def test_random_steps_are_as_many_as_asked_for() -> None:
    steps = random_steps(SafePendulum(), 47, torch.Generator().manual_seed(0))
    assert len(steps) == 47 and float(steps.u.abs().max()) <= 2
    assert_allclose(SafePendulum().step(steps.x, steps.u), steps.x_next)
    held = random_steps(make_task(DOUBLE), 30, torch.Generator().manual_seed(0), hold=5)
    assert 6 <= len(torch.unique(held.u)) <= 7
