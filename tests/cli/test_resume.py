"""`samba-rl resume`, and the signals that stop `samba-rl train`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from samba_rl import load_run
from samba_rl.cli import main
from samba_rl.data import DataSet
from samba_rl.data.journal import Journal
from tests.cli.commands import DONE, LINE, QUICK, ROOT, error_of, wait_for
from tests.line import Line
from tests.threads import one_thread

TRAIN = ["train", LINE, "--preset", "smoke", "--threads", "1", "--imagination.iterations", "60", *QUICK]
"""Long enough to be stopped in the middle."""


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "samba_rl", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment, cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def rows(folder: Path) -> int:
    metrics = folder / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, undisturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with one_thread():
        assert main([*TRAIN, "--out", str(out)]) in DONE
    return out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_is_saved_and_goes_on_to_the_same_end(
    number: signal.Signals, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with started(*TRAIN, "--out", str(out)) as process:
        wait_for(lambda: rows(out) >= 20)
        process.send_signal(number)
        output, error = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in error
    assert "Stopping after the current trial or iteration; press Ctrl-C again to stop immediately." in error
    assert "Stopped and saved." in output and f"samba-rl resume {out} --task {LINE}" in output.replace("\n", "")
    before = rows(out)
    assert not (out / "summary.json").exists() and (out / "checkpoints").exists()
    with one_thread():
        assert main(["resume", str(out), "--task", LINE, *QUICK]) in DONE
    said = capsys.readouterr().out
    assert "trial 0 " not in said and "trial 6 " in said and "Next:" in said
    assert rows(out) == rows(whole) > before
    policies = [load_run(folder, Line()).policy.state_dict() for folder in (out, whole)]
    assert all(torch.equal(value, policies[1][name]) for name, value in policies[0].items())
    assert (out / "real.csv").read_bytes() == (whole / "real.csv").read_bytes()


def test_a_second_ctrl_c_stops_at_once_and_loses_no_trial(tmp_path: Path) -> None:
    out = tmp_path / "run"
    # Control iterations that take longer than anybody wants to wait.
    slow = ["--imagination.trajectories", "300000", "--feasibility-iterations", "0"]
    with started(*TRAIN, "--out", str(out), *slow) as process:
        wait_for(lambda: rows(out) >= 1)
        process.send_signal(signal.SIGINT)
        # Two signals during one operation would count as one.
        assert process.stderr is not None
        while "press Ctrl-C again" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=30)
    assert process.returncode == 130 and error.strip().splitlines()[-1] == "samba-rl: interrupted"
    assert "Traceback" not in error and "Stopped immediately." in output and "samba-rl resume" in output
    assert len(Journal.read(out / "real.journal")) == 1
    assert len(DataSet.from_csv(out / "real.csv")) == 60


def test_what_is_finished_is_not_run_again(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("[!.]*") if path.is_file()}
    with one_thread():
        assert main(["resume", str(whole), "--task", LINE, *QUICK]) in DONE
    after = {path: path.read_bytes() for path in whole.rglob("[!.]*") if path.is_file() and "tfevents" not in path.name}
    assert after.items() <= before.items()
    assert "Next:" in capsys.readouterr().out


def test_a_run_that_was_killed_while_it_was_evaluated_is_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with one_thread():
        assert main(["train", LINE, "--preset", "smoke", "--out", str(out), *QUICK]) in DONE
        assert not (out / "evaluation.json").exists()
        assert main(["resume", str(out), "--task", LINE]) in DONE
        assert (out / "evaluation.json").exists() and (out / "learning-curve.png").exists()
        capsys.readouterr()
        assert main(["resume", str(out), "--task", LINE]) in DONE
    assert "is already finished" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere holds no run: it has no config.json"),
        ([], "RUN"),
        (["{whole}"], "which is not one of the paper's systems; give the system"),
    ],
)
def test_mistakes_about_resuming_get_one_line(
    arguments: list[str], message: str, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in error_of(["resume", *(argument.format(whole=whole) for argument in arguments)], capsys)
