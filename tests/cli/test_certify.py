"""`samba-rl certify`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samba_rl import load_run, train
from samba_rl.cli import main
from samba_rl.errors import UserError
from samba_rl.runs.certify import CERTIFICATE
from samba_rl.tasks.world import EquationsWorld
from tests.cli.commands import LINE, error_of
from tests.line import Line, quick_settings


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has a limit of 4, one with a limit of 0, and one without a limit."""
    home = tmp_path_factory.mktemp("certify")
    for name, limit in (("careful", 4.0), ("strict", 0.0)):
        settings: Any = quick_settings("sppilco")
        settings = replace(settings, constraint=replace(settings.constraint, limit=limit))
        train(Line(), "sppilco", settings=settings, out=home / name)
    train(Line(), "ppilco", settings=quick_settings("ppilco"), out=home / "free")
    return home


def certified(run: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["certify", str(run), "--task", LINE, "--json", *arguments])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, found


def test_the_verdict_decides_the_exit_status(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = certified(runs / "careful", capsys)
    assert status == 0 and found["certified"] is True and found["episodes"] == 2000 and found["confidence"] == 0.95
    (limit,) = found["limits"]
    assert limit["value"] <= limit["bound"] <= limit["limit"] == 4
    status, found = certified(runs / "strict", capsys)
    assert status == 1 and found["certified"] is False
    status, found = certified(runs / "careful", capsys, "--episodes", "20")
    assert status == 1 and found["episodes"] == 20 < found["limits"][0]["needed"] < 2000


def test_the_result_is_printed_and_kept(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs / "careful"
    status, found = certified(run, capsys, "--seed", "3", "--confidence", "0.9", "--deterministic")
    assert status == 0 and json.loads((run / CERTIFICATE).read_text()) == found
    same = load_run(run, Line()).certify(2000, 0.9, seed=3, deterministic=True)
    assert json.loads(json.dumps(same.to_json())) == found and found["deterministic"] is True
    assert main(["certify", str(run), "--task", LINE, "--seed", "3"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "With 95 % confidence CVaR 0.9 of the edge cost of a trajectory is at most " in words
    assert "(limit 4): certified." in words and "2,000 episodes with noise, seed 3" in words
    assert main(["certify", str(run), "--task", LINE, "--seed", "3", "--episodes", "10"]) == 1
    words = " ".join(capsys.readouterr().out.split())
    assert "(limit 4): not certified; about " in words and "if the policy behaves as in these." in words


def test_seeds_are_fresh(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, one = certified(runs / "careful", capsys)
    _, other = certified(runs / "careful", capsys)
    assert one["seed"] != other["seed"]
    assert certified(runs / "careful", capsys, "--seed", str(one["seed"]))[1] == one


def test_a_larger_step_bound_has_a_larger_bound(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = [
        certified(runs / "careful", capsys, "--seed", "7", "--step-bound", bound)[1]["limits"][0]["bound"]
        for bound in ("1", "5")
    ]
    assert bounds[1] > 2 * bounds[0]


def test_another_limit_can_be_certified(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = certified(runs / "careful", capsys, "--seed", "7")[1]["limits"][0]
    status, found = certified(runs / "careful", capsys, "--seed", "7", "--limit", "0")
    (limit,) = found["limits"]
    assert status == 1 and limit == {**limit, **{name: usual[name] for name in ("words", "value", "bound")}}
    assert limit["limit"] == 0 and limit["needed"] is None is limit["least"]
    # A learner without a limit has one now: on CVaR at the level of its settings.
    status, found = certified(runs / "free", capsys, "--episodes", "50", "--limit", "10")
    (limit,) = found["limits"]
    assert status == 0 and limit["words"] == "CVaR 0.9 of the edge cost of a trajectory" and limit["bound"] <= 10


def test_ctrl_c_ends_it_without_a_certificate(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(runs / "careful", tmp_path / "run"))
    (run / CERTIFICATE).unlink(missing_ok=True)
    closed: list[bool] = []
    monkeypatch.setattr(EquationsWorld, "close", lambda self: closed.append(True))

    def stopped(*of: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("samba_rl.runs.certify._check_steps", stopped)
    assert main(["certify", str(run), "--task", LINE]) == 130
    assert capsys.readouterr().err.strip().endswith("samba-rl: interrupted")
    assert closed == [True] and not (run / CERTIFICATE).exists()


def test_what_was_measured_is_shown_even_if_it_cannot_be_kept(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*of: object) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr("samba_rl.runs.folder.write_json", full)
    assert main(["certify", str(runs / "careful"), "--task", LINE, "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["certified"] is True and err == "samba-rl: the disk is full\n"


def test_mistakes_get_one_line(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    careful = [str(runs / "careful"), "--task", LINE]
    for arguments, message in (
        ([str(runs / "free"), "--task", LINE], "the run of ppilco has no limit, so there is nothing to certify; give"),
        ([*careful, "--limit", "-1"], "limit = -1.0: must be at least 0 and at most 1e12"),
        ([*careful, "--limit", "nan"], "limit = nan: must be at least 0 and at most 1e12"),
        ([*careful, "--seed", "0"], "seed 0 is that of the run, which has learned from these start states"),
        ([*careful, "--seed", "-3"], "seed = -3: must be at least 0 and below 9223372036854775808"),
        ([*careful, "--seed", str(2**80)], f"seed = {2**80}: must be at least 0 and below 9223372036854775808"),
        ([*careful, "--confidence", "1"], "confidence = 1.0: must be at least 0.5 and below 1"),
        ([*careful, "--step-bound", "-1"], "step_bound = -1.0: must be above 0 and at most 1e12"),
        ([*careful, "--episodes", "0"], "episodes = 0: must be at least 1 and at most 1e7"),
        ([str(runs)], "holds no run: it has no config.json"),
    ):
        assert message in error_of(["certify", *arguments], capsys)


def test_a_rig_runs_no_episode_unasked(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rig = tmp_path / "rig.py"
    rig.write_text(
        "from dataclasses import replace\nfrom tests.line import Line\n\n\ndef task():\n"
        "    return replace(Line(), parallel=False)\n"
    )
    arguments = ["certify", str(runs / "careful"), "--task", f"{rig}:task"]
    message = "line runs one episode at a time; say how many it may run with --episodes N"
    assert message in error_of(arguments, capsys)
    assert main([*arguments, "--episodes", "3"]) == 1
