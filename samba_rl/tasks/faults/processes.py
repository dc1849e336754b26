"""Simulations in separate processes, so that one that fails, dies or hangs affects nothing else."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import TYPE_CHECKING, final

from samba_rl.errors import UserError
from samba_rl.tasks.faults.starting import starting
from samba_rl.tasks.faults.timed import (
    CLOSE_LIMIT,
    POLL_INTERVAL,
    START_LIMIT,
    Answer,
    Call,
    Died,
    NoAnswer,
    SimulationError,
    call_method,
    one_line,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from samba_rl.tasks.simulation import Simulation


def _picklable(error: Exception) -> Exception:
    """Return the exception in a form that the parent can unpickle; it may not know classes defined by the user."""
    if isinstance(error, UserError):
        return UserError(str(error))
    return SimulationError(one_line(error), "".join(traceback.format_exception(error)))


def _seed_everything(seed: int) -> None:
    """Seed the random numbers that all code of a process shares, so that a system that uses them can be repeated."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _serve(pipe: Connection, factory: bytes) -> None:
    """Run a simulation in this process: report when it is ready, then answer (method, calls, one_by_one) requests."""
    import cloudpickle

    # Ctrl-C reaches every process of the terminal; only the parent decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent has exited or closed its end: nobody is left to answer.
    with contextlib.suppress(EOFError, OSError):
        try:
            simulation: Simulation = cloudpickle.loads(factory)()
        except Exception as error:
            pipe.send([(False, _picklable(error))])
            return
        with contextlib.closing(simulation):
            pipe.send([(True, None)])
            while True:
                method, calls, one_by_one = pipe.recv()
                answers: list[Answer] = []
                for call in calls:
                    if method == "reset":
                        _seed_everything(call[1])
                    try:
                        answers.append((True, call_method(simulation, method, call)))
                    except Exception as error:
                        answers.append((False, _picklable(error)))
                    if one_by_one or len(answers) == len(calls):
                        pipe.send(answers)
                        answers = []


def _signal_name(code: int | None) -> str:
    """Return the name of the signal that ended a process, with a comma; empty if none did."""
    try:
        return f", {signal.Signals(-code).name}" if code is not None and code < 0 else ""
    except ValueError:
        return ""


@final
class Worker:
    """A process that runs a simulation."""

    def __init__(self, factory: Callable[[], Simulation]) -> None:
        import cloudpickle

        # Spawned, not forked: a forked child inherits torch's thread pools in a state that can deadlock.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_serve, args=(theirs, cloudpickle.dumps(factory)), daemon=True, name="samba-rl simulation"
        )
        with starting():
            self._process.start()
        theirs.close()
        # The first answer says that the process is ready.
        self._pending, self._ready = 1, False
        self.slots: set[int] = set()
        """Episodes that have been prepared."""
        self.tainted = False
        """True after an exception, which leaves the simulation in an unknown state."""
        self.failure: Exception | None = None
        """Reason why the process can no longer be used, or None."""

    def send(self, method: str, calls: Sequence[Call], timeout: float | None) -> None:
        """Send calls of a method; with a timeout, each is answered separately, to show which one does not return."""
        self.settle(timeout)
        if self.failure is not None:
            return
        try:
            self.pipe.send((method, calls, timeout is not None))
            self._pending = len(calls)
        except OSError:
            self._die()
        except BaseException as error:
            self._lose(error)
            raise

    def receive(self) -> list[Answer]:
        """Return the next answers, or an empty list if the process has died."""
        try:
            answers: list[Answer] = self.pipe.recv()
        except (EOFError, OSError):
            self._die()
            return []
        except BaseException as error:
            self._lose(error)
            raise
        self._pending -= len(answers)
        return answers

    def settle(self, timeout: float | None) -> None:
        """Wait until the process is ready and discard answers left over after Ctrl-C."""
        while self._pending and self.failure is None:
            if timeout is not None and not self.pipe.poll(limit := max(timeout, START_LIMIT)):
                self.end(NoAnswer(f"not ready within {limit:g} s"))
                return
            for fine, result in self.receive():
                if not self._ready and not fine:
                    self.end(result)
                self._ready = True

    def _die(self) -> None:
        self._process.join(timeout=CLOSE_LIMIT)
        code = self._process.exitcode
        text = f"a simulation process died (exit code {code}{_signal_name(code)})"
        if not self._ready:
            text += " before it was ready. To see why, run the system in this process with workers=0 (--workers 0)"
        self.end(Died(text))

    def _lose(self, error: BaseException) -> None:
        """End the process: a message may have been cut in half, and the next one would be misread."""
        self.end(RuntimeError(f"a simulation process was lost in the middle of a message: {one_line(error)}"))

    def end(self, failure: Exception) -> None:
        """Kill the process and record the reason."""
        self.failure = failure
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Close the simulation and end the process."""
        self.pipe.close()
        self._process.join(timeout=CLOSE_LIMIT)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(timeout=CLOSE_LIMIT)


def call_workers(requests: Sequence[tuple[Worker, Sequence[Call]]], method: str, timeout: float | None) -> list[Answer]:
    """Call a method in several processes in parallel and return the answers, worker by worker in the order of calls.

    A process that takes longer than `timeout` seconds for a call is killed; its remaining calls fail too.
    """
    answers: list[list[Answer]] = [[] for _ in requests]
    for worker, calls in requests:
        worker.send(method, calls, timeout)
    limit = math.inf if timeout is None else timeout
    left = [limit] * len(requests)
    while True:
        awaited = {
            worker.pipe: i
            for i, (worker, calls) in enumerate(requests)
            if worker.failure is None and len(answers[i]) < len(calls)
        }
        if not awaited:
            break
        # Short waits, for the reasons given in `Timed`.
        pause = min(POLL_INTERVAL, *(left[i] for i in awaited.values()))
        before = time.monotonic()
        ready = {awaited[pipe] for pipe in awaited.keys() & set(connection.wait(list(awaited), pause))}
        spent = min(time.monotonic() - before, pause)
        for i in awaited.values():
            worker = requests[i][0]
            left[i] -= spent
            if i in ready:
                answers[i] += worker.receive()
                left[i] = limit
            elif left[i] <= 0:
                worker.end(NoAnswer(f"no answer within {limit:g} s"))
    return [
        answer
        for (worker, calls), given in zip(requests, answers, strict=True)
        for answer in [*given, *[(False, worker.failure)] * (len(calls) - len(given))]
    ]
