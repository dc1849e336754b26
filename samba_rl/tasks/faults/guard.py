"""A real system may misbehave: NaN, a wrong shape, an exception, no answer. `GuardedWorld` keeps what was measured."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.faults.timed import CLOSE_LIMIT, START_LIMIT, NoAnswer, Timed, one_line
from samba_rl.tasks.simulation import SimulatedWorld
from samba_rl.tasks.task import Charges, EquationsWorld, Step, Task, World
from samba_rl.types import Fault

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")


class SystemFault(Exception):  # noqa: N818 - it is the system's, not the program's
    """A real system failed before its episodes had begun, in reset; or it may no longer be asked at all."""


class Recorder(Protocol):
    """Is told of real steps as they are measured."""

    def begin(self, x: Tensor) -> None:
        """Episodes begin in the states x [n, nx]."""
        ...

    def step(self, x: Tensor, u: Tensor, step: Step) -> None:
        """What came of a step from x [n, nx] with u [n, nu]; not called if none of the episodes took it.

        Here `failed` is always there, and True for every episode that did not take the step: also if it was over.
        """
        ...


@final
class GuardedWorld:
    """A `World` whose `step` never raises because of the system: an episode that fails is broken off, others go on.

    What is wrong with an answer (NaN, a wrong shape) leaves the system as it is. After an exception or a call that did
    not return nobody knows its state: simulations are made anew with the next whole reset, a rig is only reset.
    """

    def __init__(self, world: World, *, timeout: float | None = None, recorder: Recorder | None = None) -> None:
        """A reset or a step of an episode may take `timeout` seconds (None: for ever)."""
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            raise UserError(f"{world.task.name}: timeout = {timeout}; give a positive number of seconds, or None")
        self.faults: list[Fault] = []
        """What broke episodes off since the last whole reset, in order."""
        self._world = world
        self._timeout = timeout
        self._recorder = recorder
        self._timed: Timed | None = None
        if isinstance(world, SimulatedWorld):
            world.timeout = timeout
        elif timeout is not None and not isinstance(world, EquationsWorld):
            self._timed = Timed()
        self._asked = ""
        """When the system was last asked for something."""
        self._broken = torch.zeros(0, dtype=torch.bool)
        self._steps = torch.zeros(0, dtype=torch.long)

    @property
    def task(self) -> Task:
        """The system whose episodes run here."""
        return self._world.task

    @property
    def hung(self) -> bool:
        """Whether a call has not returned: nobody may use the system again before the program is restarted."""
        if isinstance(self._world, SimulatedWorld):
            return self._world.hung
        return self._timed is not None and self._timed.hung

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n episodes: see `World.reset`. Whatever goes wrong is a `SystemFault`."""
        if slots is None:
            self.faults = []
        start = self._ask("reset", lambda: self._world.reset(n, generator, slots=slots, x=x))
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
        """Step the active episodes: see `World.step`. Those that fail get `failed`, stay where they were, and cost
        nothing; what they failed with is in `faults`."""
        if len(self._broken) != len(x):  # episodes that began before they were guarded
            self._begin(x)
        on = ~self._broken if active is None else active & ~self._broken
        if not bool(on.any()):
            # A system that has failed is not touched again before the next reset.
            return self._still(x)
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
            still, keep = self._still(x), ~failed
            cost, safety, violation = (
                given.where(keep.view(-1, *[1] * (given.dim() - 1)), none)
                for given, none in zip(step.charges, still.charges, strict=True)
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
        """A picture: see `World.render`."""
        return self._ask("render", lambda: self._world.render(x, u, slot, size), START_LIMIT)

    def close(self) -> None:
        """Let go of the system; of one that hangs at once."""
        if self._timed is None:
            self._world.close()
        else:
            with contextlib.suppress(NoAnswer):
                self._within(self._world.close, CLOSE_LIMIT)
            self._timed.close()

    def state_dict(self) -> dict[str, Tensor]:
        """What the system carries from one episode to the next: see `SimulatedWorld.state_dict`; else empty."""
        if not isinstance(self._world, SimulatedWorld):
            return {}
        return self._world.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Give the system what `state_dict` gave."""
        if isinstance(self._world, SimulatedWorld):
            self._world.load_state_dict(state)
        elif state:
            raise UserError(f"{self.task.name}: a state {sorted(state)} was given, but it carries none over resets")

    # What may go wrong ----------------------------------------------------------------------------------------------

    def _try_step(self, x: Tensor, u: Tensor, on: Tensor) -> tuple[Step, dict[int, str]]:
        """What came of a step, and what the episodes that failed did so with, in one line."""
        rows: list[int] = on.nonzero()[:, 0].tolist()
        errors: dict[int, Exception] = {}
        self._asked = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            if isinstance(self._world, SimulatedWorld):
                step, errors = self._world.try_step(x, u, on)
            else:
                step = self._within(lambda: self._world.step(x, u, on))
            wrong = self._unfit(step, len(x))
        except Exception as error:
            return self._still(x), dict.fromkeys(rows, self._told(error))
        if wrong is not None:
            return self._still(x), dict.fromkeys(rows, wrong)
        failures = {row: self._told(error) for row, error in errors.items()}
        for row in rows:
            if step.failed is not None and bool(step.failed[row]):
                failures.setdefault(row, "the system reports a failure")
        failures = {**self._not_finite(step, on), **failures}
        return step, failures

    def _unfit(self, step: Step, n: int) -> str | None:
        """What has a wrong shape in a step of n episodes."""
        m = len(self.task.constraints)
        parts: tuple[tuple[str, Any, tuple[int, ...]], ...] = (
            ("states", step.x, (n, len(self.task.states))),
            ("costs", step.charges.cost, (n,)),
            ("safety costs", step.charges.safety, (n, m)),
            ("violations", step.charges.violation, (n, m)),
            ("terminated", step.terminated, (n,)),
            ("truncated", step.truncated, (n,)),
        )
        found = (self._misshapen(what, value, shape) for what, value, shape in parts)
        return next((wrong for wrong in found if wrong is not None), None)

    def _misshapen(self, what: str, value: Any, shape: tuple[int, ...]) -> str | None:
        if not isinstance(value, Tensor):
            return f"{what} came as a {type(value).__name__}; expected a tensor of shape {list(shape)}"
        if value.shape != shape:
            return f"{what} of shape {list(value.shape)}; expected {list(shape)}"
        return None

    def _not_finite(self, step: Step, on: Tensor) -> dict[int, str]:
        """For each active episode with a number that is none, which one it is."""
        names = [*(state.name for state in self.task.states), "cost", *self.task.constraints]
        cost, safety, _ = step.charges
        bad = torch.cat([~torch.isfinite(part) for part in (step.x, cost[:, None], safety)], dim=1) & on[:, None]
        texts = {}
        for row in bad.any(1).nonzero()[:, 0].tolist():
            values = [*step.x[row].tolist(), float(cost[row]), *safety[row].tolist()]
            texts[row] = next(f"{names[i]} is {value}" for i, value in enumerate(values) if bad[row, i])
        return texts

    # How it is asked ------------------------------------------------------------------------------------------------

    def _ask(self, what: str, function: Callable[[], T], limit: float = 0.0) -> T:
        """Ask the system for something other than a step."""
        if self.hung:
            raise SystemFault(
                f"{self.task.name}: has not answered since {self._asked}; restart the program once the system is in "
                "order"
            )
        self._asked = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            return self._within(function, limit)
        except Exception as error:
            raise SystemFault(f"{self.task.name}: {what} failed: {self._told(error)}") from error

    def _within(self, function: Callable[[], T], limit: float = 0.0) -> T:
        """Call the function, where need be in the thread in which the system is always called."""
        if self._timed is None or self._timeout is None:
            return function()
        grad = torch.is_grad_enabled()

        def with_the_same_gradients() -> T:
            # Whether gradients are wanted is a matter of each thread.
            with torch.set_grad_enabled(grad):
                return function()

        return self._timed(with_the_same_gradients, max(self._timeout, limit))

    def _told(self, error: Exception) -> str:
        """An exception in one line, for a text that names the system already."""
        return one_line(error).removeprefix(f"{self.task.name}: ")

    def _begin(self, x: Tensor) -> None:
        self._broken = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        self._steps = torch.zeros(len(x), dtype=torch.long, device=x.device)

    def _still(self, x: Tensor) -> Step:
        """A step that nobody takes, in states [n, nx]."""
        n, m = len(x), len(self.task.constraints)
        never = torch.zeros(n, dtype=torch.bool, device=x.device)
        charges = Charges(x.new_zeros(n), x.new_zeros(n, m), never[:, None].expand(n, m))
        return Step(x, charges, never, never)
