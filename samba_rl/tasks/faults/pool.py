"""Distributes numbered episodes over simulations in this process or in worker processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from samba_rl.errors import UserError
from samba_rl.tasks.faults.processes import Worker, call_workers
from samba_rl.tasks.faults.timed import START_LIMIT, Answer, Call, Died, InProcess

if TYPE_CHECKING:
    from samba_rl.tasks.simulation import Simulation


@final
class SimulationPool:
    """Simulations that share the episodes of a batch; episode i lives in worker i modulo the number of workers."""

    def __init__(self, factory: Callable[[], Simulation], workers: int, *, rig: bool) -> None:
        self.timeout: float | None = None
        """Time limit for one reset or step of an episode, in seconds; None means no limit."""
        self.isolated = False
        """Whether a single episode runs in a process of its own too, where one can be started."""
        self._factory = factory
        self._rig = rig
        self._max_workers = workers
        self._workers: list[Worker] = []
        self._local = InProcess(factory)
        self._spread = False

    @property
    def hung(self) -> bool:
        """Return True if the simulation in this process has not returned in time."""
        return self._local.hung

    @property
    def episodes(self) -> int:
        """Return the number of episodes that have been prepared, including those of failed simulations."""
        return 1 + max((slot for host in self._hosts() for slot in host.slots), default=-1)

    def intact_slots(self) -> list[int]:
        """Return the prepared episodes whose simulation will be used again."""
        return sorted(slot for host in self._hosts() if not self._lost(host) for slot in host.slots)

    def prepare(self, n: int) -> None:
        """Make simulations ready for n episodes, replacing those that failed."""
        wanted = n > 1 or self.timeout is not None or self._can_isolate()
        self._spread = self._max_workers > 0 and wanted and self._sendable
        if not self._spread:
            if self._lost(self._local) and not self.hung:
                # A simulation that failed may fail to close as well.
                with contextlib.suppress(Exception):
                    self._local.close(self.timeout)
                self._local = self._local if self.hung else InProcess(self._factory)
        else:
            for i, worker in enumerate(self._workers):
                if self._lost(worker):
                    worker.close()
                    self._workers[i] = Worker(self._factory)
            while len(self._workers) < min(self._max_workers, n):
                self._workers.append(Worker(self._factory))
        new = [slot for slot in range(n) if slot not in self._host(slot).slots]
        if new:
            self.call("prepare", new, [()] * len(new))
        for slot in new:
            self._host(slot).slots.add(slot)

    def _can_isolate(self) -> bool:
        """Return whether single episodes have a process of their own; start it, if it is the first time.

        There is none for a factory that cannot be sent to a process, or that ends it.
        """
        if self.isolated and not self._workers:
            if not self._sendable:
                return False
            worker = Worker(self._factory)
            worker.settle(None)
            if isinstance(worker.failure, Died):
                self.isolated = False
                return False
            self._workers.append(worker)
        return self.isolated

    @cached_property
    def _sendable(self) -> bool:
        """Whether the factory can be sent to a process; one that holds a lock or a connection runs in this one."""
        import cloudpickle

        try:
            cloudpickle.dumps(self._factory)
        except Exception:
            return False
        return True

    def call(self, method: str, slots: list[int], arguments: Sequence[Call]) -> list[Any]:
        """Call a method for each slot, in parallel across processes, and return the results in the order of `slots`."""
        answers = self.try_call(method, slots, arguments)
        for ok, result in answers:
            if not ok:
                raise result
        return [result for _, result in answers]

    def try_call(self, method: str, slots: list[int], arguments: Sequence[Call]) -> list[Answer]:
        """Call a method as `call` does, but return the exceptions among the answers instead of raising."""
        timeout = self.timeout
        if timeout is not None and method not in ("reset", "step"):
            timeout = max(timeout, START_LIMIT)
        calls = [(slot, *rest) for slot, rest in zip(slots, arguments, strict=True)]
        if not self._spread:
            answers = self._local.ask(method, calls, timeout)
        else:
            count = len(self._workers)
            shares = [[i for i, slot in enumerate(slots) if slot % count == w] for w in range(count)]
            requests = [(self._workers[w], [calls[i] for i in share]) for w, share in enumerate(shares) if share]
            order = (i for share in shares for i in share)
            by_worker = zip(order, call_workers(requests, method, timeout), strict=True)
            answers = [answer for _, answer in sorted(by_worker, key=lambda pair: pair[0])]
        for slot, (ok, result) in zip(slots, answers, strict=True):
            # A `UserError` reports a bad value; any other exception leaves the simulation in an unknown state.
            if not ok and method not in ("render", "state") and not isinstance(result, UserError):
                self._host(slot).tainted = True
        return answers

    def close(self) -> None:
        """Close the simulations and end the processes."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._spread = False
        self._local.close(self.timeout)
        if not self.hung:
            self._local = InProcess(self._factory)

    def _lost(self, host: InProcess | Worker) -> bool:
        """Return True if a simulation will not be used for further episodes."""
        return (host.tainted and not self._rig) or (isinstance(host, Worker) and host.failure is not None)

    def _hosts(self) -> Sequence[InProcess | Worker]:
        return self._workers if self._spread else [self._local]

    def _host(self, slot: int) -> InProcess | Worker:
        return self._workers[slot % len(self._workers)] if self._spread else self._local
