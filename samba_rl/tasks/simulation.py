"""Systems that run one at a time, outside torch (MuJoCo, any Gymnasium environment), as a `World` of many episodes.

A `Simulation` holds numbered episodes and steps them one by one. `SimulatedWorld` spreads the episodes of a batch over
a few processes, each with a simulation of its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from samba_rl.tasks.task import Charges, Step, Task
from samba_rl.types import UserError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


@dataclass(frozen=True)
class Outcome:
    """What came of one step of one episode; None where the simulation does not measure it."""

    x: NDArray[np.float64]
    """[nx]"""
    cost: float | None = None
    safety: tuple[float, ...] | None = None
    """[m]"""
    violation: tuple[bool, ...] | None = None
    """[m]"""
    terminated: bool = False
    truncated: bool = False


class Simulation(Protocol):
    """Numbered episodes of one system."""

    def reset(self, slot: int, seed: int, x: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Start episode `slot` afresh, at the state x [nx] if it is given, and give its state [nx]."""
        ...

    def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
        """Step episode `slot` with the action u [nu]."""
        ...

    def render(self, slot: int, size: int) -> NDArray[np.uint8]:
        """A picture [size, size, 3] of episode `slot`."""
        ...

    def close(self) -> None:
        """Let go of what the simulation holds."""
        ...


def _serve(pipe: Connection, factory: bytes) -> None:
    """Run a simulation in a process: answer (method, calls) with one result a call, or with the error as text."""
    import cloudpickle

    # Ctrl-C reaches every process of the terminal; the parent alone decides what happens then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    simulation: Simulation | None = None
    # When the parent goes away or closes its end, there is nobody left to answer.
    with contextlib.suppress(EOFError, OSError):
        while True:
            method, calls = pipe.recv()
            answer: tuple[bool, Any]
            try:
                simulation = simulation or cloudpickle.loads(factory)()
                answer = True, [getattr(simulation, method)(*call) for call in calls]
            except UserError as error:
                answer = False, error
            except Exception:
                answer = False, traceback.format_exc()
            pipe.send(answer)
    if simulation is not None:
        simulation.close()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
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


class _Worker:
    """A process with a simulation in it."""

    def __init__(self, factory: Callable[[], Simulation]) -> None:
        import cloudpickle

        # Spawned, not forked: a forked child inherits torch's thread pools in a state that can deadlock.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_serve, args=(theirs, cloudpickle.dumps(factory)), daemon=True, name="samba-rl simulation"
        )
        with _interrupts_held():
            self._process.start()
        theirs.close()

    def send(self, method: str, calls: Sequence[tuple[Any, ...]]) -> None:
        try:
            self._pipe.send((method, calls))
        except OSError:
            raise self._death() from None

    def receive(self) -> list[Any]:
        try:
            fine, result = self._pipe.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if fine:
            return list(result)
        if isinstance(result, UserError):
            raise result
        raise RuntimeError(f"a simulation failed in its process:\n{result}")

    def _death(self) -> RuntimeError:
        self._process.join(timeout=5)
        return RuntimeError(
            f"a simulation's process died (exit code {self._process.exitcode}). In a script, start the run below "
            'if __name__ == "__main__": so that processes can import it, or run in this process with workers=0'
        )

    def close(self) -> None:
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()


@final
class SimulatedWorld:
    """A `World` of simulations. Episode i lives in worker i modulo their number.

    The processes start with the first batch of more than one episode; a single episode runs in this process.
    """

    def __init__(
        self,
        task: Task,
        factory: Callable[[], Simulation],
        workers: int | None = None,
        start: Callable[[int, Generator], Tensor] | None = None,
    ) -> None:
        """`start` draws the states [n, nx] that episodes begin in; without it the simulation draws its own."""
        if workers is not None and workers < 0:
            raise UserError(f"{task.name}: workers = {workers}; give 0 (this process) or a number of processes")
        self.task = task
        self._factory = factory
        self._start = start
        self._wanted = os.cpu_count() or 1 if workers is None else workers
        self._workers: list[_Worker] = []
        self._local: Simulation | None = None
        self._size = 0

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n episodes: see `World.reset`."""
        if slots is None:
            self._size = n
            if n > 1:
                while len(self._workers) < min(self._wanted, n):
                    self._workers.append(_Worker(self._factory))
            places = list(range(n))
        else:
            places = [int(slot) for slot in slots]
        seeds = torch.randint(2**31, (n,), generator=generator, device=generator.device).tolist()
        if x is None and self._start is not None:
            x = self._start(n, generator)
        starts = [None] * n if x is None else list(x.detach().cpu().double().numpy())
        states = self._call("reset", places, list(zip(seeds, starts, strict=True)))
        return torch.from_numpy(np.stack(states))

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Step the active episodes; the others stay where they are and cost nothing."""
        places = list(range(len(x))) if active is None else active.nonzero()[:, 0].tolist()
        actions = u.detach().cpu().double().numpy()
        outcomes: list[Outcome] = self._call("step", places, [(actions[i],) for i in places])
        rows = torch.tensor(places, dtype=torch.long)
        x_next = x.clone()
        terminated, truncated = (torch.zeros(len(x), dtype=torch.bool) for _ in range(2))
        m = len(self.task.constraints)
        charges = Charges(x.new_zeros(len(x)), x.new_zeros(len(x), m), torch.zeros(len(x), m, dtype=torch.bool))
        if outcomes:
            x_next[rows] = torch.from_numpy(np.stack([outcome.x for outcome in outcomes])).to(x)
            terminated[rows] = torch.tensor([outcome.terminated for outcome in outcomes])
            truncated[rows] = torch.tensor([outcome.truncated for outcome in outcomes])
            for total, part in zip(charges, self._charge(x[rows], u[rows], x_next[rows], outcomes), strict=True):
                total[rows] = part
        return Step(x_next, charges, terminated, truncated)

    def _charge(self, x: Tensor, u: Tensor, x_next: Tensor, outcomes: list[Outcome]) -> Charges:
        """What was measured, and from the task's functions what was not."""
        at = x if self.task.cost_of == "departure" else x_next
        first = outcomes[0]
        violation = None
        if first.cost is None:
            cost = self.task._cost(at, u)
        else:
            cost = torch.tensor([outcome.cost for outcome in outcomes]).to(x)
        if first.safety is None:
            safety = self.task.safety(x_next, u)
        else:
            safety = torch.tensor([outcome.safety for outcome in outcomes]).to(x)
        if first.violation is not None:
            violation = torch.tensor([outcome.violation for outcome in outcomes])
        return Charges(
            cost,
            safety,
            self.task._violation(x_next, u, safety) if violation is None else violation,
        )

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """The simulation's own picture: see `World.render`."""
        picture: NDArray[np.uint8] = self._call("render", [slot], [(size,)])[0]
        return picture

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        if self._local is not None:
            self._local.close()
            self._local = None

    def _call(self, method: str, slots: list[int], arguments: list[tuple[Any, ...]]) -> list[Any]:
        """Call a method for each slot, side by side where there are processes; results in the order of `slots`."""
        calls = [(slot, *rest) for slot, rest in zip(slots, arguments, strict=True)]
        if self._size <= 1 or not self._workers:
            if self._local is None:
                self._local = self._factory()
            return [getattr(self._local, method)(*call) for call in calls]
        shares = [
            [i for i, slot in enumerate(slots) if slot % len(self._workers) == w] for w in range(len(self._workers))
        ]
        busy = [(worker, share) for worker, share in zip(self._workers, shares, strict=True) if share]
        for worker, share in busy:
            worker.send(method, [calls[i] for i in share])
        results: list[Any] = [None] * len(calls)
        failure: Exception | None = None
        for worker, share in busy:
            # Every answer is read even after a failure: an unread one would be taken for the answer to the next call.
            try:
                for i, result in zip(share, worker.receive(), strict=True):
                    results[i] = result
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return results
