"""Models for figures: GP models fitted to random steps of the true system."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator

from samba_rl.agents.first import FirstSettings, first_policy
from samba_rl.models.gp import GPDynamics
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions

SAMPLES = {
    "safe-pendulum": (20, 40, 100),
    "safe-cart-pole-double-pendulum": (100, 200, 500),
    "safe-fetch-reach": (20, 40, 100),
}
"""The paper's numbers of samples of the models, by system."""


def model_sizes(task: Task, samples: Sequence[int] | None) -> tuple[int, ...]:
    """Return the given numbers of samples, or the paper's for this system."""
    return tuple(samples or SAMPLES.get(task.name, (20, 40, 100)))


def random_steps(task: Task, count: int, generator: Generator, hold: int = 1) -> Transitions:
    """Return the first `count` steps of random episodes on the true system, with each action held for `hold` steps."""
    world, parts, found = task.world(0), [], 0
    try:
        while found < count:
            episodes = -(-(count - found) // task.horizon)
            first = FirstSettings(how="held" if hold > 1 else "uniform", hold=hold)
            policy = first_policy(task, first, episodes, generator)
            parts.append(rollout(world, policy, episodes, generator=generator).transitions())
            found += len(parts[-1])
    finally:
        world.close()
    return Transitions(**{name: torch.cat([getattr(part, name) for part in parts])[:count] for name in vars(parts[0])})


def fitted(task: Task, steps: Transitions, samples: int) -> GPDynamics:
    """Return a model fitted to the first `samples` of the steps."""
    model = GPDynamics(task)
    model.fit(Transitions(**{name: value[:samples] for name, value in vars(steps).items()}))
    return model
