"""Episodes with their films: replayed, recorded while they run, or drawn from their numbers."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple, final

from samba_rl.errors import UserError
from samba_rl.report.film import Frame, film
from samba_rl.tasks.render.plain import draw_episode
from samba_rl.tasks.rollout import policies_by_part, rollout
from samba_rl.tasks.world import Step, World
from samba_rl.types import Policy, Traces

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from samba_rl.tasks.task import Task


class Filmed(NamedTuple):
    """Episodes and the films of the first of them."""

    traces: Traces
    """All episodes."""
    films: list[list[Frame]]
    """Frames of each filmed episode."""
    own: bool
    """Whether the system drew itself; otherwise the films show its states over time."""
    seconds: float
    """Time that the episodes took, with recording but without replaying and drawing."""


def filmed(
    task: Task,
    policy: Policy,
    episodes: int,
    shown: int,
    *,
    generator: Generator,
    workers: int | None = 0,
    size: int = 480,
) -> Filmed:
    """Run episodes of a policy on the real system, and film the first `shown` of them."""
    drawn = None if task.pure_start else _drawing(task)
    camera = _Camera((drawn or task).world(workers), shown if drawn is not None else 0, size)
    begin = time.perf_counter()
    try:
        parts = policies_by_part(policy, episodes, parallel=task.parallel)
        traces = Traces.joined([rollout(camera, one, count, generator=generator) for one, count in parts])
    finally:
        camera.close()
    seconds = time.perf_counter() - begin
    if len(camera.films) == shown:
        return Filmed(traces, camera.films, own=True, seconds=seconds)
    if task.pure_start:
        # A system without a picture of its own says so.
        with contextlib.suppress(UserError, NotImplementedError):
            return Filmed(
                traces, [film(task, traces, episode, size) for episode in range(shown)], own=True, seconds=seconds
            )
    return Filmed(traces, [draw_episode(task, traces, episode) for episode in range(shown)], own=False, seconds=seconds)


def _drawing(task: Task) -> Task | None:
    """Return a task that draws itself while it runs, if there is one."""
    from samba_rl.tasks.gym.pictures import drawing
    from samba_rl.tasks.gym.task import GymTask

    return drawing(task) if isinstance(task, GymTask) else None


@final
class _Camera:
    """A world that films its first episodes."""

    def __init__(self, world: World, most: int, size: int) -> None:
        self._world, self._most, self._size = world, most, size
        self._rolling: list[list[Frame]] = []
        self.films: list[list[Frame]] = []
        """Films of the episodes so far, at most `most`; none if the system failed to draw itself."""

    @property
    def task(self) -> Task:
        """Return the task whose episodes run here."""
        return self._world.task

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n new episodes, and begin to film those that there is room for."""
        start = self._world.reset(n, generator, slots=slots, x=x)
        self._rolling = [[] for _ in range(min(n, self._most - len(self.films)))]
        self.films += self._rolling
        for slot in range(len(self._rolling)):
            self._shoot(start[slot], None, slot)
        return start

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Take a step, and film it in the episodes that took it."""
        step = self._world.step(x, u, active)
        for slot in range(len(self._rolling)):
            if active is None or bool(active[slot]):
                self._shoot(step.x[slot], u[slot], slot)
        return step

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> Frame:
        """Return a picture of episode `slot`."""
        return self._world.render(x, u, slot, size)

    def close(self) -> None:
        """Release the system."""
        self._world.close()

    def _shoot(self, x: Tensor, u: Tensor | None, slot: int) -> None:
        try:
            frame = self._world.render(x, u, slot, self._size)
        except Exception:
            # No display, no OpenGL, a broken render(): the episode goes on, and its numbers can be drawn.
            self._most, self._rolling, self.films = 0, [], []
            return
        if self._rolling:
            self._rolling[slot].append(frame)
