"""Curves for Weights & Biases, with a stand-in for the package."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from samba_rl import UserError
from samba_rl.events import Notice
from samba_rl.learners import LEARNERS
from samba_rl.presets import make_settings
from samba_rl.runs.session import About
from samba_rl.runs.wandb import WandbLog
from tests.cli.test_progress import IMPROVEMENT, TRIAL

ABOUT = About("samba", LEARNERS["samba"], "smoke", 3, make_settings("line"), "cpu")


class FakeRun:
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.ended = 0

    def log(self, values: dict[str, float]) -> None:
        self.rows.append(values)

    def finish(self) -> None:
        self.ended += 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was asked of the package: the arguments of init, and the run that it made."""
    asked: dict[str, Any] = {}

    def init(**arguments: Any) -> FakeRun:
        asked.update(arguments, run=FakeRun())
        run: FakeRun = asked["run"]
        return run

    module = ModuleType("wandb")
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return asked


def test_curves_go_to_the_project(fake: dict[str, Any], tmp_path: Path) -> None:
    log = WandbLog("lab", tmp_path / "run", ABOUT, "line")
    assert (fake["project"], fake["name"], fake["id"]) == ("lab", "run", "run")
    assert fake["config"] == {"system": "line", "learner": "samba", "preset": "smoke", "seed": 3}
    for event in (TRIAL, Notice("look"), IMPROVEMENT, replace(IMPROVEMENT, lambda_pi=0.7)):
        log(event)
    log.close()
    rows = fake["run"].rows
    assert len(rows) == 3 and fake["run"].ended == 1
    assert rows[0]["real_samples"] == 20 and rows[0]["trial/return"] == -12.5 and "model/surprise" not in rows[0]
    assert [row["control_iterations"] for row in rows[1:]] == [1, 2]
    assert [row["policy/lambda_pi"] for row in rows[1:]] == [0.6, 0.7]


def test_a_resumed_run_goes_on_where_it_was(fake: dict[str, Any], tmp_path: Path) -> None:
    log = WandbLog("lab", tmp_path / "run", ABOUT, "line", [TRIAL, IMPROVEMENT, Notice("x"), IMPROVEMENT])
    log(IMPROVEMENT)
    assert fake["resume"] == "allow" and [row["control_iterations"] for row in fake["run"].rows] == [3]


def test_what_cannot_be_used_is_explained(
    fake: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> FakeRun:
        raise RuntimeError("api_key not configured")

    monkeypatch.setattr(sys.modules["wandb"], "init", refuse)
    with pytest.raises(UserError, match="--wandb lab: Weights & Biases cannot be used: api_key not configured"):
        WandbLog("lab", tmp_path, ABOUT, "line")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="pip install wandb"):
        WandbLog("lab", tmp_path, ABOUT, "line")
