"""A world that ends an episode as soon as its safety cost exceeds a bound, for trials of policies that know nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import Generator, Tensor

from samba_rl.tasks.task import Task
from samba_rl.tasks.world import Step, World
from samba_rl.types import Fault

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@final
class StoppingWorld:
    """A `World` whose episodes end with the first step whose safety cost exceeds a bound."""

    def __init__(self, world: World, bound: float) -> None:
        """End episodes of `world` whose safety cost, the largest of all constraints, exceeds `bound`."""
        self._world, self._bound = world, bound
        self.stops: list[Fault] = []
        """Episodes that were ended since the last full reset."""
        self._steps = torch.zeros(0, dtype=torch.long)

    @property
    def task(self) -> Task:
        """Return the task whose episodes run here."""
        return self._world.task

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n new episodes and return their states [n, nx]; see `World.reset`."""
        if slots is None:
            self.stops, self._steps = [], torch.zeros(n, dtype=torch.long)
        return self._world.reset(n, generator, slots=slots, x=x)

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Take a step, and cut the episodes short that exceed the bound with it."""
        step = self._world.step(x, u, active)
        on = torch.ones(len(x), dtype=torch.bool) if active is None else active
        self._steps = self._steps + on
        over = on & (step.charges.safety.amax(-1) > self._bound)
        for row in over.nonzero()[:, 0].tolist():
            count, worst = int(self._steps[row]), float(step.charges.safety[row].max())
            text = f"step {count - 1} has the safety cost {worst:.3g}, above first.stop = {self._bound:g}"
            self.stops.append(Fault(row, count, f"{self.task.name}: {text}", stopped=True))
        return step._replace(truncated=step.truncated | over)

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """Return a picture [size, size, 3] of episode `slot`; see `World.render`."""
        return self._world.render(x, u, slot, size)

    def close(self) -> None:
        """Release the system."""
        self._world.close()
