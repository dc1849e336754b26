"""Simulations in processes of their own: one that fails, dies or hangs takes nothing else with it."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, resource_tracker
from typing import TYPE_CHECKING, final

from samba_rl.errors import UserError
from samba_rl.tasks.faults.timed import (
    CLOSE_LIMIT,
    PAUSE,
    START_LIMIT,
    Answer,
    Call,
    NoAnswer,
    SimulationError,
    carry_out,
    one_line,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from samba_rl.tasks.simulation import Simulation


def _for_the_pipe(error: Exception) -> Exception:
    """An exception that the other side can read whatever it was: classes of the user's may be unknown there."""
    if isinstance(error, UserError):
        return UserError(str(error))
    return SimulationError(one_line(error), "".join(traceback.format_exception(error)))


def _serve(pipe: Connection, factory: bytes) -> None:
    """Run a simulation in a process: one answer when it is ready, then lists of answers to (method, calls, at once)."""
    import cloudpickle

    # Ctrl-C reaches every process of the terminal; the parent alone decides what happens then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # When the parent goes away or closes its end, there is nobody left to answer.
    with contextlib.suppress(EOFError, OSError):
        try:
            simulation: Simulation = cloudpickle.loads(factory)()
        except Exception as error:
            pipe.send([(False, _for_the_pipe(error))])
            return
        with contextlib.closing(simulation):
            pipe.send([(True, None)])
            while True:
                method, calls, at_once = pipe.recv()
                answers: list[Answer] = []
                for call in calls:
                    try:
                        answers.append((True, carry_out(simulation, method, call)))
                    except Exception as error:
                        answers.append((False, _for_the_pipe(error)))
                    if at_once or len(answers) == len(calls):
                        pipe.send(answers)
                        answers = []


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back for a moment: a process started now does not see it before it can say that it ignores it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Started now, because its start lets signals through again and would otherwise fall inside.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@final
class Worker:
    """A process with a simulation in it."""

    def __init__(self, factory: Callable[[], Simulation]) -> None:
        import cloudpickle

        # Spawned, not forked: a forked child inherits torch's thread pools in a state that can deadlock.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_serve, args=(theirs, cloudpickle.dumps(factory)), daemon=True, name="samba-rl simulation"
        )
        with interrupts_held():
            self._process.start()
        theirs.close()
        # The first is that it is ready.
        self._owed, self._ready = 1, False
        self.slots: set[int] = set()
        """The episodes that have been prepared."""
        self.spoilt = False
        """Whether it raised an exception, so that nobody knows what state it is in."""
        self.failure: Exception | None = None
        """Why it can no longer be asked."""

    def send(self, method: str, calls: Sequence[Call], timeout: float | None) -> None:
        """Ask. With a timeout each answer comes at once, so that it is clear which call does not return."""
        self._settle(timeout)
        if self.failure is not None:
            return
        try:
            self.pipe.send((method, calls, timeout is not None))
            self._owed = len(calls)
        except OSError:
            self._die()
        except BaseException as error:
            self._lose(error)
            raise

    def receive(self) -> list[Answer]:
        """The next answers; none if the process has died."""
        try:
            answers: list[Answer] = self.pipe.recv()
        except (EOFError, OSError):
            self._die()
            return []
        except BaseException as error:
            self._lose(error)
            raise
        self._owed -= len(answers)
        return answers

    def _settle(self, timeout: float | None) -> None:
        """Wait until it is ready, and for answers that nobody waited for because of Ctrl-C."""
        while self._owed and self.failure is None:
            if timeout is not None and not self.pipe.poll(limit := max(timeout, START_LIMIT)):
                self.end(NoAnswer(f"not ready within {limit:g} s"))
                return
            for fine, result in self.receive():
                if not self._ready and not fine:
                    self.end(result)
                self._ready = True

    def _die(self) -> None:
        self._process.join(timeout=CLOSE_LIMIT)
        self.end(
            RuntimeError(
                f"a simulation's process died (exit code {self._process.exitcode}). In a script, start the run below "
                'if __name__ == "__main__": so that processes can import it, or run in this process with workers=0'
            )
        )

    def _lose(self, error: BaseException) -> None:
        """End the process because a message may have gone through by half, so that the next would be misread."""
        self.end(RuntimeError(f"a simulation's process was lost in the middle of a message: {one_line(error)}"))

    def end(self, failure: Exception) -> None:
        """Kill the process, for this reason."""
        self.failure = failure
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Let the simulation close and the process end."""
        self.pipe.close()
        self._process.join(timeout=CLOSE_LIMIT)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(timeout=CLOSE_LIMIT)


def ask_workers(questions: Sequence[tuple[Worker, Sequence[Call]]], method: str, timeout: float | None) -> list[Answer]:
    """The answers of processes that work side by side, worker after worker, each in the order of its calls.

    One that takes longer than `timeout` seconds for a call is ended; its other calls fail too.
    """
    answers: list[list[Answer]] = [[] for _ in questions]
    for worker, calls in questions:
        worker.send(method, calls, timeout)
    limit = math.inf if timeout is None else timeout
    left = [limit] * len(questions)
    while True:
        awaited = {
            worker.pipe: i
            for i, (worker, calls) in enumerate(questions)
            if worker.failure is None and len(answers[i]) < len(calls)
        }
        if not awaited:
            break
        # See `Timed` for why the waits are short.
        pause = min(PAUSE, *(left[i] for i in awaited.values()))
        before = time.monotonic()
        ready = {awaited[pipe] for pipe in awaited.keys() & set(connection.wait(list(awaited), pause))}
        spent = min(time.monotonic() - before, pause)
        for i in awaited.values():
            worker = questions[i][0]
            left[i] -= spent
            if i in ready:
                answers[i] += worker.receive()
                left[i] = limit
            elif left[i] <= 0:
                worker.end(NoAnswer(f"no answer within {limit:g} s"))
    return [
        answer
        for (worker, calls), given in zip(questions, answers, strict=True)
        for answer in [*given, *[(False, worker.failure)] * (len(calls) - len(given))]
    ]
