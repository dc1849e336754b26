"""`samba-rl advise`: on a run, and on a system with data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samba_rl import UniformPolicy, rollout
from samba_rl.agents.agent import schema_of
from samba_rl.cli import main
from samba_rl.data import DataSet
from tests.cli.commands import LINE, error_of
from tests.line import Line
from tests.traces import seeded

pytest.importorskip("matplotlib")


@pytest.fixture
def pilot(tmp_path: Path) -> Path:
    task = Line()
    traces = rollout(task.world(), UniformPolicy((-0.5,), (1.0,)), 5, generator=seeded(0))
    DataSet.empty(schema_of(task)).append(traces).to_csv(tmp_path / "pilot.csv")
    return tmp_path / "pilot.csv"


def test_advice_on_data_is_printed_and_drawn(
    pilot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["advise", LINE, "--data", str(pilot), "--limits", "0.5", "--iterations", "1"]) == 0
    said = capsys.readouterr().out
    assert "Propose ξ = " in said and "ξ = 0.5: " in said and "5 episodes" in said
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")


def test_advice_on_a_run_knows_its_limit_and_its_policy(
    smoke_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "advice.pdf"
    assert main(["advise", str(smoke_run), "--iterations", "1", "--json", "-o", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["asked"] == [0.75] and found["answers"][0]["limit"] == 0.75
    assert found["points"][0]["name"] == "the policy of the run"
    assert found["support"]["samples"] == 120
    assert found["alpha"] == 0.9 and len(found["alphas"]) == len(found["points"][0]["tails"]) == 4
    assert found["frontier"] and set(found["frontier"]) <= {one["name"] for one in found["points"]}
    assert picture.is_file() and not (smoke_run / "advice.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "'nowhere' is neither the folder of a run nor a system"),
        (["safe-pendulum"], "advice on safe-pendulum needs data"),
        (["safe-pendulum", "--columns", "a=b"], "columns and data_dt belong to data"),
        ([LINE, "--data", "{pilot}", "missing.csv"], "missing.csv"),
        ([LINE, "--data", "{pilot}", "--columns", "y=z"], "columns: line has no 'y'"),
        ([LINE, "--data", "{pilot}", "--data-dt", "nan"], "must be above 0"),
        (["safe-pendulum", "--data", "missing.csv"], "missing.csv"),
        (["safe-pendulum", "--data", "{pilot}"], "has no column for the state 'θ'"),
        ([LINE, "--data", "{pilot}", "--kind", "cvr"], "no kind of limit is called 'cvr'; did you mean 'cvar'?"),
        ([LINE, "--data", "{pilot}", "--of", "heat"], "no safety cost is called 'heat'; available: edge"),
        ([LINE, "--data", "{pilot}", "--alpha", "1"], "alpha = 1.0: must be at least 0 and below 1"),
        ([LINE, "--data", "{pilot}", "--limits", "-1"], "limits.0 = -1.0: must be at least 0"),
        ([LINE, "--data", "{pilot}", "--iterations", "0"], "iterations = 0: must be at least 1"),
        ([LINE, "--data", "{pilot}", "-o", "advice.txt"], "must end in .png, .pdf or .svg"),
        ([LINE, "--task", LINE], "is not a run, so it names the system itself"),
        (["{run}", "--data", "{pilot}"], "is a run, which has its own data"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], words: str, smoke_run: Path, pilot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [one.format(run=smoke_run, pilot=pilot) for one in arguments]
    assert words in error_of(["advise", *given], capsys)
