"""`samba-rl tasks`."""

import json
from pathlib import Path

import pytest

from samba_rl.cli import main


def test_tasks_lists_dimensions_limits_and_hazards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    text = capsys.readouterr().out
    for words in ("safe-pendulum", "SafeFetchReach-v0", "torque ±2 [Nm]", "force ±20 [N]", "unsafe 20°..30°"):
        assert words in text
    assert main(["tasks", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert [len(task["states"]) for task in described] == [2, 6, 9]
    assert described[0]["actions"] == [{"name": "torque", "unit": "Nm", "low": -2.0, "high": 2.0}]


def test_a_system_of_ones_own_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from samba_rl import GymTask\nfrom tests.tasks.own_envs import Goal\n\n\n"
        "def task():\n    return GymTask(Goal, horizon=4, name='goal', actions=['east [N]', 'north [N]'])\n"
    )
    assert main(["tasks", f"{mine}:task"]) == 0
    text = capsys.readouterr().out
    assert "at 0 ±10, at 1 ±10, goal 0 ±10, goal 1 ±10" in text and "east ±1 [N], north ±2 [N]" in text
    assert main(["tasks", f"{mine}:task", "--json"]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    assert (described["name"], described["id"], described["horizon"]) == ("goal", "", 4)
