"""Every example runs as a user would run it, with a budget of seconds."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.threads import one_thread

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(name: str, *arguments: str) -> None:
    """Run an example as `python examples/NAME ARGUMENTS` does."""
    with pytest.MonkeyPatch.context() as patch, one_thread():
        patch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_train_and_look_then_load_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    run("train_and_look.py", "runs/quick", "smoke")
    said = capsys.readouterr().out
    assert re.search(r"^  120 real steps: return +-\d", said, flags=re.M)
    assert re.search(r"^CVaR 0.9 of the hazard cost of a trajectory: \d.*, limit 0.75$", said, flags=re.M)
    pictures = re.findall(r"^wrote (.+)$", said, flags=re.M)
    assert len(pictures) == 3 and all((tmp_path / picture).stat().st_size for picture in pictures)
    run("load_and_plot.py", "runs/quick")
    said = capsys.readouterr().out
    assert "120 transitions" in said and "with noise: return" in said and "without noise: return" in said
    assert (tmp_path / "runs" / "quick" / "learning.png").stat().st_size


def test_own_system(capsys: pytest.CaptureFixture[str]) -> None:
    run("own_system.py", "smoke")
    said = capsys.readouterr().out
    assert said.startswith("250 real steps") and re.search(r"CVaR of its safety cost \d.*, limit 1.0$", said.strip())


def test_rig_by_hand_spends_its_budget(capsys: pytest.CaptureFixture[str]) -> None:
    run("rig_by_hand.py", "smoke")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in lines] == [
        "60 of 120 steps", "90 of 120 steps", "120 of 120 steps", "final policy",
    ]  # fmt: skip


def test_own_learner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("own_learner.py", "runs/quick", "smoke")
    said = capsys.readouterr().out
    assert "share of trajectories that are unsafe" in said and "limit 0.1" in said
    config = (tmp_path / "runs" / "quick" / "config.json").read_text()
    assert all(word in config for word in ('"uncertainty"', '"chance"', '"trust-region"'))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_each_example_is_tested_short_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert f'run("{path.name}"' in Path(__file__).read_text(encoding="utf-8")
    assert f"python examples/{path.name}" in (ast.get_docstring(ast.parse(text)) or "")
    assert len(text.splitlines()) <= 75
