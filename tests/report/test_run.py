import builtins
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.testing import assert_allclose
from PIL import Image

from samba_rl import UserError
from samba_rl.learners import LEARNERS
from samba_rl.report.run import learning_curve, run_pictures, safety
from samba_rl.runs import train
from tests.report.runs import CHANCE, CVAR, MEAN, Made, made, made_without_model
from tests.threads import one_thread

NAMES = ("learning-curve", "state-space", "safety")


def lines(axes: Axes) -> dict[str, tuple[Any, Any]]:
    """What is drawn, by its name in the legend."""
    return {str(line.get_label()): (line.get_xdata(), line.get_ydata()) for line in axes.get_lines()}


def legend(axes: Axes) -> list[str]:
    found = axes.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def test_pictures_are_written(tmp_path: Path) -> None:
    paths = run_pictures(made(), tmp_path / "new" / "pictures")
    assert [path.name for path in paths] == [f"{name}.png" for name in NAMES]
    for path in paths:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"), dtype=np.int64)
        assert pixels.shape[1] == 1040 and 200 < pixels.shape[0] < 1400
        # White paper, ink, and the colours of several lines or of many states.
        assert (pixels == 255).all(-1).mean() > 0.4
        assert len(np.unique(pixels @ [65536, 256, 1])) > 100


def test_pdf_is_written_if_asked_and_does_not_change_from_day_to_day(tmp_path: Path) -> None:
    first, second = (run_pictures(made(trials=1, controls=0), tmp_path / folder, pdf=True) for folder in "ab")
    assert [path.name for path in first] == [f"{name}{suffix}" for name in NAMES for suffix in (".png", ".pdf")]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert first[1].read_bytes().startswith(b"%PDF") and b"CreationDate" not in first[1].read_bytes()


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
    *_, multipliers, _ = safety(made(constraints=(CVAR, CHANCE))).axes
    assert len({line.get_linestyle() for line in multipliers.get_lines()}) == 2


@pytest.mark.parametrize(("trials", "marker"), [(40, "o"), (41, "")])
def test_many_trials_are_drawn_without_markers(trials: int, marker: str) -> None:
    above, _ = learning_curve(made(trials=trials, controls=0)).axes
    assert above.get_lines()[0].get_marker() == marker


def test_large_numbers_have_commas_and_no_powers_of_ten() -> None:
    run = made()
    long = [
        replace(trial, real_samples=250_000 * (k + 1), learning_TC=12_000.0 * k) for k, trial in enumerate(run.trials)
    ]
    figure = learning_curve(replace(run, trials=long))
    figure.draw_without_rendering()
    _, below = figure.axes
    shown = [text.get_text() for text in (*below.get_xticklabels(), *below.get_yticklabels())]
    assert {"200,000", "1,000,000", "20,000"} <= set(shown) and below.xaxis.get_offset_text().get_text() == ""
    figure = learning_curve(run)
    figure.draw_without_rendering()
    assert not any("," in text.get_text() for text in figure.axes[1].get_xticklabels())


def test_safety_draws_trials_and_what_happened_between_them() -> None:
    run = made()
    trials, value, multiplier, weight = safety(run).axes
    assert_allclose(lines(trials)["real trial"], ([0, 1, 2, 3], [0, 0.5, 1, 1.5]))
    assert_allclose(lines(trials)["the model's prediction"], ([0, 1, 2, 3], [math.nan, 0.4, 0.8, 1.2]))
    # Three control iterations after each trial; the last stands where the trial stands that it led to.
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
    assert weight.get_xlabel() == "real trial (between two: the control iterations on the model)"


def test_each_constraint_has_a_panel() -> None:
    run = made(constraints=(CVAR, replace(CHANCE, per_step=True)))
    _, first, second, multipliers, _ = safety(run).axes
    assert first.get_ylabel() == "on the model\n[cost]" and second.get_ylabel() == "on the model\n[share per step]"
    # The target of the second changes, so that it has no one number. A user's dollars do not begin a formula.
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
def test_every_kind_of_run_can_be_drawn(run: Any, panels: int) -> None:
    figure = safety(run)
    assert len(figure.axes) == panels
    for each in (figure, learning_curve(run)):
        each.draw_without_rendering()


def test_one_trial_has_no_prediction() -> None:
    run = made(trials=1, controls=0)
    above, below = learning_curve(run).axes
    (trials,) = safety(run).axes
    assert legend(above) == legend(trials) == ["real trial"]
    assert below.get_ylim()[1] == pytest.approx(1.08) and trials.get_xlabel() == "real trial"
    assert all(tick == round(tick) for tick in trials.get_xticks())


def test_multipliers_over_orders_of_magnitude_get_a_logarithmic_axis() -> None:
    run = made()
    wide = [replace(report, multipliers=(0.05 if i < 6 else 20.0,)) for i, report in enumerate(run.improvements)]
    assert safety(replace(run, improvements=wide)).axes[2].get_yscale() == "log"
    assert safety(run).axes[2].get_yscale() == "linear"
    none = [replace(report, multipliers=(20.0 * (i > 6),)) for i, report in enumerate(run.improvements)]
    assert safety(replace(run, improvements=none)).axes[2].get_yscale() == "linear"


def test_a_target_that_is_the_limit_is_not_drawn_over_it() -> None:
    run = made()
    same = [replace(report, targets=(0.75,)) for report in run.improvements]
    assert legend(safety(replace(run, improvements=same)).axes[1])[1:] == ["limit 0.75"]


# Without a model ------------------------------------------------------------------------------------------------------


def words(figure: Figure) -> str:
    """Everything that is written in a picture."""
    figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    return "\n".join(texts).lower()


WITHOUT_MODEL = [(name, row.constraint) for name, row in LEARNERS.items() if row.traces == "real"]


@pytest.mark.parametrize(("learner", "kind"), [*WITHOUT_MODEL, ("sppo", "cvar"), ("cpo", "chance")])
def test_without_a_model_nobody_speaks_of_one(learner: str, kind: str, tmp_path: Path) -> None:
    limited = kind != "none"
    with one_thread():
        run = train("safe-pendulum", learner, preset="smoke", constraint={"kind": kind})
    for figure in (learning_curve(run), safety(run)):
        written = words(figure)
        assert "real trial" in written and learner in written
        assert not [word for word in ("model", "predict", "imagin", "control iteration", "nan") if word in written]
    (label,) = [axes.get_xlabel() for axes in safety(run).axes if axes.get_xlabel()]
    assert label == ("real trial (after each: an update of the policy)" if limited else "real trial")
    assert len(run_pictures(run, tmp_path)) == 3


def test_with_a_model_it_is_spoken_of() -> None:
    assert "the model's prediction" in words(learning_curve(made())) and "on the model" in words(safety(made()))


def test_an_update_stands_at_the_trial_that_it_learned_from() -> None:
    run = made_without_model(constraints=(CVAR,))
    trials, value, multiplier = safety(run).axes
    name = "CVaR 0.9 of the hazard cost of a trajectory"
    assert legend(trials) == ["real trial"] and legend(value) == [name, "limit 0.75"]
    assert_allclose(lines(value)[name], ([1, 2, 3], [r.values[0] for r in run.improvements]))
    assert_allclose(lines(multiplier)[name], ([1, 2, 3], [r.multipliers[0] for r in run.improvements]))
    assert value.get_ylabel() == "in the trial\n[cost]" and multiplier.get_xlim() == (-0.5, 3.5)


def test_a_limit_on_the_mean_stands_beside_the_mean() -> None:
    trials, multiplier = safety(made_without_model()).axes
    assert legend(trials) == ["real trial", "limit 0.75"] and multiplier.get_ylabel().startswith("λ")
    assert_allclose(lines(trials)["limit 0.75"][1], [0.75, 0.75])
    held = safety(made_without_model(margin=0.2)).axes[0]
    assert_allclose(lines(held)["target 0.6"], ([1, 2, 3], [0.6] * 3))
    # On a model it is another mean, and the mean of a step is another number.
    assert len(safety(made(constraints=(MEAN,), zeta=False)).axes) == 3
    assert len(safety(made_without_model(constraints=(replace(MEAN, per_step=True),))).axes) == 3
    _, chance, multipliers = safety(made_without_model(constraints=(MEAN, CHANCE))).axes
    assert chance.get_ylabel() == "in the trial\n[share]" and len(legend(multipliers)) == 2
    assert chance.get_lines()[0].get_color() == multipliers.get_lines()[1].get_color()


def with_multipliers(run: Made, *values: float) -> Made:
    found = [replace(r, multipliers=(value,)) for r, value in zip(run.improvements, values, strict=True)]
    return replace(run, improvements=found)


def test_multipliers_that_a_step_finds_are_points_and_those_at_the_cap_apart() -> None:
    run = made_without_model(5, rule="projection")
    cap = run.settings.multiplier.cap
    axes = safety(with_multipliers(run, cap, 0.0, 0.3, cap)).axes[1]
    found, alone = axes.get_lines()
    assert found.get_linestyle() == alone.get_linestyle() == "None" and found.get_marker() != alone.get_marker()
    assert_allclose(lines(axes)["found by the update"], ([2, 3], [0.0, 0.3]))
    assert_allclose(lines(axes)["at its cap (50): the constraint alone"][0], [1, 4])
    bottom, top = axes.get_ylim()
    mark = axes.transData.inverted().transform(alone.get_transform().transform((1, 0.91)))[1]
    assert bottom < 0 and 0.33 < mark < top < 0.5
    assert legend(safety(with_multipliers(run, 0.1, 0.0, 0.3, 0.2)).axes[1]) == ["found by the update"]
    never = safety(with_multipliers(run, *[cap] * 4)).axes[1]
    assert legend(never) == ["at its cap (50): the constraint alone"] and not len(never.get_yticks())


def test_one_update_is_seen() -> None:
    _, multiplier = safety(made_without_model(2)).axes
    assert multiplier.get_lines()[0].get_marker() == "o"
    _, multiplier = safety(made_without_model(42)).axes
    assert multiplier.get_lines()[0].get_marker() == ""


# Looks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        made(constraints=(CVAR, CHANCE)),
        made_without_model(constraints=(MEAN, CHANCE), margin=0.1),
        with_multipliers(made_without_model(5, rule="projection"), 50.0, 0.0, 0.3, 50.0),
    ],
    ids=["model", "no model", "projection"],
)
def test_letters_are_large_enough_and_nothing_overlaps(run: Made) -> None:
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


def test_nothing_outside_the_figure_is_changed(tmp_path: Path) -> None:
    code = """
import sys
import samba_rl.report.run, samba_rl.report.film
assert "matplotlib" not in sys.modules and "imageio_ffmpeg" not in sys.modules
import matplotlib
from pathlib import Path
from tests.report.runs import made
def raw():  # looking the backend up in the ordinary way would choose one
    return {key: dict.get(matplotlib.rcParams, key) for key in matplotlib.rcParams}
before = raw()
samba_rl.report.run.run_pictures(made(trials=1, controls=0), Path(sys.argv[1]))
assert raw() == before and "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError("no", name="matplotlib")
        return real(name, *rest, **more)

    real = builtins.__import__
    run = made(trials=1)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match=r"'matplotlib'; install it with: pip install 'samba-rl\[figures\]'"):
        run_pictures(run, tmp_path)


def test_what_cannot_be_drawn_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no real trial yet"):
        run_pictures(made(trials=0), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write the pictures to .*/file"):
        run_pictures(made(trials=1), tmp_path / "file")
