"""The figure of a run's safety."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from numpy.testing import assert_allclose

from samba_rl.report.learning import learning_curve
from samba_rl.report.safety import safety
from samba_rl.runs import Run
from tests.report.panels import legend, lines, words
from tests.report.runs import CHANCE, CVAR, MEAN, made, made_without_model


def test_safety_draws_the_trials_and_the_control_iterations_between_them() -> None:
    run = made()
    trials, value, multiplier, weight = safety(run).axes
    assert_allclose(lines(trials)["real trial"], ([0, 1, 2, 3], [0, 0.5, 1, 1.5]))
    assert_allclose(lines(trials)["the model's prediction"], ([0, 1, 2, 3], [math.nan, 0.4, 0.8, 1.2]))
    # Three control iterations after each trial; the last is at the position of the next trial.
    between = [k + c / 3 for k in range(4) for c in (1, 2, 3)]
    name = "CVaR 0.9 of the hazard cost of a trajectory"
    assert_allclose(lines(value)[name], (between, [r.values[0] for r in run.improvements]))
    assert_allclose(lines(value)["target 0.675"], (between, [0.675] * 12))
    assert_allclose(lines(value)["limit 0.75"][1], [0.75, 0.75])
    assert_allclose(lines(multiplier)[name], (between, [0.5] * 3 + [0.6] * 3 + [0.7] * 3 + [0.8] * 3))
    assert_allclose(next(iter(lines(weight).values()))[1], [r.lambda_pi for r in run.improvements])
    assert [axes.get_ylabel() for axes in (trials, value, multiplier, weight)] == [
        "safety cost of an\nepisode (mean) [cost]",
        "on the model\n[cost]",
        "λ, weight of\nthe constraint",
        "$λ_π$, weight\nof the cost",
    ]
    assert weight.get_xlabel() == "real trial (in between, control iterations on the model)"


def test_iterations_that_were_added_later_never_lead_backwards() -> None:
    run = made(trials=2, controls=2)
    first, second, *rest = run.improvements
    # The gate asked for two more iterations, after which four were planned.
    more = [replace(second, control=i, controls=4) for i in (3, 4)]
    value = safety(replace(run, improvements=(first, second, *more, *rest))).axes[1]
    (places, _), *_ = lines(value).values()
    assert_allclose(places, [0.25, 0.5, 0.75, 1, 1.5, 2])


def test_a_first_value_far_above_the_others_does_not_flatten_them() -> None:
    run = made(trials=8)
    peak = (replace(run.improvements[0], values=(40.0,)), *run.improvements[1:])
    for drawn, scale in ((run, "linear"), (replace(run, improvements=peak), "symlog")):
        figure = safety(drawn)
        figure.draw_without_rendering()
        axes = figure.axes[1]
        assert axes.get_yscale() == scale
        limit, value = axes.transAxes.inverted().transform(axes.transData.transform([(1, 0.75), (1, 0.25)]))[:, 1]
        assert limit > 0.3 and 0.05 < value < 0.5
    assert axes.get_ylim()[1] > 40 and "40" in [each.get_text() for each in axes.get_yticklabels()]


def test_each_constraint_has_a_panel() -> None:
    run = made(constraints=(CVAR, replace(CHANCE, per_step=True)))
    _, first, second, multipliers, _ = safety(run).axes
    assert first.get_ylabel() == "on the model\n[cost]" and second.get_ylabel() == "on the model\n[share per step]"
    # The target of the second changes, so its label has no number. A user's dollar signs do not start a formula.
    assert legend(second) == [
        r"share of steps that are unsafe (price in \$ or" + "\n" + r"\$\$)",
        "limit 0.1",
        "target",
    ]
    assert len(legend(multipliers)) == 2
    assert_allclose(list(lines(multipliers).values())[1][1], [r.multipliers[1] for r in run.improvements])
    assert second.get_lines()[0].get_color() == multipliers.get_lines()[1].get_color()


@pytest.mark.parametrize(
    ("run", "panels"),
    [
        (made(constraints=()), 2),
        (made(zeta=False), 3),
        (made(constraints=(), zeta=False), 1),
        (made(trials=1), 4),
        (made(trials=1, controls=0), 1),
        (made(constraints=(CVAR, CHANCE)), 5),
    ],
    ids=["no constraint", "no zeta", "neither", "one trial", "not improved", "two constraints"],
)
def test_every_kind_of_run_can_be_drawn(run: Run, panels: int) -> None:
    figure = safety(run)
    assert len(figure.axes) == panels
    for each in (figure, learning_curve(run)):
        each.draw_without_rendering()


def test_lines_differ_in_more_than_colour() -> None:
    *_, multipliers, _ = safety(made(constraints=(CVAR, CHANCE))).axes
    assert len({line.get_linestyle() for line in multipliers.get_lines()}) == 2


def test_a_first_trial_has_no_prediction() -> None:
    (trials,) = safety(made(trials=1, controls=0)).axes
    assert legend(trials) == ["real trial"] and trials.get_xlabel() == "real trial"
    assert all(tick == round(tick) for tick in trials.get_xticks())


def test_multipliers_over_orders_of_magnitude_get_a_logarithmic_axis() -> None:
    run = made()
    wide = tuple(replace(report, multipliers=(0.05 if i < 6 else 20.0,)) for i, report in enumerate(run.improvements))
    assert safety(replace(run, improvements=wide)).axes[2].get_yscale() == "log"
    assert safety(run).axes[2].get_yscale() == "linear"
    none = tuple(replace(report, multipliers=(20.0 * (i > 6),)) for i, report in enumerate(run.improvements))
    assert safety(replace(run, improvements=none)).axes[2].get_yscale() == "linear"


def test_a_target_that_is_the_limit_is_not_drawn_over_it() -> None:
    run = made()
    same = tuple(replace(report, targets=(0.75,)) for report in run.improvements)
    assert legend(safety(replace(run, improvements=same)).axes[1])[1:] == ["limit 0.75"]


# Without a model ------------------------------------------------------------------------------------------------------


def test_the_model_is_named() -> None:
    assert "on the model" in words(safety(made()))


def test_an_update_is_drawn_at_its_trial() -> None:
    run = made_without_model(constraints=(CVAR,))
    trials, value, multiplier = safety(run).axes
    name = "CVaR 0.9 of the hazard cost of a trajectory"
    assert legend(trials) == ["real trial"] and legend(value) == [name, "limit 0.75"]
    assert_allclose(lines(value)[name], ([1, 2, 3], [r.values[0] for r in run.improvements]))
    assert_allclose(lines(multiplier)[name], ([1, 2, 3], [r.multipliers[0] for r in run.improvements]))
    assert value.get_ylabel() == "in the trial\n[cost]" and multiplier.get_xlim() == (-0.5, 3.5)


def test_a_limit_on_the_mean_is_drawn_beside_the_mean() -> None:
    trials, multiplier = safety(made_without_model()).axes
    assert legend(trials) == ["real trial", "limit 0.75"] and multiplier.get_ylabel().startswith("λ")
    assert_allclose(lines(trials)["limit 0.75"][1], [0.75, 0.75])
    held = safety(made_without_model(margin=0.2)).axes[0]
    assert_allclose(lines(held)["target 0.6"], ([1, 2, 3], [0.6] * 3))
    # The mean on a model and the mean of a step are other numbers than the mean of the trials.
    assert len(safety(made(constraints=(MEAN,), zeta=False)).axes) == 3
    assert len(safety(made_without_model(constraints=(replace(MEAN, per_step=True),))).axes) == 3
    _, chance, multipliers = safety(made_without_model(constraints=(MEAN, CHANCE))).axes
    assert chance.get_ylabel() == "in the trial\n[share]" and len(legend(multipliers)) == 2
    assert chance.get_lines()[0].get_color() == multipliers.get_lines()[1].get_color()


def with_multipliers(run: Run, *values: float) -> Run:
    found = tuple(replace(r, multipliers=(value,)) for r, value in zip(run.improvements, values, strict=True))
    return replace(run, improvements=found)


def test_multipliers_found_by_an_update_are_points_and_those_at_the_cap_are_apart() -> None:
    run, cap = made_without_model(5, learner="cpo"), 50.0
    axes = safety(with_multipliers(run, cap, 0.0, 0.3, cap)).axes[1]
    found, alone = axes.get_lines()
    assert found.get_linestyle() == alone.get_linestyle() == "None" and found.get_marker() != alone.get_marker()
    assert_allclose(lines(axes)["found by the update"], ([2, 3], [0.0, 0.3]))
    assert_allclose(lines(axes)["at its cap (50): constraint only"][0], [1, 4])
    bottom, top = axes.get_ylim()
    mark = axes.transData.inverted().transform(alone.get_transform().transform((1, 0.91)))[1]
    assert bottom < 0 and 0.33 < mark < top < 0.5
    assert legend(safety(with_multipliers(run, 0.1, 0.0, 0.3, 0.2)).axes[1]) == ["found by the update"]
    never = safety(with_multipliers(run, *[cap] * 4)).axes[1]
    assert legend(never) == ["at its cap (50): constraint only"] and not len(never.get_yticks())


def test_a_single_update_has_a_marker() -> None:
    _, multiplier = safety(made_without_model(2)).axes
    assert multiplier.get_lines()[0].get_marker() == "o"
    _, multiplier = safety(made_without_model(42)).axes
    assert multiplier.get_lines()[0].get_marker() == ""


# Layout ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        made(constraints=(CVAR, CHANCE)),
        made_without_model(constraints=(MEAN, CHANCE), margin=0.1),
        with_multipliers(made_without_model(5, learner="cpo"), 50.0, 0.0, 0.3, 50.0),
    ],
    ids=["model", "no model", "projection"],
)
def test_letters_are_large_enough_and_nothing_overlaps(run: Run) -> None:
    figure = safety(run)
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * figure.dpi
    boxes = []
    for axes in figure.axes:
        texts = [axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()]
        found = axes.get_legend()
        texts += [] if found is None else found.get_texts()
        shown = [text for text in texts if text.get_visible() and text.get_text()]
        assert all(float(text.get_fontsize()) >= 9 for text in shown)
        boxes += [axes.yaxis.label.get_window_extent(), axes.bbox]
        if found is not None:
            boxes.append(found.get_window_extent())
    for i, box in enumerate(boxes):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert not any(box.padded(-1).overlaps(other) for other in boxes[:i])
