"""Other processes that hold locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import final

ROOT = Path(__file__).parents[2]
OTHERS = """
import os, sys, time
from pathlib import Path
from samba_rl.runs.lock import Lock
print("ready", flush=True)
for line in sys.stdin:
    what, folder = line.rstrip("\\n").split(" ", 1)
    if os.fork() == 0:
        lock = Lock(Path(folder))
        if what == "fork" and os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        if what == "fork":
            lock.release()
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
"""
"""Makes a process that holds a folder for every line "hold <folder>", and answers with its id."""


@final
class Others:
    """Other processes that hold folders."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHERS],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._answer() == "ready"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def hold(self, folder: Path, what: str = "hold") -> int:
        """One more holds this folder; its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what} {folder}\n")
        self._process.stdin.flush()
        return int(self._answer())

    def close(self) -> None:
        """End them all: they are a group of their own."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
