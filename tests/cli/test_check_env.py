"""`samba-rl check-env`."""

import json
from pathlib import Path

import pytest

from samba_rl.cli import main
from tests.cli.commands import samba_rl

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
    assert "Pendulum-v1 can be used" in capsys.readouterr().out


def test_functions_of_modules_beside_the_caller_are_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    result = samba_rl("check-env", "Pendulum-v1", "--safety", "mine:good", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
