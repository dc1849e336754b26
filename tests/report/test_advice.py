"""The picture of advice: the best return at each limit, the proposal, and the distance from the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from samba_rl.report.advice import advice as draw
from tests.agents.test_advice import POINTS, advice
from tests.report.panels import legend, lines, words

pytest.importorskip("matplotlib")


def test_the_best_return_rises_in_steps_at_the_limits_that_policies_pass() -> None:
    figure = draw(advice(asked=(2.0,)))
    above, below = figure.axes
    x, y = lines(above)["best return at a limit (± 1 s.d.)"]
    assert list(x[:3]) == [1, 3, 8] and list(y) == [-200, -105, -100, -100]
    assert {"no policy found", "proposed ξ = 3", "asked: ξ = 2"} <= set(legend(above))
    assert above.get_xlim() == below.get_xlim() == pytest.approx((0, 1.08 * 8))
    assert "cvar 0.9 of the hazard cost" in words(figure)


def test_a_policy_far_from_the_data_stands_out() -> None:
    figure = draw(advice(*(replace(one, far=0.9 if one.name == "free" else 0.1) for one in POINTS)))
    bars = [line for line in figure.axes[1].get_lines() if line.get_marker() == "o"]
    colours = {float(np.asarray(bar.get_xdata())[0]): bar.get_color() for bar in bars}
    assert colours[8.0] != colours[1.0] == colours[3.0]


def test_a_single_harmless_policy_can_be_drawn() -> None:
    only = replace(POINTS[1], bound=0.0, value=0.0, tails=(0, 0, 0, 0))
    assert "proposed ξ = 0" in legend(draw(advice(only)).axes[0])
