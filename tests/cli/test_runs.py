"""`samba-rl runs`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samba_rl.cli import main
from samba_rl.errors import Stopped
from samba_rl.learners import LEARNERS
from samba_rl.models.zeta import Entropy
from samba_rl.runs import train
from samba_rl.runs.lock import Lock
from tests.line import Line
from tests.threads import one_thread


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, an interrupted one, and one that has not measured anything."""
    folder = tmp_path_factory.mktemp("runs")
    heard: list[object] = []
    with one_thread():
        train(Line(), preset="smoke", seed=4, out=folder / "done")
        with pytest.raises(Stopped):
            train(Line(), "ppilco", preset="smoke", out=folder / "deep" / "half", log=heard.append,
                  stop=lambda: len(heard) >= 4)  # fmt: skip
    return folder


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    """To be damaged."""
    return Path(shutil.copytree(home, tmp_path / "copy"))


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["runs", str(folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {Path(row["folder"]).name: row for row in rows}


def test_runs_are_listed_with_state_samples_and_last_figures(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = listed(home, capsys)
    assert {name: row["state"] for name, row in rows.items()} == {"done": "finished", "half": "interrupted"}
    done, half = rows["done"], rows["half"]
    assert (done["task"], done["learner"], done["seed"], done["budget"]) == ("line", "samba", 4, 120)
    assert done["real_samples"] == 120 and 60 <= half["real_samples"] < 120
    assert done["return_mean"] < 0 and done["learning_TC"] >= 0 and done["seconds"] > 0
    assert main(["runs", str(home)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^done +finished +120/120 +-\d+\.\d +\d+ +\d+\.\d +– +just now *$", text, re.M)
    assert re.search(r"^deep/half +interrupted +\d+/120 ", text, re.M)
    assert f"samba-rl resume {home / 'deep' / 'half'} --task FILE.py:FUNCTION" in text
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["runs", str(home)]) == 0
    assert re.search(r"^done +finished +line +samba +4 +120/120 ", capsys.readouterr().out, re.M)


def test_what_differs_from_the_preset_and_how_the_system_was_named_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[object] = []
    row, limit = LEARNERS["samba"].with_zeta(Entropy()), {"limit": 1.5}
    for name, named in (("one run", "mine.py:task"), ("other", "lab/x.py:f")):
        heard.clear()
        with pytest.raises(Stopped):
            train(Line(), row, name="samba", preset="smoke", out=tmp_path / name, log=heard.append, named=named,
                  stop=lambda: len(heard) >= 2, constraint=limit)  # fmt: skip
    rows = listed(tmp_path, capsys)
    assert rows["one run"]["changes"] == ["zeta entropy", "constraint.limit 1.5"]
    assert rows["other"]["named"] == "lab/x.py:f"
    for width in ("80", "160"):
        monkeypatch.setenv("COLUMNS", width)
        assert main(["runs", str(tmp_path)]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "zeta entropy, constraint.limit 1.5" in text
        assert "resume RUN --task lab/x.py:f or samba-rl resume RUN --task mine.py:task" in text
    assert main(["runs", str(tmp_path / "one run")]) == 0
    text = capsys.readouterr().out
    assert "line (mine.py:task)" in text and "zeta entropy, constraint.limit 1.5" in text
    assert f"samba-rl resume '{tmp_path / 'one run'}' --task mine.py:task" in text
    assert main(["resume", str(tmp_path / "other")]) == 2
    assert "or --task lab/x.py:f as it was" in capsys.readouterr().err


def test_a_run_that_is_written_to_is_running(home: Path, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = Lock(copy / "deep" / "half")
    try:
        assert listed(copy, capsys)["half"]["state"] == "running"
    finally:
        lock.release()
    assert listed(copy, capsys)["half"]["state"] == "interrupted"


@pytest.mark.parametrize(
    ("damage", "state", "problem"),
    [
        (lambda run: (run / "config.json").write_text("{"), "damaged", "config.json is damaged"),
        (lambda run: (run / "summary.json").write_text("[]"), "damaged", "summary.json has 2 bytes instead of"),
        (lambda run: (run / "real.journal").unlink(), "damaged", "real.journal cannot be read"),
        (lambda run: (run / "policy.npz").write_bytes(b"PK"), "damaged", "policy.npz has 2 bytes instead of"),
        (lambda run: (run / "metrics.jsonl").write_text('{"kind": "tri'), "damaged", "metrics.jsonl has 13"),
        (
            lambda run: (run / "metrics.jsonl").write_text('{"kind": "trial", "real_samples": "x"}\n'),
            "damaged",
            "metrics.jsonl has 39 bytes",
        ),
    ],
)
def test_what_is_damaged_is_said_and_the_others_are_listed(
    damage: Callable[[Path], object], state: str, problem: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(copy / "done")
    rows = listed(copy, capsys)
    assert rows["done"]["state"] == state and problem in rows["done"]["problem"]
    assert rows["half"]["state"] == "interrupted"
    assert main(["runs", str(copy)]) == 0
    assert problem in capsys.readouterr().out.replace("\n", " ")


def test_a_damaged_last_checkpoint_is_said(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = copy / "deep" / "half"
    *_, last = sorted((half / "checkpoints").iterdir())
    (last / "agent.state").unlink()
    row = listed(copy, capsys)["half"]
    assert row["state"] == "interrupted" and "agent.state is missing" in row["problem"]


def test_one_run_is_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(home / "done")]) == 0
    text = capsys.readouterr().out
    for part in ("finished", "line", "samba, preset smoke, seed 4", "120/120", "real.journal", "samba-rl eval"):
        assert part in text
    assert main(["runs", str(home / "deep" / "half")]) == 0
    assert "samba-rl resume" in capsys.readouterr().out
    assert main(["runs", str(home / "done"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "finished"


def test_names_from_a_file_cannot_take_over_the_terminal(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = copy / "done" / "config.json"
    evil = "[red]line[/]\x1b[2J\r\x07"
    config.write_text(json.dumps({**json.loads(config.read_text()), "task": evil, "learner": evil}))
    with open(copy / "done" / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"kind": "notice", "text": f"{evil} is here"}) + "\n")
    for arguments in ([str(copy)], [str(copy / "done")]):
        assert main(["runs", *arguments]) == 0
        text = capsys.readouterr().out
        assert "\x1b[2J" not in text and "\x07" not in text and "\r" not in text
    assert "[red]line[/]" in text and "\\x1b[2J" in text
    assert main(["eval", str(copy / "done")]) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error and "\\x1b[2J" in error


def test_where_there_are_none_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert "There are no runs in" in capsys.readouterr().out
    assert main(["runs", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
