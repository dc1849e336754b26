"""Calls with a time limit to a system in this process, and one-line error messages.

A request names a method of `Simulation` and lists calls of it; each call gets its own answer.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

from samba_rl.errors import UserError, printable

if TYPE_CHECKING:
    from samba_rl.tasks.simulation import Simulation

T = TypeVar("T")
Call = tuple[Any, ...]
"""Arguments of one call."""
Answer = tuple[bool, Any]
"""True and the result of a call, or False and its exception."""

START_LIMIT = 120.0
"""Time limit for starting a process and for making or drawing a simulation, in seconds, where steps have a limit; these
take much longer than a step."""
CLOSE_LIMIT = 5.0
"""Time limit for closing a simulation, in seconds."""
POLL_INTERVAL = 0.2
"""Longest single wait for an answer, in seconds; see `Timed`."""


class NoAnswer(TimeoutError):  # noqa: N818 - reads as what happened
    """A system did not answer in time."""


@final
class Died(RuntimeError):  # noqa: N818 - reads as what happened
    """A simulation process ended by itself."""


@final
class SimulationError(RuntimeError):
    """A simulation raised an exception in its own process."""

    def __init__(self, summary: str, trace: str) -> None:
        super().__init__(summary, trace)
        self.summary = summary
        """The original exception in one line."""
        self._trace = trace

    def __str__(self) -> str:
        return f"a simulation failed in its process:\n{self._trace}"


def one_line(error: BaseException) -> str:
    """Return an exception in one line, with its type unless the message is written for users."""
    if isinstance(error, SimulationError):
        return error.summary
    text = printable(" ".join(str(error).split()))
    if len(text) > 500:
        text = f"{text[:500]}…"
    if isinstance(error, UserError | NoAnswer | Died):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def call_method(simulation: Simulation, method: str, call: Call) -> object:
    """Call a method of a simulation; `prepare` and `state` return None where they are not implemented."""
    if method in ("prepare", "state") and not hasattr(simulation, method):
        return None
    if method == "set_state" and not hasattr(simulation, method):
        raise UserError("this simulation keeps no state across resets; restore the state in the one that it came from")
    try:
        return getattr(simulation, method)(*call)
    except SystemExit as error:
        # Not a wish of the user, and it would end the program without a word.
        raise RuntimeError(f"it called sys.exit({error.code!r})") from error


class _Request:
    """A call waiting for its result from the thread."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


def _serve(requests: queue.SimpleQueue[_Request | None]) -> None:
    while (request := requests.get()) is not None:
        try:
            request.result = request.function()
        except BaseException as error:
            request.error = error
        request.done.set()


@final
class Timed:
    """Runs calls in one thread of its own and waits for each up to a time limit.

    A thread cannot be killed: after a call that did not return in time, no further calls are possible.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Request | None] | None = None
        self._failure: NoAnswer | None = None

    @property
    def hung(self) -> bool:
        """Return True if a call did not return in time."""
        return self._failure is not None

    def __call__(self, function: Callable[[], T], timeout: float) -> T:
        """Call the function and return its result; raise its exception, or `NoAnswer` after `timeout` seconds."""
        if self._failure is not None:
            raise self._failure
        if self._requests is None:
            self._requests = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(self._requests,), daemon=True, name="samba-rl system").start()
        request = _Request(function)
        self._requests.put(request)
        left = timeout
        # Wait in short intervals, so that Ctrl-C works on every platform and time during which this program was
        # suspended does not count.
        while not request.done.wait(min(left, POLL_INTERVAL)):
            left -= POLL_INTERVAL
            if left <= 0:
                self._failure = NoAnswer(f"no answer within {timeout:g} s")
                raise self._failure
        if request.error is not None:
            raise request.error
        result: T = request.result
        return result

    def close(self) -> None:
        """End the thread, unless it hangs."""
        if self._requests is not None:
            self._requests.put(None)
            self._requests = None


@final
class InProcess:
    """A simulation in this process, made when it is first called."""

    def __init__(self, factory: Callable[[], Simulation]) -> None:
        self._factory = factory
        self._simulation: Simulation | None = None
        self._timed = Timed()
        self.slots: set[int] = set()
        """Episodes that have been prepared."""
        self.tainted = False
        """True after an exception, which leaves the simulation in an unknown state."""

    @property
    def hung(self) -> bool:
        """Return True if a call did not return in time; no further calls are possible."""
        return self._timed.hung

    def ask(self, method: str, calls: Sequence[Call], timeout: float | None) -> list[Answer]:
        """Return the answers to the calls, each of which may take `timeout` seconds."""
        return [self._answer(method, call, timeout) for call in calls]

    def _answer(self, method: str, call: Call, timeout: float | None) -> Answer:
        try:
            if self._simulation is None:
                self._simulation = self._within(None if timeout is None else START_LIMIT, self._factory)
            return True, self._within(timeout, partial(call_method, self._simulation, method, call))
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
