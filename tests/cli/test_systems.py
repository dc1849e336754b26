"""The commands that look at systems, as their users meet them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samba_rl.cli import main

MINE = """
def mixed(x, u):
    return x[..., 0] - x[..., 0].mean()

def good(x, u):
    return x[..., 0].abs().clamp(max=1)
"""


def samba_rl(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "samba_rl", *arguments], capture_output=True, text=True, timeout=120, cwd=cwd
    )


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    text = capsys.readouterr().out
    assert exit_.value.code == 0
    for word in ("train", "eval", "render", "tasks", "check-env", "rollout", "every real trial is expensive"):
        assert word in text


def test_tasks_lists_dimensions_limits_and_hazards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    text = capsys.readouterr().out
    for words in ("safe-pendulum", "SafeFetchReach-v0", "torque ±2 [Nm]", "force ±20 [N]", "unsafe 20°..30°"):
        assert words in text
    assert main(["tasks", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert [len(task["states"]) for task in described] == [2, 6, 9]
    assert described[0]["actions"] == [{"name": "torque", "unit": "Nm", "low": -2.0, "high": 2.0}]


def test_rollout_writes_pictures_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "safe-pendulum", "--episodes", "20", "--seed", "3", "--out", str(tmp_path / "r")]) == 0
    figures = json.loads((tmp_path / "r" / "figures.json").read_text())
    assert figures["episodes"] == 20 and 0 < figures["steps"] <= 600 and figures["return_mean"] < 0
    low, median, high = figures["safety_quartiles"]
    assert 0 <= low <= median <= high and figures["clipped_actions"] == 0
    assert (tmp_path / "r" / "episode.png").stat().st_size > 1000
    assert (tmp_path / "r" / "episode.gif").read_bytes().startswith(b"GIF89a")
    assert "mean return" in capsys.readouterr().out
    main(["rollout", "safe-pendulum", "--episodes", "20", "--seed", "3", "--out", str(tmp_path / "again")])
    again = json.loads((tmp_path / "again" / "figures.json").read_text())
    assert {**again, "steps_per_s": 0} == {**figures, "steps_per_s": 0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rollout", "safe-pendulun"], "no system is called 'safe-pendulun'; did you mean 'safe-pendulum'?"),
        (["rollout", "safe-pendulum", "--episodes", "0"], "--episodes 0: at least 1 is needed"),
        (["rollout", "safe-fetch-reach", "--workers", "-2"], "workers = -2"),
        (["rollout", "safe-pendulum", "--episodes", "2", "--out", "/dev/null/x"], "cannot write /dev/null/x"),
        (["check-env", "X-v0", "--safety", "nofunction"], "write module:function or file.py:function"),
        (["check-env", "X-v0", "--safety", "none.py:f"], "there is no file none.py"),
        (["check-env", "X-v0", "--safety", "no_such_module:f"], "the module 'no_such_module'"),
        (["check-env", "X-v0", "--cost", "math:nothing"], "math has no function 'nothing'"),
        ([], "Expected one of {train, resume,"),
        (["rol"], "no command is called 'rol'; did you mean 'rollout'?"),
        (["rollout"], "Missing from samba-rl rollout: SYSTEM"),
        (["rollout", "safe-pendulum", "--epsodes", "3"], "--epsodes, 3; perhaps you meant --episodes; see samba-rl"),
        (["rollout", "safe-pendulum", "--seed", "x"], "Error parsing --seed: invalid literal for int()"),
    ],
)
def test_mistakes_get_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("samba-rl: ") and error.count("\n") == 1


def test_a_mistake_is_one_line_of_the_program_too() -> None:
    result = samba_rl("rollout", "safe-pendulum", "--epsodes", "3")
    assert result.returncode == 2 and "--episodes" in result.stderr and result.stderr.count("\n") == 1


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
    assert "Pendulum-v1 can be used" in capsys.readouterr().out


def test_functions_of_modules_beside_the_caller_are_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    result = samba_rl("check-env", "Pendulum-v1", "--safety", "mine:good", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("seconds", [2.5, 8])
def test_ctrl_c_ends_quietly(tmp_path: Path, seconds: float) -> None:
    """Also while the processes are starting (the first) and while they are stepping (the second)."""
    process = subprocess.Popen(
        [sys.executable, "-m", "samba_rl", "rollout", "safe-fetch-reach", "--episodes", "400", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.strip().splitlines()[-1] == "samba-rl: interrupted" and "Traceback" not in error
