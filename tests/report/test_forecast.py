"""The fan chart: quantiles, the constrained amounts so far, real episodes on top."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from samba_rl import SafePendulum, UniformPolicy, UserError, rollout
from samba_rl.improve.constraints import Chance, CVaR, Expectation
from samba_rl.report.forecast import episodes, forecast
from samba_rl.types import Traces
from tests.line import Line
from tests.report.panels import legend, lines, words
from tests.traces import seeded

pytest.importorskip("matplotlib")
TASK = SafePendulum()
CVAR = CVaR(name="hazard", limit=0.75, alpha=0.5)


def imagined(n: int = 40, seed: int = 0) -> Traces:
    return rollout(TASK.world(), UniformPolicy((-2.0,), (2.0,)), n, 10, generator=seeded(seed))


def panels(figure: Any) -> list[Any]:
    return list(figure.axes)


def test_the_fan_holds_the_stated_shares_of_the_trajectories() -> None:
    traces = imagined(400)
    figure = forecast(TASK, traces, (CVAR,), "Title", components=("θ̇",))
    speed = panels(figure)[0]
    bands = [collection.get_paths()[0].vertices for collection in speed.collections]
    for share, band in zip((0.99, 0.9, 0.5), bands, strict=True):
        at_end = band[band[:, 0] == band[:, 0].max()][:, 1]
        inside = (traces.x[:, -1, 1] >= at_end.min()) & (traces.x[:, -1, 1] <= at_end.max())
        assert float(inside.double().mean()) == pytest.approx(share, abs=0.01)
    assert speed.get_ylabel() == "θ̇ [rad/s]" and "title" in words(figure)


def test_the_constrained_value_so_far_ends_at_its_value() -> None:
    traces = imagined()
    for constraint in (CVAR, Expectation(name="hazard", limit=2.0, per_step=True), Chance(name="hazard", limit=0.1)):
        panel = panels(forecast(TASK, traces, (constraint,), "Title"))[-1]
        label = f"{constraint.in_words()}: {constraint.measure(traces):.3g}"
        found = lines(panel)
        assert legend(panel) == [label, f"limit {constraint.limit:g}"]
        assert found[label][1][-1] == pytest.approx(constraint.measure(traces))
        cut = replace(traces, safety=traces.safety.clone(), violation=traces.violation.clone())
        cut.safety[:, 4:], cut.violation[:, 4:] = 0, False
        assert found[label][1][3] == pytest.approx(constraint.measure(cut))
        assert (np.diff(found[label][1]) >= -1e-12).all()


def test_real_episodes_are_drawn_on_top_as_they_were_measured() -> None:
    real = imagined(3, seed=9)
    figure = forecast(TASK, imagined(), (CVAR,), "Title", real=real, real_label="trial 7", components=("θ", "θ̇"))
    above, speed, cost, so_far = panels(figure)
    assert "trial 7" in legend(above)
    drawn = [line.get_ydata() for line in speed.get_lines()[1:]]
    assert np.allclose(drawn, real.x[..., 1])
    assert np.allclose([line.get_ydata() for line in cost.get_lines()[2:]], real.safety[..., 0])
    assert np.allclose([line.get_ydata()[-1] for line in so_far.get_lines()[-3:]], real.safety_costs[:, 0])


def test_an_angle_that_turns_over_is_drawn_without_a_jump() -> None:
    real = imagined(1)
    real.x[0, :, 0] = torch.linspace(2.5, 4.5, 11, dtype=torch.float64)
    (angle, *_) = panels(forecast(TASK, imagined(), (CVAR,), "Title", real=real))
    drawn = angle.get_lines()[-1].get_ydata()
    assert drawn == pytest.approx(np.degrees(np.linspace(2.5, 4.5, 11)), abs=1e-6)
    assert angle.get_ylabel() == "θ [°]"


def test_episodes_of_a_data_set_become_traces_again() -> None:
    task = Line()
    traces = rollout(task.world(), UniformPolicy((-1.0,), (1.0,)), 5, generator=seeded(1))
    traces.active[2, 4:] = False
    traces.cost[2, 4:], traces.safety[2, 4:], traces.violation[2, 4:] = 0, 0, False
    traces.terminated[2] = True
    steps = traces.transitions(first_episode=10)
    again = episodes(task, steps, [12, 14])
    assert again.active.sum(1).tolist() == [4, traces.active.shape[1]]
    assert torch.equal(again.x[0, :5], traces.x[2, :5]) and torch.equal(again.x[1], traces.x[4])
    assert torch.equal(again.cost, traces.cost[[2, 4]]) and again.terminated.tolist() == [True, False]
    assert bool((again.x[0, 5:] == again.x[0, 4]).all())


def test_an_ended_trajectory_leaves_the_fan() -> None:
    traces = imagined(2)
    traces.active[1, 3:] = False
    speed = panels(forecast(TASK, traces, (), "Title", components=("θ̇",)))[0]
    median = speed.get_lines()[0].get_ydata()
    assert median[-1] == pytest.approx(float(traces.x[0, -1, 1]))


def test_a_real_episode_that_ended_early_has_no_cost_afterwards() -> None:
    real = imagined(1, seed=9)
    real.safety[0, :3], real.active[0, 3:] = 1.0, False
    cost = panels(forecast(TASK, imagined(), (CVAR,), "Title", real=real, components=("θ",)))[1]
    drawn = np.asarray(cost.get_lines()[-1].get_ydata())
    assert drawn[:3].tolist() == [1, 1, 1] and np.isnan(drawn[3:]).all()


def test_an_unknown_component_is_named() -> None:
    with pytest.raises(UserError, match="safe-pendulum has no state component 'speed'; available: θ, θ̇"):
        forecast(TASK, imagined(2), (), "Title", components=("speed",))
