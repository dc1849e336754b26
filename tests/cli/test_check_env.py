"""`samba-rl check-env`."""

import json
from pathlib import Path

import pytest

from samba_rl.cli import main
from tests.cli.commands import error_of, samba_rl

MINE = """
def mixed(x, u):
    return x[..., 0] - x[..., 0].mean()

def good(x, u):
    return x[..., 0].abs().clamp(max=1)
"""


def test_check_env_says_what_is_wrong_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "Pendulum-v1"]) == 1
    text = capsys.readouterr().out
    assert "no safety cost" in text and "cannot be used yet: 1 problem." in text
    assert main(["check-env", "CartPole-v1"]) == 1
    assert "not continuous" in capsys.readouterr().out
    (tmp_path / "mine.py").write_text(MINE)
    assert main(["check-env", "Pendulum-v1", "--safety", f"{tmp_path / 'mine.py'}:mixed", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["problems"] == 1
    assert "does not work on batches" in next(f["text"] for f in answer["findings"] if f["level"] == "problem")
    assert main(["check-env", "Pendulum-v1", "--safety", f"{tmp_path / 'mine.py'}:good"]) == 0
    text = capsys.readouterr().out
    assert "Pendulum-v1 can be used with learners on real trials and planet only" in " ".join(text.split())


def test_functions_of_modules_beside_the_caller_are_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    result = samba_rl("check-env", "Pendulum-v1", "--safety", "mine:good", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


OWN = """
from samba_rl import GymTask
from tests.tasks.own_envs import Drift, danger


def task(env=Drift, **more):
    return GymTask(env, **{"cost": lambda x, u: x[..., 0].abs(), "safety": danger, "horizon": 10, **more})


def wrong():
    return task(cost=lambda x, u: -x[..., 0].abs())


def boolean():
    return task(safety=lambda x, u: x[..., 0] > 1)


def rig():
    return task(Drift())
"""


def test_a_system_of_ones_own_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    mine = f"{tmp_path / 'mine.py'}:"
    assert main(["check-env", f"{mine}task"]) == 0
    assert "mine.py:task can be used." in capsys.readouterr().out.replace("\n", "")
    for name, words in (("wrong", "has the wrong sign"), ("boolean", "returned truth values")):
        assert main(["check-env", f"{mine}{name}", "--json"]) == 1
        answer = json.loads(capsys.readouterr().out)
        assert any(words in one["text"] for one in answer["findings"] if one["level"] == "problem")
    assert main(["check-env", f"{mine}Drift", "--horizon", "9"]) == 0
    assert "leave the flags out" in error_of(["check-env", f"{mine}task", "--horizon", "9"], capsys)
    assert "allow that with --on-rig" in error_of(["check-env", f"{mine}rig"], capsys)
    assert main(["check-env", f"{mine}rig", "--on-rig"]) == 0
    assert main(["check-env", "safe-pendulum"]) == 0
