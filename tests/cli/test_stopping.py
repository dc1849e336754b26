"""Signal handlers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from samba_rl.cli.stopping import Patient, polite_stop
from tests.cli.commands import QUICK, ROOT


def test_signals_are_as_before_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with polite_stop() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert "press Ctrl-C again" in capfd.readouterr().err


def test_a_reader_that_leaves_loses_the_rest_and_nothing_else_happens() -> None:
    end, begin = os.pipe()
    with os.fdopen(begin, "w", buffering=1) as stream:
        patient = Patient(stream)
        patient.write("heard\n")
        assert os.read(end, 100) == b"heard\n"
        os.close(end)
        for _ in range(3):
            assert patient.write("unheard\n") == 8
            patient.flush()


def test_head_does_not_stop_a_run(tmp_path: Path) -> None:
    arguments = ["train", "safe-pendulum", "--learner", "ppilco", "--preset", "smoke", "--out", str(tmp_path), *QUICK]
    process = subprocess.Popen(
        [sys.executable, "-m", "samba_rl", *arguments], stdout=subprocess.PIPE, cwd=ROOT, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(60) == 0 and (tmp_path / "summary.json").exists()
    process.stderr.close()
