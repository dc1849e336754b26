"""The figures of a run as files."""

from __future__ import annotations

import builtins
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from samba_rl import UserError
from samba_rl.improve.constraints import Chance, Constraint, CVaR
from samba_rl.learners import LEARNERS, RealTrials
from samba_rl.report.learning import learning_curve
from samba_rl.report.run import run_pictures
from samba_rl.report.safety import safety
from samba_rl.runs import train
from tests.report.panels import words
from tests.report.runs import made
from tests.threads import one_thread

NAMES = ("learning-curve", "state-space", "safety")


def test_pictures_are_written(tmp_path: Path) -> None:
    paths = run_pictures(made(), tmp_path / "new" / "pictures")
    assert [path.name for path in paths] == [f"{name}.png" for name in NAMES]
    for path in paths:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"), dtype=np.int64)
        assert pixels.shape[1] == 1040 and 200 < pixels.shape[0] < 1400
        # White background, and the colours of several lines or of many states.
        assert (pixels == 255).all(-1).mean() > 0.4
        assert len(np.unique(pixels @ [65536, 256, 1])) > 100


def test_pdf_and_svg_are_written_if_asked_without_a_date(tmp_path: Path) -> None:
    first, second = (run_pictures(made(trials=1, controls=0), tmp_path / folder, pdf=True, svg=True) for folder in "ab")
    assert [path.name for path in first] == [f"{name}{suffix}" for name in NAMES for suffix in (".png", ".pdf", ".svg")]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert first[1].read_bytes().startswith(b"%PDF") and b"CreationDate" not in first[1].read_bytes()


WITHOUT_MODEL = [(name, row.constraint) for name, row in LEARNERS.items() if isinstance(row.source, RealTrials)]


@pytest.mark.parametrize(("learner", "kind"), [*WITHOUT_MODEL, ("sppo", CVaR), ("cpo", Chance)])
def test_figures_of_learners_without_a_model_do_not_mention_one(
    learner: str, kind: type[Constraint] | None, tmp_path: Path
) -> None:
    with one_thread():
        run = train("safe-pendulum", replace(LEARNERS[learner], constraint=kind), name=learner, preset="smoke")
    for figure in (learning_curve(run), safety(run)):
        written = words(figure)
        assert "real trial" in written and learner in written
        assert not [word for word in ("model", "predict", "imagin", "control iteration", "nan") if word in written]
    (label,) = [axes.get_xlabel() for axes in safety(run).axes if axes.get_xlabel()]
    assert label == ("real trial (after each, an update of the policy)" if kind is not None else "real trial")
    assert len(run_pictures(run, tmp_path)) == 3


def test_nothing_outside_the_figure_is_changed(tmp_path: Path) -> None:
    code = """
import sys
import samba_rl.report.run, samba_rl.report.film
assert "matplotlib" not in sys.modules and "imageio_ffmpeg" not in sys.modules
import matplotlib
from pathlib import Path
from tests.report.runs import made
def raw():  # an ordinary look-up of the backend would choose one
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


def test_the_reason_is_given_if_nothing_can_be_drawn_or_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no real trial yet"):
        run_pictures(made(trials=0), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*/file/learning-curve\.png"):
        run_pictures(made(trials=1), tmp_path / "file")
