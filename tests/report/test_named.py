"""The paper's figures by name: drawing and writing them, wrong names, missing results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_array_equal

from samba_rl import SafePendulum, UserError
from samba_rl.benchmark.cells import CellResult, write_result
from samba_rl.cli.figures import figures
from samba_rl.report import named
from samba_rl.report.information import information
from samba_rl.tasks import TASKS
from tests.report.results import DOUBLE, FETCH, PENDULUM, result
from tests.threads import one_thread


def test_unknown_names_list_the_known_ones() -> None:
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
    with pytest.raises(UserError, match="is not a folder; give the results folder"):
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
            named.save(information(SafePendulum(), (6,), test_points=50), tmp_path / f"{i}.png")
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
    with pytest.raises(UserError, match="have no preset 'paper'; available: default"):
        figures("curves", results=Path("results"), preset="paper")
    assert Path("figures/trade-off.png").stat().st_size > 1000
    assert Path("new/curves.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(UserError, match=r"must end in \.png, \.pdf or \.svg"):
        figures("systems", out=Path("x.jpg"))
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
