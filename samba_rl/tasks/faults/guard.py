"""`GuardedWorld` keeps what was measured when a real system misbehaves: NaN, a wrong shape, an exception, no answer."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.faults.timed import CLOSE_LIMIT, START_LIMIT, NoAnswer, Timed, one_line
from samba_rl.tasks.simulation import SimulatedWorld
from samba_rl.tasks.task import Task
from samba_rl.tasks.world import Charges, EquationsWorld, Step, World
from samba_rl.types import Fault

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")


class SystemFault(Exception):  # noqa: N818 - a fault of the system, not of the program
    """A real system failed outside a step, most often in reset, or can no longer be used."""


class Recorder(Protocol):
    """Receives real steps as they are measured."""

    def begin(self, x: Tensor) -> None:
        """Record that episodes start in states x [n, nx]."""
        ...

    def step(self, x: Tensor, u: Tensor, step: Step) -> None:
        """Record a step from states x [n, nx] with actions u [n, nu] that at least one episode took.

        `step.failed` is always set, and True for every episode that did not take the step, including finished ones.
        """
        ...


@final
class GuardedWorld:
    """A `World` whose `step` never raises because of the system: a failed episode ends, the others go on.

    A bad value (NaN, a wrong shape) leaves the system in use. After an exception or a call that did not return its
    state is unknown: simulations are replaced at the next full reset, a rig is only reset.
    """

    def __init__(self, world: World, *, timeout: float | None = None, recorder: Recorder | None = None) -> None:
        """Guard `world`, with at most `timeout` seconds for one reset or step of an episode (None: no limit)."""
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            raise UserError(f"{world.task.name}: timeout = {timeout}; give a positive number of seconds, or None")
        self.faults: list[Fault] = []
        """Faults since the last full reset, in order."""
        self._world = world
        self._timeout = timeout
        self._recorder = recorder
        self._timed: Timed | None = None
        if isinstance(world, SimulatedWorld):
            world.timeout = timeout
            world.isolate()
        elif timeout is not None and not isinstance(world, EquationsWorld):
            self._timed = Timed()
        self._called_at = ""
        """Local time of the last call to the system."""
        self._broken = torch.zeros(0, dtype=torch.bool)
        self._steps = torch.zeros(0, dtype=torch.long)

    @property
    def task(self) -> Task:
        """Return the task whose episodes run here."""
        return self._world.task

    @property
    def hung(self) -> bool:
        """Return True if a call has not returned; the system cannot be used again before the program is restarted."""
        if isinstance(self._world, SimulatedWorld):
            return self._world.hung
        return self._timed is not None and self._timed.hung

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n new episodes and return their states [n, nx]; raise `SystemFault` if anything goes wrong."""
        if slots is None:
            self.faults = []
        start = self._call("reset", lambda: self._world.reset(n, generator, slots=slots, x=x))
        wrong = self._misshapen("states", start, (n, len(self.task.states)))
        if wrong is None and not bool(torch.isfinite(start).all()):
            row, column = (int(i) for i in (~torch.isfinite(start)).nonzero()[0])
            wrong = f"{self.task.states[column].name} is {start[row, column].item()} in episode {row}"
        if wrong is not None:
            raise SystemFault(f"{self.task.name}: reset failed: {wrong}")
        if slots is None:
            self._begin(start)
            if self._recorder is not None:
                self._recorder.begin(start)
        elif len(self._broken):
            self._broken[slots], self._steps[slots] = False, 0
        return start

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Step the active episodes; those that fail are marked in `failed` and listed in `faults`.

        A failed episode keeps its state and costs nothing.
        """
        if len(self._broken) != len(x):  # the episodes started before they were guarded
            self._begin(x)
        on = ~self._broken if active is None else active & ~self._broken
        if not bool(on.any()):
            # A system that has failed is not used again before the next reset.
            return self._no_step(x)
        step, failures = self._try_step(x, u, on)
        failed = torch.zeros_like(on)
        for row in sorted(failures):
            failed[row] = True
            number = int(self._steps[row])
            text = f"{self.task.name}: step {number} failed: {failures[row]}"
            self.faults.append(Fault(episode=row, step=number, text=text))
        self._broken = self._broken | failed
        self._steps = self._steps + on
        if failures:
            keep = ~failed
            cost, safety, violation = (
                given.where(keep.view(-1, *[1] * (given.dim() - 1)), none)
                for given, none in zip(step.charges, self._no_step(x).charges, strict=True)
            )
            step = Step(
                x=step.x.where(keep[:, None], x),
                charges=Charges(cost, safety, violation),
                terminated=step.terminated & keep,
                truncated=step.truncated & keep,
                zeta=None if step.zeta is None else step.zeta.where(keep, 0.0),
                failed=failed,
            )
        if self._recorder is not None and bool((on & ~failed).any()):
            self._recorder.step(x, u, step._replace(failed=failed | ~on))
        return step

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """Return a picture [size, size, 3] of episode `slot`; see `World.render`."""
        return self._call("render", lambda: self._world.render(x, u, slot, size), START_LIMIT)

    def close(self) -> None:
        """Release the system, without waiting for one that hangs."""
        if self._timed is None:
            self._world.close()
        else:
            with contextlib.suppress(NoAnswer):
                self._within(self._world.close, CLOSE_LIMIT)
            self._timed.close()

    def state_dict(self) -> dict[str, Tensor]:
        """Return what the system keeps across resets; see `SimulatedWorld.state_dict`."""
        if not isinstance(self._world, SimulatedWorld):
            return {}
        return self._world.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned."""
        if isinstance(self._world, SimulatedWorld):
            self._world.load_state_dict(state)
        elif state:
            raise UserError(f"{self.task.name}: keeps no state across resets, but was given {sorted(state)}")

    # Checks ---------------------------------------------------------------------------------------------------------

    def _try_step(self, x: Tensor, u: Tensor, on: Tensor) -> tuple[Step, dict[int, str]]:
        """Return a step and, for each episode that failed, the reason in one line."""
        rows: list[int] = on.nonzero()[:, 0].tolist()
        errors: dict[int, Exception] = {}
        self._called_at = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            if isinstance(self._world, SimulatedWorld):
                step, errors = self._world.try_step(x, u, on)
            else:
                step = self._within(lambda: self._world.step(x, u, on))
            wrong = self._first_misshapen(step, len(x))
        except Exception as error:
            return self._no_step(x), dict.fromkeys(rows, self._reason(error))
        if wrong is not None:
            return self._no_step(x), dict.fromkeys(rows, wrong)
        failures = {row: self._reason(error) for row, error in errors.items()}
        for row in rows:
            if step.failed is not None and bool(step.failed[row]):
                failures.setdefault(row, "the system reports a failure")
        return step, {**self._not_finite(step, on), **failures}

    def _first_misshapen(self, step: Step, n: int) -> str | None:
        """Describe the first part of a step of n episodes that has the wrong shape."""
        m = len(self.task.constraints)
        parts: tuple[tuple[str, object, tuple[int, ...]], ...] = (
            ("states", step.x, (n, len(self.task.states))),
            ("costs", step.charges.cost, (n,)),
            ("safety costs", step.charges.safety, (n, m)),
            ("violations", step.charges.violation, (n, m)),
            ("terminated", step.terminated, (n,)),
            ("truncated", step.truncated, (n,)),
        )
        found = (self._misshapen(what, value, shape) for what, value, shape in parts)
        return next((wrong for wrong in found if wrong is not None), None)

    def _misshapen(self, what: str, value: object, shape: tuple[int, ...]) -> str | None:
        """Describe a value that is not a tensor of the given shape."""
        if not isinstance(value, Tensor):
            return f"{what} is a {type(value).__name__}; expected a tensor of shape {list(shape)}"
        if value.shape != shape:
            return f"{what} of shape {list(value.shape)}; expected {list(shape)}"
        return None

    def _not_finite(self, step: Step, on: Tensor) -> dict[int, str]:
        """Name, for each active episode with NaN or infinity, the first such number."""
        names = [*(state.name for state in self.task.states), "cost", *self.task.constraints]
        cost, safety, _ = step.charges
        bad = torch.cat([~torch.isfinite(part) for part in (step.x, cost[:, None], safety)], dim=1) & on[:, None]
        texts = {}
        for row in bad.any(1).nonzero()[:, 0].tolist():
            values = [*step.x[row].tolist(), float(cost[row]), *safety[row].tolist()]
            texts[row] = next(f"{names[i]} is {value}" for i, value in enumerate(values) if bad[row, i])
        return texts

    # Calls to the system --------------------------------------------------------------------------------------------

    def _call(self, what: str, function: Callable[[], T], limit: float = 0.0) -> T:
        """Call the system for something other than a step."""
        if self.hung:
            raise SystemFault(
                f"{self.task.name}: has not answered since {self._called_at}; restart the program once the system "
                "works again"
            )
        self._called_at = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            return self._within(function, limit)
        except Exception as error:
            raise SystemFault(f"{self.task.name}: {what} failed: {self._reason(error)}") from error

    def _within(self, function: Callable[[], T], limit: float = 0.0) -> T:
        """Call the function, with a time limit if there is one; the system is then always called in the same thread."""
        if self._timed is None or self._timeout is None:
            return function()
        grad = torch.is_grad_enabled()

        def with_same_grad_mode() -> T:
            # The gradient mode is local to each thread.
            with torch.set_grad_enabled(grad):
                return function()

        return self._timed(with_same_grad_mode, max(self._timeout, limit))

    def _reason(self, error: Exception) -> str:
        """Return an exception in one line, without the name of the system."""
        return one_line(error).removeprefix(f"{self.task.name}: ")

    def _begin(self, x: Tensor) -> None:
        self._broken = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        self._steps = torch.zeros(len(x), dtype=torch.long, device=x.device)

    def _no_step(self, x: Tensor) -> Step:
        """Return a step that no episode takes, in states [n, nx]."""
        n, m = len(x), len(self.task.constraints)
        never = torch.zeros(n, dtype=torch.bool, device=x.device)
        charges = Charges(x.new_zeros(n), x.new_zeros(n, m), never[:, None].expand(n, m))
        return Step(x, charges, never, never)
