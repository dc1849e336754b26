"""Policies of the first real trials, before there is a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Generator

from samba_rl.improve.policies import OpenLoopPolicy, UniformPolicy
from samba_rl.ranges import Count, In
from samba_rl.tasks.task import Task
from samba_rl.types import Policy


@dataclass(frozen=True)
class FirstSettings:
    """The first real trials, before there is a model."""

    samples: Annotated[int, In("[0, 1e9]")] = 150
    """Real steps of the first trials, rounded up to whole episodes."""
    how: Literal["uniform", "held", "sobol"] = "held"
    """How actions are drawn. uniform: afresh at every step. held: kept for `hold` steps, which leads farther from the
    start. sobol: sequences of held actions, spread evenly over the action range."""
    hold: Count = 5
    """Steps for which a drawn action is held."""
    data: str = ""
    """CSV or Parquet files, or Minari datasets, of real transitions measured earlier, separated by commas; they do not
    count as samples."""
    columns: str = ""
    """Columns of these files that are called otherwise than the system's quantities, as in angle=theta,time=t."""
    data_dt: Annotated[float, In("(0, 1e6]")] | None = None
    """Time between two lines of these files, in seconds. None: from their column `time`, or the system's time step."""


def first_policy(task: Task, settings: FirstSettings, episodes: int, generator: Generator) -> Policy:
    """Return the policy of the first real trials, of which there are `episodes`."""
    low, high = task.action_bounds()
    if settings.how == "uniform":
        return UniformPolicy(tuple(low.tolist()), tuple(high.tolist()))
    hold = settings.hold
    count, blocks = len(task.actions), -(-task.horizon // hold)
    if settings.how == "held":
        unit = torch.rand(episodes, blocks + 1, count, generator=generator, dtype=torch.float64)
        offset = torch.randint(hold, (episodes, 1), generator=generator)
    else:
        seed = int(torch.randint(2**31, (1,), generator=generator))
        engine = torch.quasirandom.SobolEngine(blocks * count, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
        unit = engine.draw(episodes, dtype=torch.float64).reshape(episodes, blocks, count)
        offset = torch.zeros(episodes, 1, dtype=torch.int64)
    block = (torch.arange(task.horizon) + offset) // hold
    held = unit.gather(1, block[..., None].expand(-1, -1, count))
    return OpenLoopPolicy(low + (high - low) * held)
