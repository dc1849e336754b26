"""Cells on the cores of this machine: a process for each, so that one that is killed takes nobody with it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, final

from samba_rl.benchmark.cells import Cell, CellResult, run_cell
from samba_rl.benchmark.grid import Failed, Finished, Message, Progressed
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.events import Event, TrialReport
from samba_rl.tasks.faults.processes import interrupts_held

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Running(NamedTuple):
    """A cell and its process."""

    cell: Cell
    process: BaseProcess
    ear: Connection


@final
class LocalBackend:
    """A process for each cell, with one thread."""

    def __init__(self, jobs: int | None, runs: Path, device: str = "cpu", steps: int = 10_000) -> None:
        """`runs` keeps the runs' folders, from which a cell that was interrupted goes on."""
        self._slots = jobs if jobs is not None else available_cores()
        if self._slots < 1:
            raise UserError(f"jobs = {jobs}; at least 1 is needed")
        self._runs, self._device, self._steps = runs, device, steps
        self._running: list[Running] = []

    @property
    def slots(self) -> int:
        """How many cells run at a time."""
        return self._slots

    def start(self, cell: Cell) -> None:
        """Begin with a cell, or go on with it."""
        context = multiprocessing.get_context("spawn")
        ear, mouth = context.Pipe(duplex=False)
        arguments = (mouth, json.dumps(to_plain(cell)), str(self._runs / cell.name), self._device, self._steps)
        process = context.Process(target=work, args=arguments, name=cell.name, daemon=False)
        with _one_thread(), interrupts_held():
            process.start()
        mouth.close()
        self._running.append(Running(cell, process, ear))

    def poll(self, timeout: float) -> list[Message]:
        """What has happened; waits at most `timeout` seconds for something."""
        wait([one.ear for one in self._running], timeout)
        messages: list[Message] = []
        for one in list(self._running):
            heard = self._listen(one)
            messages += heard
            if any(not isinstance(message, Progressed) for message in heard):
                self._running.remove(one)
        return messages

    def stop(self) -> None:
        """End everything that runs."""
        for one in self._running:
            one.process.terminate()
        for one in self._running:
            one.process.join(10)
            if one.process.is_alive():
                one.process.kill()
                one.process.join()
            one.ear.close()
        self._running = []

    def _listen(self, one: Running) -> list[Message]:
        messages: list[Message] = []
        try:
            while one.ear.poll():
                kind, value = json.loads(one.ear.recv_bytes())
                if kind == "share":
                    messages.append(Progressed(one.cell, float(value)))
                    continue
                one.process.join()
                one.ear.close()
                if kind == "done":
                    result: CellResult = from_plain(CellResult, value, one.cell.name)
                    return [*messages, Finished(one.cell, result)]
                return [*messages, Failed(one.cell, str(value))]
        except EOFError:
            one.process.join()
            one.ear.close()
            code = one.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return [*messages, Failed(one.cell, f"its process ended without a result ({how})")]
        return messages


def work(mouth: Connection, cell: str, folder: str, device: str, steps: int) -> None:
    """What a cell's process does."""
    # Ctrl-C is for the program that started it, which ends its cells itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)

    def say(kind: str, value: Any) -> None:
        # Nobody listens any more: then the program that started it is gone, and so should this one be.
        with contextlib.suppress(BrokenPipeError):
            mouth.send_bytes(json.dumps([kind, value]).encode())
            return
        sys.exit(1)

    what: Cell = from_plain(Cell, json.loads(cell), "the cell")
    try:
        budget = what.settings().real_samples

        def log(event: Event) -> None:
            if isinstance(event, TrialReport):
                say("share", min(1.0, event.real_samples / budget))

        result = run_cell(what, Path(folder), device=device, steps=steps, log=log, workers=0)
    except Exception as error:
        say("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")
        return
    say("done", to_plain(result))


@contextlib.contextmanager
def _one_thread() -> Any:
    """Processes that start inside count one core: those that count more get in each other's way."""
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
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
