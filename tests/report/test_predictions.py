"""The figure of a model's predictions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.testing import assert_allclose

from samba_rl import SafePendulum
from samba_rl.report.predictions import predictions, traces
from tests.threads import one_thread

SIZES = (6, 12)


def test_models_imagine_from_the_true_start() -> None:
    with one_thread():
        truth, imagined = traces(SafePendulum(), (4, 60), steps=8, count=5)
    assert truth.shape == (9, 2) and [each.x.shape for each in imagined] == [(5, 9, 2)] * 2
    for each in imagined:
        assert torch.equal(each.x[:, 0], truth[0].expand(5, -1))
    error = [float((each.x - truth).square().mean()) for each in imagined]
    assert error[1] < error[0]


def test_a_panel_for_each_state_and_model() -> None:
    with one_thread():
        figure = predictions(SafePendulum(), SIZES, steps=5, count=3)
        truth, imagined = traces(SafePendulum(), SIZES, steps=5, count=3)
    assert len(figure.axes) == 4
    angle = figure.axes[1]
    true, *others = angle.get_lines()
    assert true.get_color() == "black" and len(others) == 3
    assert_allclose(np.asarray(true.get_xdata()), [0, 0.05, 0.1, 0.15, 0.2, 0.25])
    assert_allclose(np.asarray(true.get_ydata()), np.degrees(truth[:, 0].numpy()))
    assert_allclose(np.asarray(others[2].get_ydata()), np.degrees(imagined[1].x[2, :, 0].numpy()))
    assert [axes.get_ylabel() for axes in figure.axes] == ["θ [°]", "", "θ̇ [rad/s]", ""]
