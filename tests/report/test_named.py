"""The paper's figures by name: the numbers behind their panels, wrong names, missing results."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.testing import assert_allclose, assert_array_equal

from samba_rl import SafePendulum, UserError, make_task
from samba_rl.benchmark.cells import Cell, CellResult, Point, Tail, write_result
from samba_rl.cli.figures import figures
from samba_rl.models.zeta import zeta_loo
from samba_rl.report import named
from samba_rl.report.information import fitted, information, measure, plane, random_steps, ranks
from samba_rl.report.predictions import predictions, traces
from samba_rl.report.records import groups
from samba_rl.report.results import band, curves, front, tail, trade_off
from samba_rl.runs.evaluation import Evaluation
from samba_rl.tasks import TASKS
from tests.threads import one_thread

PENDULUM, DOUBLE, FETCH = TASKS
SIZES = (6, 12)


def evaluation(cost: float, value: float, limit: float | None = 0.75, *, per_step: bool = False) -> Evaluation:
    """Of 10 episodes that cost so much in safety each."""
    constraints = () if limit is None else (("CVaR 0.9 of the hazard", 1.0, limit / 30 if per_step else limit),)
    return Evaluation(
        TV=1, TC=10 * cost, steps=300, episodes=10, return_mean=value, return_std=0.0, safety_quartiles=(0.0, 0.0, 0.0),
        cvar=1.0, alpha=0.9, limit=limit, constraints=constraints, seed=0, deterministic=False,
    )  # fmt: skip


def result(learner: str, seed: int, task: str = PENDULUM, *, cost: float = 1.0, value: float = -100.0) -> CellResult:
    """A cell with two trials, of which later seeds are better."""
    curve = tuple(Point(s, -200.0 + s + seed, 1.0, s / 10, s // 30, math.nan, math.nan) for s in (30, 60))
    ends = tuple(Tail(i, 2.0 - i + seed, 0.6, 1.0) for i in range(2)) if learner in ("samba", "sppo") else ()
    found = evaluation(cost, value, None if learner == "ppo" else 0.75)
    return CellResult(Cell(task, learner, seed), 60, 6.0, 2, 1.0, "cpu", found, found, curve, ends)


def lines(axes: Axes) -> dict[str, tuple[Any, Any]]:
    """What is drawn, by its name in the legend."""
    return {str(line.get_label()): (line.get_xdata(), line.get_ydata()) for line in axes.get_lines()}


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


# Information ----------------------------------------------------------------------------------------------------------


def test_models_are_asked_about_the_same_test_points() -> None:
    with one_thread():
        small, large = measure(SafePendulum(), SIZES, test_points=200)
        assert (small.samples, large.samples) == SIZES
        assert small.points.shape == large.points.shape == (200, 2) and torch.equal(small.points, large.points)
        assert torch.equal(small.training, large.training[:6]) and len(large.training) == 12
        # The same by hand: the data, then the test points, from one generator.
        generator = torch.Generator().manual_seed(0)
        data, test = (random_steps(SafePendulum(), n, generator) for n in (12, 200))
        model = fitted(SafePendulum(), data, 12)
        expected = zeta_loo(model, SafePendulum().model_inputs(test.x, test.u))
    assert_allclose(large.values["loo"], expected, rtol=1e-9)
    assert_allclose(large.training[:, 1], data.x[:, 1])
    assert all(value.shape == (200,) and value.isfinite().all() for value in large.values.values())


@pytest.mark.parametrize("name", TASKS)
def test_the_box_is_where_the_system_is_unsafe(name: str) -> None:
    task = make_task(name)
    x = task.start(400, torch.Generator().manual_seed(1))
    # Start states lie outside; spread the angle over the circle, the gripper over the way.
    if name == FETCH:
        x[:, 0] += torch.linspace(-0.2, 0.2, 400)
    else:
        x[:, 0 if name == PENDULUM else 4] = torch.linspace(-4, 4, 400)
    seen = plane(task)
    low, high = seen.unsafe
    across = seen.place(x)[:, 0]
    inside = (across > low) & (across < high)
    assert 0 < inside.sum() < 400
    assert torch.equal(inside, task.violation(x)[:, 0])


def test_panels_of_metrics_and_models() -> None:
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
    assert "mean of the 100 test points by cell" in legend(figure)


def test_ranks() -> None:
    assert_allclose(ranks(torch.tensor([3.0, 1.0, 2.0, 2.0], dtype=torch.float64)), [100, 0, 100 / 3, 100 / 3])


def test_random_steps_are_as_many_as_asked() -> None:
    steps = random_steps(SafePendulum(), 47, torch.Generator().manual_seed(0))
    assert len(steps) == 47 and float(steps.u.abs().max()) <= 2
    assert_allclose(SafePendulum().step(steps.x, steps.u), steps.x_next)
    held = random_steps(make_task(DOUBLE), 30, torch.Generator().manual_seed(0), hold=5)
    assert 6 <= len(torch.unique(held.u)) <= 7


# Predictions ----------------------------------------------------------------------------------------------------------


def test_models_imagine_from_the_true_start() -> None:
    with one_thread():
        truth, imagined = traces(SafePendulum(), (4, 60), steps=8, count=5)
    assert truth.shape == (9, 2) and [each.x.shape for each in imagined] == [(5, 9, 2)] * 2
    for each in imagined:
        assert torch.equal(each.x[:, 0], truth[0].expand(5, -1))
    error = [float((each.x - truth).square().mean()) for each in imagined]
    assert error[1] < error[0]


def test_panels_of_states_and_models() -> None:
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


# Results --------------------------------------------------------------------------------------------------------------


def test_band_is_the_mean_and_the_range_where_all_seeds_are() -> None:
    found = band([([10, 20, 30], [0, 10, 20]), ([15, 25], [1, 3])])
    assert_allclose(found.x, [15, 20, 25])
    assert_allclose(found.mean, [3, 6, 9])
    assert_allclose(found.low, [1, 2, 3])
    assert_allclose(found.high, [5, 10, 15])
    assert_allclose(band([([10, 20], [0, 1]), ([30, 40], [3, 5])]).mean, [2])


def test_curves_by_learner_and_system() -> None:
    results = [
        result(learner, seed, task) for task in (FETCH, PENDULUM) for learner in ("ppo", "samba") for seed in (0, 4)
    ]
    figure = curves(results)
    assert len(figure.axes) == 6
    above, _, cost, _, steps, _ = figure.axes
    assert above.get_title() == "Safe Pendulum" and figure.axes[1].get_title() == "Safe Fetch Reach"
    assert list(lines(above)) == ["samba", "ppo"] == legend(figure)
    assert_allclose(lines(above)["samba"], ([30, 60], [-168, -138]))
    assert_allclose(lines(cost)["ppo"][1], [3, 6])
    assert_allclose(lines(steps)["ppo"][1], [1, 2])
    assert above.get_xscale() == "log" and cost.get_yscale() == "symlog"
    (span,) = {tuple(np.unique(np.asarray(c.get_paths()[0].vertices)[:, 1]).tolist()) for c in above.collections}
    assert span == (-170, -166, -140, -136)
    assert len(curves(results, FETCH).axes) == 3


def test_groups_are_told_apart_by_what_differs() -> None:
    one = result("samba", 0)
    other = replace(one, cell=replace(one.cell, limit=0.25), with_noise=evaluation(1, -1, 0.25))
    found = groups([one, other, result("ppo", 0)])
    assert [group.label for group in found] == ["samba, ξ 0.25", "samba, ξ 0.75", "ppo"]
    assert [group.variant for group in found] == [0, 1, 0]
    assert legend(curves([one, other])) == ["samba, ξ 0.25", "samba, ξ 0.75"]
    # The preset's limit, and the same one asked for, are one.
    asked = replace(one, cell=replace(one.cell, limit=0.75, seed=1))
    assert [group.label for group in groups([one, asked, result("ppo", 0)])] == ["samba", "ppo"]


def test_learners_and_systems_of_one_s_own_come_last() -> None:
    one = result("samba", 0)
    mine = replace(one, cell=replace(one.cell, learner="magic", task="crane"))
    figure = curves([mine, one])
    assert [axes.get_title() for axes in figure.axes[:2]] == ["Safe Pendulum", "crane"]
    assert legend(figure) == ["samba", "magic"]


def test_front() -> None:
    assert front([(2, -5), (1, -10), (1, -9), (3, -6), (4, -4)]) == [(1, -9), (2, -5), (4, -4)]


def test_trade_off_shows_medians_and_seeds() -> None:
    numbers = {"samba": [(1, -150), (2, -140), (9, -145)], "ppo": [(6, -130)], "sppo": [(3, -190)]}
    results = [
        result(learner, i, cost=cost, value=value)
        for learner, found in numbers.items()
        for i, (cost, value) in enumerate(found)
    ]
    (axes,) = trade_off(results).axes
    drawn = lines(axes)
    assert_allclose(drawn["samba"], ([2], [-145]))
    assert_allclose(np.array(axes.get_lines()[0].get_data()), ([1, 2, 9], [-150, -140, -145]))
    x, y = drawn["Pareto front"]
    assert_allclose(x[1:-1], [2, 6])
    assert_allclose(y[1:], [-145, -130, -130])


def test_tail_of_the_learners_with_a_model() -> None:
    results = [result(learner, seed) for learner in ("samba", "sppo", "ppo") for seed in (0, 1)]
    figure = tail(results)
    (axes,) = figure.axes
    assert list(lines(axes)) == ["promised by the model", "realised on the system", "held under"] == legend(figure)
    assert_allclose(lines(axes)["promised by the model"], ([0, 1], [2.5, 1.5]))
    assert_allclose(lines(axes)["held under"][1], [0.6, 0.6])
    assert [text.get_text() for text in axes.texts] == ["CVaR 0.9"]
    # Where the limit is meant for a step, both are drawn for an episode of 30.
    per_step = [replace(each, with_noise=evaluation(1, -1, per_step=True)) for each in results]
    (axes,) = tail(per_step).axes
    assert_allclose(lines(axes)["promised by the model"][1], [75, 45])
    assert_allclose(lines(axes)["realised on the system"][1], [30, 30])


# By name --------------------------------------------------------------------------------------------------------------


def test_unknown_names_list_those_there_are() -> None:
    for call in (lambda: named.draw("curve"), lambda: figures("curve")):
        with pytest.raises(
            UserError, match=r"no figure is called 'curve'.*information, predictions, curves, trade-off"
        ):
            call()
    with pytest.raises(UserError, match="no system is called"):
        named.draw("curves", [result("samba", 0)], "safe-rocket")


@pytest.mark.parametrize("name", named.OF_RESULTS)
def test_missing_results_say_what_to_run(name: str, tmp_path: Path) -> None:
    nothing: tuple[list[CellResult] | None, ...] = (None, [])
    for results in nothing:
        with pytest.raises(UserError, match=r"samba-rl benchmark.*--results"):
            named.draw(name, results)
    with pytest.raises(UserError, match=r"of safe-fetch-reach.*samba-rl benchmark"):
        named.draw(name, [result("samba", 0)], FETCH)
    with pytest.raises(UserError, match="no folder of results"):
        figures(name, results=tmp_path / "none", out=tmp_path / "x.png")


def test_the_same_figure_gives_the_same_file(tmp_path: Path) -> None:
    results = [result("samba", seed) for seed in (0, 1)]
    for suffix in named.SUFFIXES:
        paths = [tmp_path / f"{i}{suffix}" for i in range(2)]
        for path in paths:
            named.save(named.draw("tail", results), path)
        assert paths[0].read_bytes() == paths[1].read_bytes()
    with one_thread():
        for i in range(2):
            named.save(information(SafePendulum(), SIZES[:1], test_points=50), tmp_path / f"{i}.png")
    assert (tmp_path / "0.png").read_bytes() == (tmp_path / "1.png").read_bytes()


def test_systems_side_by_side() -> None:
    two = (PENDULUM, DOUBLE)
    figure = named.systems(64, two)
    for axes, picture in zip(figure.axes, named.system_pictures(64, two), strict=True):
        assert_array_equal(np.asarray(axes.images[0].get_array()), picture)
    assert figure.axes[0].get_title() == "Safe Pendulum"


def test_command_writes_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        write_result(tmp_path / "results", result("samba", seed))
    assert figures("trade-off", results=Path("results")) == 0
    assert figures("curves", results=Path("results"), out=Path("new/curves.pdf"), task=PENDULUM, preset="default") == 0
    with pytest.raises(UserError, match="have no preset 'paper'; there are: default"):
        figures("curves", results=Path("results"), preset="paper")
    assert Path("figures/trade-off.png").stat().st_size > 1000
    assert Path("new/curves.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(UserError, match=r"must end in \.png or \.pdf"):
        figures("systems", out=Path("x.svg"))
    with pytest.raises(UserError, match="give a folder"):
        figures("all", out=Path("x.png"))


def test_all_draws_what_can_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def quick(*_: object, **__: object) -> Figure:
        return Figure(figsize=(1, 1))

    monkeypatch.setattr(named, "BY_SYSTEM", dict.fromkeys(named.BY_SYSTEM, quick))
    monkeypatch.setattr(named, "systems", quick)
    assert figures("all", out=tmp_path) == 0
    by_system = [f"{name}-{task}.png" for name in named.BY_SYSTEM for task in TASKS]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*by_system, "systems.png"])
    assert capsys.readouterr().err.count("not drawn: ") == 3
