"""Nothing runs on a rig beyond its budget unless a flag says how many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samba_rl.cli import main
from samba_rl.errors import UserError
from samba_rl.runs import load_run
from tests.cli.commands import DONE, ROOT, error_of
from tests.runs.systems import LOG, counting_rig, rig_steps

RIG = f"{ROOT / 'tests' / 'runs' / 'systems.py'}:counting_rig"
FLAGS = ["--preset", "smoke", "--real-samples", "20", "--first.samples", "10", "--no-pictures"]


def test_every_command_keeps_to_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noted, run, own = tmp_path / "noted", str(tmp_path / "run"), ["--task", RIG]
    monkeypatch.setenv(LOG, str(noted))
    assert main(["train", RIG, "--out", run, *FLAGS]) in DONE
    said = " ".join(capsys.readouterr().out.split())
    assert "Not evaluated" in said and f"samba-rl eval {run} --episodes 10 --task" in said
    assert len(rig_steps(noted)) == 20
    assert main(["resume", run, *own, "--no-pictures"]) in DONE
    assert "give a number of steps or episodes" in error_of(["eval", run, *own], capsys)
    assert "--episodes N" in error_of(["certify", run, *own], capsys)
    assert "--episodes N" in error_of(["render", run, str(tmp_path / "film.gif"), *own], capsys)
    with pytest.raises(UserError, match="is a rig"):
        load_run(run, counting_rig()).evaluate()
    pytest.importorskip("plotly")
    pytest.importorskip("jinja2")
    assert main(["report", run, *own, "-o", str(tmp_path / "report.html")]) == 0
    assert "It was not evaluated, because CountingRig is a rig" in (tmp_path / "report.html").read_text()
    assert len(rig_steps(noted)) == 20
    assert main(["eval", run, *own, "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 20
    assert len(rig_steps(noted)) == 40


def test_a_rig_is_evaluated_for_as_long_as_a_flag_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted, run = tmp_path / "noted", tmp_path / "run"
    monkeypatch.setenv(LOG, str(noted))
    assert main(["train", RIG, "--out", str(run), *FLAGS, "--evaluation-steps", "10"]) in DONE
    assert len(rig_steps(noted)) == 20 + 2 * 10
    assert json.loads((run / "evaluation.json").read_text())["with_noise"]["steps"] == 10
