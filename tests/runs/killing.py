"""Runs in processes of their own that are killed at a chosen moment.

A `Nursery` is a process that has imported everything and forks a child for each run, so that a run begins at once. The
child kills itself with SIGKILL: after some seconds, or inside the n-th call that reaches the disk, of which it does
only a part.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

ROOT = Path(__file__).parents[2]
KILLED = -9
DISK = ("write", "pwrite", "fsync", "fdatasync", "rename", "replace", "ftruncate", "unlink")
"""Functions of the module os that reach the disk."""


@final
class Nursery:
    """Makes runs: each is "train", "resume" or a "command" with arguments, and perhaps a moment to die."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runs.killing"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, what: str, folder: Path, **how: Any) -> None:
        """Begin a run. `seconds` or `call` say when it dies; the others are for `train`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, "folder": str(folder), **how}) + "\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Wait for the oldest run; return its exit code and the number of calls that reached the disk."""
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def run(self, what: str, folder: Path, **how: Any) -> dict[str, Any]:
        """Start a run and wait for its result."""
        self.start(what, folder, **how)
        return self.result()

    def close(self) -> None:
        """No more runs."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def nursery() -> Iterator[Nursery]:
    """One for as long as the context lasts."""
    made = Nursery()
    try:
        yield made
    finally:
        made.close()


# In the processes -----------------------------------------------------------------------------------------------------


def die() -> None:
    """Die as in a power cut, or by the system's out-of-memory killer."""
    os.kill(os.getpid(), 9)


def count_calls(fatal: int | None) -> list[int]:
    """Count the calls that reach the disk; at number `fatal` do a part of it, and die."""
    calls = [0]

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == fatal:
                if name in ("write", "pwrite"):
                    handle, data, *place = args
                    function(handle, bytes(data)[: len(data) // 2], *place)
                die()
            return function(*args, **kwargs)

        return call

    for name in DISK:
        setattr(os, name, counted(name, getattr(os, name)))
    return calls


def child(order: dict[str, Any], answer: int) -> None:
    """One run."""
    import signal

    from samba_rl.runs import resume, train
    from samba_rl.tasks import make_task
    from samba_rl.tasks.task import Task
    from tests.line import Line
    from tests.runs.systems import counting_rig

    if order["what"] == "command":
        os.chdir(order["folder"])
    calls = count_calls(order.get("call"))
    if "seconds" in order:
        signal.signal(signal.SIGALRM, lambda *_: die())
        signal.setitimer(signal.ITIMER_REAL, order["seconds"])
    if order["what"] == "command":
        from samba_rl.cli import main as samba_rl

        code = samba_rl(order["arguments"])
        os.write(answer, str(calls[0]).encode())
        os._exit(code)
    name = order.get("task", "safe-pendulum")
    task: Task = Line() if name == "line" else counting_rig() if name == "rig" else make_task(name)
    every = order.get("checkpoint_every", 0.0)
    if order["what"] == "train":
        settings = {"preset": "smoke", **order.get("settings", {})}
        train(task, order.get("learner", "samba"), seed=5, out=order["folder"], checkpoint_every=every, **settings)
    else:
        resume(order["folder"], task, checkpoint_every=every)
    os.write(answer, str(calls[0]).encode())


def main() -> None:
    """Read orders, fork, answer."""
    import torch

    from samba_rl.runs import train
    from tests.runs.systems import counting_rig

    # One thread: more of them would not live on in a fork.
    torch.set_num_threads(1)
    # Everything that is loaded or made once is there before the forks, which then need not wait for it.
    train("safe-pendulum", preset="smoke", out=None)
    counting_rig()
    with contextlib.suppress(ImportError):  # `ask` draws
        importlib.import_module("matplotlib.figure")
    for line in sys.stdin:
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(read)
            # Of what the run prints nothing may get among the answers.
            os.dup2(2, 1)
            code = 1
            try:
                child(json.loads(line), write)
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(write)
        _, status = os.waitpid(process, 0)
        with os.fdopen(read) as pipe:
            calls = pipe.read()
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), "calls": int(calls or 0)}), flush=True)


if __name__ == "__main__":
    main()
