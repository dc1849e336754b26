"""A line whose sensor gives wild readings at chosen steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Generator, Tensor

from samba_rl.tasks.world import EquationsWorld, Step, World
from samba_rl.types import Transitions
from tests.line import Line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@final
class BadSensor:
    """A world that moves as it should, and reads `value` in episode 0 at the given steps, counted from the first."""

    def __init__(self, inner: World, readings: dict[int, float]) -> None:
        self.inner, self.task, self.readings, self.steps = inner, inner.task, readings, 0

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        self.x = self.inner.reset(n, generator, slots=slots, x=x)
        return self._read(self.x)

    def _read(self, x: Tensor) -> Tensor:
        """Return what the sensor reads: in all of trial n the same, if there is a reading with the key -1 - n."""
        value = self.readings.get(-1 - self.steps // self.task.horizon)
        return x if value is None else torch.full_like(x, value)

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        step = self.inner.step(self.x, u, active)
        read = self._read(step.x).clone()
        self.x, self.steps = step.x, self.steps + 1
        if self.steps - 1 in self.readings:
            read[0, 0] = self.readings[self.steps - 1]
        if torch.equal(read, step.x):
            return step
        return step._replace(x=read, charges=self.task.charge(x, u, read))

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        return self.inner.render(x, u, slot, size)

    def close(self) -> None:
        self.inner.close()


def glitchy(readings: dict[int, float]) -> Line:
    """A line with a bad sensor. It is called `line` all the same, so that its runs can be resumed with a good one."""
    task = Line()
    made: Any = lambda workers=None: BadSensor(EquationsWorld(task, task.draw), readings)  # noqa: E731
    object.__setattr__(task, "world", made)
    return task


def steps_of(*episodes: list[float]) -> Transitions:
    """The steps of episodes on a line, by their readings; actions are what moves the line so, within their bounds."""
    columns: dict[str, list[Tensor]] = {}
    for number, readings in enumerate(episodes):
        x = torch.tensor(readings, dtype=torch.float64)[:, None]
        u, n = (x[1:] - x[:-1]).clamp(-1, 1), len(x) - 1
        part = {
            "x": x[:-1],
            "u": u,
            "x_next": x[1:],
            "cost": x[1:, 0].square(),
            "safety": ((x[1:] - 0.5) / 0.5).clamp(0, 1),
            "violation": x[1:] >= 1,
            "terminated": torch.zeros(n, dtype=torch.bool),
            "episode": torch.full((n,), number),
            "step": torch.arange(n),
        }
        for name, value in part.items():
            columns.setdefault(name, []).append(value)
    return Transitions(**{name: torch.cat(parts) for name, parts in columns.items()})
