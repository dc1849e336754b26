"""Limits that are not kept: the last lines of `train`, `resume` and `eval`, the exit status, and the list of runs."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from samba_rl.cli import main
from samba_rl.cli.display import MISSED, print_breaches
from samba_rl.runs.limits import Breach
from samba_rl.runs.summary import summary_of
from tests.cli.commands import LINE, QUICK

LINE_IN_DANGER = "from tests.line import Line\n\n\ndef task():\n    return Line(goal=1.0)\n"
"""A system whose goal lies where it is unsafe."""


def last_lines(capsys: pytest.CaptureFixture[str], count: int = 1) -> list[str]:
    return capsys.readouterr().out.rstrip().splitlines()[-count:]


@pytest.fixture(scope="module")
def unsafe(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of an evaluated run of a learner without a model, far above its limit, and its system."""
    home = tmp_path_factory.mktemp("unsafe")
    (home / "danger.py").write_text(LINE_IN_DANGER)
    task = f"{home / 'danger.py'}:task"
    flags = ["--learner", "sppo", "--preset", "smoke", "--constraint.limit", "0.01", "--no-pictures", "--no-report"]
    assert main(["train", task, *flags, "--out", str(home / "run")]) == MISSED
    return home / "run", task


def test_a_run_that_was_measured_above_its_limit_ends_with_it_and_a_status_of_its_own(
    unsafe: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    run, task = unsafe
    assert json.loads((run / "summary.json").read_text())["limit_kept"] is None
    words = "The limit is not kept. mean of the edge cost of a trajectory is measured above its limit: "
    assert main(["resume", str(run), "--task", task]) == MISSED == 4
    (line,) = last_lines(capsys)
    assert line.startswith(words) and line.endswith(", limit 0.01.")
    assert main(["eval", str(run), "--task", task]) == 0
    assert last_lines(capsys)[0].startswith(words)
    assert main(["runs", str(run.parent)]) == 0
    assert "broken" in capsys.readouterr().out
    assert main(["runs", str(run)]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "limit not kept mean of the edge cost of a trajectory is measured above its limit" in text
    assert main(["runs", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["limit_kept"] is False and len(told["missed"]) == 1


def test_without_an_evaluation_only_the_model_has_a_say(
    unsafe: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(unsafe[0], tmp_path / "run"))
    (run / "evaluation.json").unlink()
    assert main(["resume", str(run), "--task", unsafe[1], *QUICK]) == 0
    assert "not kept" not in capsys.readouterr().out
    assert main(["runs", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["limit_kept"] is None
    # With one the same run is judged when it is resumed.
    assert main(["resume", str(run), "--task", unsafe[1], "--no-pictures", "--no-report"]) == MISSED


@pytest.mark.parametrize("kept", [False, True])
def test_the_verdict_of_the_model_decides_too(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def judged(*of: Any) -> dict[str, Any]:
        found = summary_of(*of)
        (limit,) = found["constraints"]
        limit.update(bound=4.35, accepted=0.73)
        return {**found, "limit_kept": kept}

    monkeypatch.setattr("samba_rl.runs.training.summary_of", judged)
    out = str(tmp_path / "run")
    status = 0 if kept else MISSED
    assert main(["train", LINE, "--preset", "smoke", "--out", out, *QUICK]) == status
    words = "The limit is not kept. CVaR 0.9 of the edge cost of a trajectory is bounded by 4.35 on the model; "
    words += "0.73 is accepted, limit 0.75."
    assert (last_lines(capsys) == [words]) is not kept
    # A finished run that is loaded again.
    assert main(["resume", out, "--task", LINE, *QUICK]) == status
    assert (last_lines(capsys) == [words]) is not kept


def test_the_verdict_is_red_and_comes_last() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=200, highlight=False)
    expected, broken = Breach("[x] is measured above its limit", expected=True), Breach("y is bounded by 3")
    assert print_breaches(console, [broken, expected]) == MISSED
    first, last = out.getvalue().splitlines()
    assert first == "\x1b[33mThe limit cannot be met.\x1b[0m [x] is measured above its limit."
    assert last.startswith("\x1b[1;31mThe limit is not kept.\x1b[0m y is bounded by ")
    assert print_breaches(console, [expected]) == 0 == print_breaches(console, [])


def test_the_help_says_what_the_status_means(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["train"], ["resume"]):
        with pytest.raises(SystemExit):
            main([*arguments, "--help"])
        assert "Exits with 4 if the" in " ".join(capsys.readouterr().out.split())
