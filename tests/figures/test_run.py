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
from numpy.testing import assert_allclose
from PIL import Image

from samba_rl import UserError
from samba_rl.figures.run import learning_curve, run_pictures, safety
from tests.figures.runs import CHANCE, CVAR, made

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


def test_many_trials_are_drawn_without_markers() -> None:
    above, _ = learning_curve(made(trials=61, controls=0)).axes
    assert {line.get_marker() for line in above.get_lines()} == {""}


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


def test_letters_are_large_enough_and_nothing_overlaps() -> None:
    figure = safety(made(constraints=(CVAR, CHANCE)))
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
import samba_rl.figures.run, samba_rl.figures.film
assert "matplotlib" not in sys.modules and "imageio_ffmpeg" not in sys.modules
import matplotlib
from pathlib import Path
from tests.figures.runs import made
def raw():  # looking the backend up in the ordinary way would choose one
    return {key: dict.get(matplotlib.rcParams, key) for key in matplotlib.rcParams}
before = raw()
samba_rl.figures.run.run_pictures(made(trials=1, controls=0), Path(sys.argv[1]))
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
