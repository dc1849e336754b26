"""Helpers that run commands."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samba_rl.cli import main
from samba_rl.cli.display import MISSED

ROOT = Path(__file__).parents[2]
LINE = f"{ROOT / 'tests' / 'line.py'}:make_line"
"""A system of one's own, as a user names it."""
DONE = (0, MISSED)
"""Exit codes of finished runs; a short one may not have learned to keep its limit."""
QUICK = ["--no-pictures", "--no-evaluation", "--no-report"]


def samba_rl(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "samba_rl", *arguments], capture_output=True, text=True, timeout=120, cwd=cwd
    )


def error_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must fail with an error of one line, and return that line."""
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("samba-rl: ") and error.count("\n") == 1
    return error


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
