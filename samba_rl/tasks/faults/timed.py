"""A system in this process, called so that one that does not return can be given up; and errors in one line.

A question is a method of `Simulation` and a list of calls of it; each call has an answer of its own.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.tasks.simulation import Simulation

T = TypeVar("T")
Call = tuple[Any, ...]
"""The arguments of one call."""
Answer = tuple[bool, Any]
"""Whether the call went well, and its result or its exception."""

START_LIMIT = 120.0
"""Seconds for a process to start and for a simulation to be made or drawn, where there is a limit at all: that takes
much longer than a step does."""
CLOSE_LIMIT = 5.0
"""Seconds for a simulation to be closed."""
PAUSE = 0.2
"""Seconds between two looks at the clock while an answer is awaited."""


class NoAnswer(TimeoutError):  # noqa: N818 - reads as what happened
    """A system has not answered in time."""


@final
class SimulationError(RuntimeError):
    """A simulation raised an exception in its process."""

    def __init__(self, summary: str, trace: str) -> None:
        super().__init__(summary, trace)
        self.summary = summary
        """The exception in one line."""
        self._trace = trace

    def __str__(self) -> str:
        return f"a simulation failed in its process:\n{self._trace}"


def one_line(error: BaseException) -> str:
    """An exception in one line, with its type where its text is not written for people."""
    if isinstance(error, SimulationError):
        return error.summary
    text = " ".join(str(error).split())
    if len(text) > 500:
        text = f"{text[:500]}…"
    if isinstance(error, UserError | NoAnswer):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def carry_out(simulation: Simulation, method: str, call: Call) -> Any:
    """One call of a simulation's method; those that it need not have do nothing."""
    if method in ("prepare", "state") and not hasattr(simulation, method):
        return None
    if method == "set_state" and not hasattr(simulation, method):
        raise UserError("the state of a simulation was given, but this one keeps none; give it to the one it came from")
    return getattr(simulation, method)(*call)


class _Errand:
    """A call on its way to the thread and back."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


def _run_errands(errands: queue.SimpleQueue[_Errand | None]) -> None:
    while (errand := errands.get()) is not None:
        try:
            errand.result = errand.function()
        except BaseException as error:
            errand.error = error
        errand.done.set()


@final
class Timed:
    """Makes calls in a thread of its own, always the same one, and waits for each only so long.

    A thread cannot be ended from outside: once a call has not returned in time, no other can be made.
    """

    def __init__(self) -> None:
        self._errands: queue.SimpleQueue[_Errand | None] | None = None
        self._failure: NoAnswer | None = None

    @property
    def hung(self) -> bool:
        """Whether a call has not returned in time."""
        return self._failure is not None

    def __call__(self, function: Callable[[], T], timeout: float) -> T:
        """What the function gives or raises, or `NoAnswer` after `timeout` seconds."""
        if self._failure is not None:
            raise self._failure
        if self._errands is None:
            self._errands = queue.SimpleQueue()
            threading.Thread(target=_run_errands, args=(self._errands,), daemon=True, name="samba-rl system").start()
        errand = _Errand(function)
        self._errands.put(errand)
        left = timeout
        # In short waits, so that Ctrl-C is heard everywhere, and so that time in which this program itself was
        # suspended does not count.
        while not errand.done.wait(min(left, PAUSE)):
            left -= PAUSE
            if left <= 0:
                self._failure = NoAnswer(f"no answer within {timeout:g} s")
                raise self._failure
        if errand.error is not None:
            raise errand.error
        result: T = errand.result
        return result

    def close(self) -> None:
        """End the thread, unless it hangs."""
        if self._errands is not None:
            self._errands.put(None)
            self._errands = None


@final
class Here:
    """A simulation in this process."""

    def __init__(self, factory: Callable[[], Simulation]) -> None:
        self._factory = factory
        self._simulation: Simulation | None = None
        self._timed = Timed()
        self.slots: set[int] = set()
        """The episodes that have been prepared."""
        self.spoilt = False
        """Whether it raised an exception, so that nobody knows what state it is in."""

    @property
    def hung(self) -> bool:
        """Whether a call has not returned in time, so that no other can be made."""
        return self._timed.hung

    def ask(self, method: str, calls: Sequence[Call], timeout: float | None) -> list[Answer]:
        """The answers to the calls, each of which may take `timeout` seconds."""
        return [self._answer(method, call, timeout) for call in calls]

    def _answer(self, method: str, call: Call, timeout: float | None) -> Answer:
        try:
            if self._simulation is None:
                self._simulation = self._within(None if timeout is None else START_LIMIT, self._factory)
            return True, self._within(timeout, partial(carry_out, self._simulation, method, call))
        except Exception as error:
            return False, error

    def _within(self, timeout: float | None, function: Callable[[], T]) -> T:
        return function() if timeout is None else self._timed(function, timeout)

    def close(self, timeout: float | None) -> None:
        """Close the simulation, unless it hangs."""
        simulation, self._simulation = self._simulation, None
        if simulation is not None and not self.hung:
            with contextlib.suppress(NoAnswer):
                self._within(None if timeout is None else max(timeout, CLOSE_LIMIT), simulation.close)
        self._timed.close()
