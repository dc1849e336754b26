"""`samba-rl rollout`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samba_rl.cli import main
from tests.cli.commands import error_of, wait_for
from tests.cli.test_render import MINE, PARTS


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


def test_a_system_of_ones_own_runs_and_a_rig_only_as_often_as_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "mine.py").write_text(MINE)
    mine, out = f"{tmp_path / 'mine.py'}:", str(tmp_path / "out")
    assert main(["rollout", f"{mine}task", "--episodes", "4", "--workers", "0", "--out", out]) == 0
    figures = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert figures["task"] == "drift" and figures["episodes"] == 4
    assert "say how many it may run with --episodes N" in error_of(["rollout", f"{mine}rig", "--out", out], capsys)
    assert main(["rollout", f"{mine}rig", "--episodes", "2", "--out", out]) == 0
    assert json.loads((tmp_path / "out" / "figures.json").read_text())["episodes"] == 2


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes as Linux lists them")
@pytest.mark.parametrize("seconds", [1, 5])
def test_ctrl_c_ends_quietly(tmp_path: Path, seconds: float) -> None:
    """Also while the processes are starting (the first) and while they are stepping (the second)."""
    process = subprocess.Popen(
        [sys.executable, "-m", "samba_rl", "rollout", "safe-fetch-reach", "--episodes", "400", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(lambda: bool(children.read_text().split()))
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.strip().splitlines()[-1] == "samba-rl: interrupted" and "Traceback" not in error
