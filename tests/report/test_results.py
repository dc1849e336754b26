"""The figures of benchmark results, and the numbers behind them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose

from samba_rl.benchmark.cells import CellResult
from samba_rl.report.groups import groups
from samba_rl.report.results import curves, tail, trade_off
from samba_rl.report.series import band, front
from tests.report.panels import figure_legend, lines
from tests.report.results import DOUBLE, FETCH, PENDULUM, evaluation, result


def test_band_is_the_mean_and_the_range_where_all_seeds_have_data() -> None:
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
    assert list(lines(above)) == ["SAMBA", "PPO"] == figure_legend(figure)
    assert_allclose(lines(above)["SAMBA"], ([30, 60], [-168, -138]))
    assert_allclose(lines(cost)["PPO"][1], [3, 6])
    assert_allclose(lines(steps)["PPO"][1], [1, 2])
    assert above.get_xscale() == "log" and cost.get_yscale() == "symlog"
    (span,) = {tuple(np.unique(np.asarray(c.get_paths()[0].vertices)[:, 1]).tolist()) for c in above.collections}
    assert span == (-170, -166, -140, -136)
    assert len(curves(results, FETCH).axes) == 3


def test_labels_name_the_settings_in_which_groups_differ() -> None:
    one = result("samba", 0)
    other = replace(one, cell=replace(one.cell, limit=0.25), with_noise=evaluation(1, -1, 0.25))
    found = groups([one, other, result("ppo", 0)])
    assert [group.label for group in found] == ["SAMBA, ξ 0.25", "SAMBA, ξ 0.75", "PPO"]
    assert [group.variant for group in found] == [0, 1, 0]
    assert figure_legend(curves([one, other])) == ["SAMBA, ξ 0.25", "SAMBA, ξ 0.75"]
    # The preset's limit and the same limit given explicitly are one group.
    asked = replace(one, cell=replace(one.cell, limit=0.75, seed=1))
    assert [group.label for group in groups([one, asked, result("ppo", 0)])] == ["SAMBA", "PPO"]


def test_a_limit_has_the_same_key_on_every_system_and_another_limit_another() -> None:
    def limited(seed: int, limit: float, task: str = PENDULUM) -> CellResult:
        one = result("sppo", seed, task)
        return replace(one, cell=replace(one.cell, limit=limit), with_noise=evaluation(1, -1, limit))

    # On Fetch only the more frequent limit was run.
    results = [limited(0, 0.25), limited(0, 0.75), limited(1, 0.75), limited(0, 0.75, FETCH)]
    assert [(g.task, g.label, g.variant) for g in groups(results)] == [
        (PENDULUM, "SPPO, ξ 0.25", 1), (PENDULUM, "SPPO, ξ 0.75", 0), (FETCH, "SPPO, ξ 0.75", 0),
    ]  # fmt: skip
    assert groups(results, FETCH)[0].variant == 0 == groups([*results, limited(1, 0.25)], FETCH)[0].variant
    figure = curves(results)
    rare, usual = (
        next(line for line in figure.axes[0].get_lines() if line.get_label() == label)
        for label in ("SPPO, ξ 0.25", "SPPO, ξ 0.75")
    )
    assert rare.get_markerfacecolor() == "white" != usual.get_markerfacecolor()
    assert rare.get_linewidth() < usual.get_linewidth()


def test_samba_is_drawn_over_the_learner_that_it_resembles() -> None:
    both = [result(learner, 0) for learner in ("samba", "sppilco")]
    for figure in (curves(both), trade_off(both)):
        order = {str(line.get_label()): line.get_zorder() for line in figure.axes[0].get_lines()}
        assert order["SAMBA"] > order["SPPILCO"]
    lower, upper = sorted(curves(both).axes[0].get_lines(), key=lambda line: line.get_zorder())
    # What is below shows on both sides.
    assert lower.get_linewidth() > 1.5 * upper.get_linewidth()


def test_learners_and_systems_of_one_s_own_come_last() -> None:
    one = result("samba", 0)
    mine = replace(one, cell=replace(one.cell, learner="magic", task="crane"))
    figure = curves([mine, one])
    assert [axes.get_title() for axes in figure.axes[:2]] == ["Safe Pendulum", "crane"]
    assert figure_legend(figure) == ["SAMBA", "magic"]


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
    assert_allclose(drawn["SAMBA"], ([2], [-145]))
    assert_allclose(np.array(axes.get_lines()[0].get_data()), ([1, 2, 9], [-150, -140, -145]))
    x, y = drawn["Pareto front"]
    assert_allclose(x[1:-1], [2, 6])
    assert_allclose(y[1:], [-145, -130, -130])


def test_tail_shows_the_learners_with_a_model() -> None:
    results = [result(learner, seed) for learner in ("samba", "sppo", "ppo") for seed in (0, 1)]
    figure = tail(results)
    (axes,) = figure.axes
    assert (
        list(lines(axes))
        == ["predicted by the model", "measured on the real system", "target"]
        == figure_legend(figure)
    )
    assert_allclose(lines(axes)["predicted by the model"], ([0, 1], [2.5, 1.5]))
    assert_allclose(lines(axes)["target"][1], [0.6, 0.6])
    assert [text.get_text() for text in axes.texts] == ["CVaR 0.9"]
    # Every panel has a name, and they follow each other without gaps.
    rare = [replace(each, cell=replace(each.cell, limit=0.25), with_noise=evaluation(1, -1, 0.25)) for each in results]
    figure = tail([*results, *rare, result("samba", 0, DOUBLE)])
    assert [axes.get_title() for axes in figure.axes] == [
        "Safe Pendulum\nSAMBA, ξ 0.25", "Safe Pendulum\nSAMBA, ξ 0.75",
        "Safe Cart-Pole\nDouble Pendulum\nSAMBA, ξ 0.75",
    ]  # fmt: skip
    assert all(axes.axison for axes in figure.axes)
    # A limit per step is drawn as that of an episode of 30 steps.
    per_step = [replace(each, with_noise=evaluation(1, -1, per_step=True)) for each in results]
    (axes,) = tail(per_step).axes
    assert_allclose(lines(axes)["predicted by the model"][1], [75, 45])
    assert_allclose(lines(axes)["measured on the real system"][1], [30, 30])
