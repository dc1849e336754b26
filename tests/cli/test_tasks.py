"""`samba-rl tasks`."""

import json

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
