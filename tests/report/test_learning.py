"""The figure of a run's learning curve."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from numpy.testing import assert_allclose

from samba_rl.report.learning import learning_curve
from tests.report.panels import legend, lines, words
from tests.report.runs import made


def test_learning_curve_draws_the_trials() -> None:
    run = made()
    above, below = learning_curve(run).axes
    assert above.get_shared_x_axes().joined(above, below)
    samples = [30, 60, 90, 120]
    assert_allclose(lines(above)["real trial"], (samples, [-200, -190, -180, -170]))
    assert_allclose(lines(above)["the model's prediction"], (samples, [math.nan, -181, -172, -163]))
    assert_allclose(lines(below)["safety cost (learning TC)"], ([0, *samples], [0, 0, 1, 2, 3]))
    assert_allclose(lines(below)["unsafe steps (learning TV)"], ([0, *samples], [0, 0, 2, 4, 6]))
    assert above.get_ylabel() == "return of an episode\n[negative cost]"
    assert below.get_xlabel() == "real samples so far [steps]" and "[cost, steps]" in below.get_ylabel()
    left, right = below.get_xlim()
    bottom, top = below.get_ylim()
    assert left == 0 and right > 120 and bottom < 0 and top > 6


def test_lines_differ_in_more_than_colour() -> None:
    for axes in learning_curve(made()).axes:
        styles = {(line.get_linestyle(), line.get_marker()) for line in axes.get_lines()}
        assert len(styles) == len(axes.get_lines())


@pytest.mark.parametrize(("trials", "marker"), [(40, "o"), (41, "")])
def test_many_trials_are_drawn_without_markers(trials: int, marker: str) -> None:
    above, _ = learning_curve(made(trials=trials, controls=0)).axes
    assert above.get_lines()[0].get_marker() == marker


def test_large_numbers_have_commas_and_no_powers_of_ten() -> None:
    run = made()
    long = tuple(
        replace(trial, real_samples=250_000 * (k + 1), learning_TC=12_000.0 * k) for k, trial in enumerate(run.trials)
    )
    figure = learning_curve(replace(run, trials=long))
    figure.draw_without_rendering()
    _, below = figure.axes
    shown = [text.get_text() for text in (*below.get_xticklabels(), *below.get_yticklabels())]
    assert {"200,000", "1,000,000", "20,000"} <= set(shown) and below.xaxis.get_offset_text().get_text() == ""
    figure = learning_curve(run)
    figure.draw_without_rendering()
    assert not any("," in text.get_text() for text in figure.axes[1].get_xticklabels())


def test_a_first_trial_has_no_prediction() -> None:
    above, below = learning_curve(made(trials=1, controls=0)).axes
    assert legend(above) == ["real trial"] and below.get_ylim()[1] == pytest.approx(1.08)


def test_the_prediction_of_a_model_is_named() -> None:
    assert "the model's prediction" in words(learning_curve(made()))
