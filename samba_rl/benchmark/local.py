"""Runs cells on this machine, each in a process of its own, so that a process that is killed costs only its cell."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple, final

from samba_rl.benchmark.cells import Cell
from samba_rl.benchmark.grid import Failed, Message, Progressed
from samba_rl.benchmark.worker import decode, encode_cell, encode_progress, work
from samba_rl.errors import UserError
from samba_rl.tasks.faults.starting import starting

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Running(NamedTuple):
    """A cell, its process, and the end of the pipe on which the process reports."""

    cell: Cell
    process: BaseProcess
    receiver: Connection


@final
class LocalBackend:
    """Runs each cell in a process with one thread."""

    def __init__(self, jobs: int | None, runs: Path, device: str = "cpu", steps: int = 10_000) -> None:
        """Create a backend; no process is started yet.

        Args:
            jobs: Number of cells that run at a time; None: one for each available core.
            runs: The folder for the runs; an interrupted cell is resumed from there.
            device: The device for models and policies.
            steps: Real steps of the final evaluation.
        """
        self._slots = jobs if jobs is not None else available_cores()
        if self._slots < 1:
            raise UserError(f"jobs = {jobs}; at least 1 is needed")
        self._runs, self._device, self._steps = runs, device, steps
        self._running: list[Running] = []

    @property
    def slots(self) -> int:
        """Return how many cells run at a time."""
        return self._slots

    def start(self, cell: Cell) -> None:
        """Start a cell, or resume it."""
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        arguments = (sender, encode_cell(cell), str(self._runs / cell.name), self._device, self._steps)
        process = context.Process(target=_report_work, args=arguments, name=cell.name, daemon=False)
        with _one_thread(), starting():
            process.start()
        sender.close()
        self._running.append(Running(cell, process, receiver))

    def poll(self, timeout: float) -> list[Message]:
        """Return the messages that have arrived; wait at most `timeout` seconds for the first."""
        wait([one.receiver for one in self._running], timeout)
        messages: list[Message] = []
        for one in list(self._running):
            received = self._receive(one)
            messages += received
            if any(not isinstance(message, Progressed) for message in received):
                self._running.remove(one)
        return messages

    def stop(self) -> None:
        """End all processes that still run."""
        for one in self._running:
            one.process.terminate()
        for one in self._running:
            one.process.join(10)
            if one.process.is_alive():
                one.process.kill()
                one.process.join()
            one.receiver.close()
        self._running = []

    def _receive(self, one: Running) -> list[Message]:
        messages: list[Message] = []
        try:
            while one.receiver.poll():
                messages.append(decode(one.cell, one.receiver.recv_bytes()))
                if not isinstance(messages[-1], Progressed):
                    one.process.join()
                    one.receiver.close()
                    break
        except EOFError:
            one.process.join()
            one.receiver.close()
            code = one.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            messages.append(Failed(one.cell, f"its process ended without a result ({how})"))
        return messages


def _report_work(sender: Connection, cell: str, folder: str, device: str, steps: int) -> None:
    """Run a cell in this process and send its progress and its outcome to the process that started it."""
    # Ctrl-C is for the starting process, which ends its cells itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True, name="samba-rl parent").start()

    def send(text: str) -> None:
        # A broken pipe means that the starting process is gone: end this one too.
        with contextlib.suppress(BrokenPipeError):
            sender.send_bytes(text.encode())
            return
        sys.exit(1)

    send(work(cell, Path(folder), device, steps, lambda share: send(encode_progress(share))))


def _end_with_parent() -> None:
    """End this process as soon as the one that started it ends, however that happens; its run can be resumed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Limit processes that are started inside the context to one thread each, so that they do not compete for cores."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
