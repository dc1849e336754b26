"""Folders that cannot be written to: every command says so in one line, and changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from samba_rl.cli import main
from samba_rl.cli.display import MISSED
from samba_rl.errors import Stopped
from samba_rl.runs import train
from tests.line import Line
from tests.runs.disk import Disk
from tests.threads import one_thread

LINE = f"{Path(__file__).parents[1] / 'line.py'}:make_line"
QUICK = {"preset": "smoke", "seed": 1, "real_samples": 40, "first": {"samples": 20}, "checkpoint_every": 0.0}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interrupted run, a finished one, and a finished one that is damaged."""
    home = tmp_path_factory.mktemp("runs")
    heard: list[object] = []
    with one_thread():
        with pytest.raises(Stopped):
            train(Line(), "ppo", out=home / "half", log=heard.append, stop=lambda: len(heard) > 1, **QUICK)  # type: ignore[arg-type]
        train(Line(), "ppo", out=home / "done", **QUICK)  # type: ignore[arg-type]
    shutil.copytree(home / "done", home / "hurt")
    (home / "hurt" / "policy.npz").write_bytes(b"hurt")
    return home


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


COMMANDS = {
    "half": (["resume", "RUN", "--task", LINE], ["verify", "RUN", "--repair", "--task", LINE], ["runs", "RUN"]),
    "done": (["resume", "RUN", "--task", LINE, "--no-pictures"], ["eval", "RUN", "--task", LINE, "--steps", "20"]),
    "hurt": (["verify", "RUN", "--repair", "--task", LINE], ["resume", "RUN", "--task", LINE]),
}


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_in_a_folder_that_cannot_be_written_to(
    code: int, name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / name, folder)
    before = content(tmp_path)
    for command in COMMANDS[name]:
        disk = Disk(tmp_path)
        with disk.recording():
            disk.fail(1, code, on=True)
            ended = main([str(folder) if part == "RUN" else part for part in command])
        said = capsys.readouterr().err
        assert "Traceback" not in said and said.count("\n") <= 1, said
        if disk.failed:
            # A damaged run is refused before anything is written.
            assert ended == 2 and str(folder) in said and (os.strerror(code) in said or "is damaged" in said)
        else:
            assert ended in (0, MISSED) or "samba-rl verify" in said
        assert content(tmp_path) == before
    assert main(["train", "safe-pendulum", "--out", str(folder)]) == 2
