"""Policies of the first real trials, before there is a model."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator

from samba_rl.errors import UserError
from samba_rl.improve.policies import OpenLoopPolicy, UniformPolicy
from samba_rl.tasks.task import Task
from samba_rl.types import Policy

FirstTrials = Literal["uniform", "held", "sobol"]


def first_policy(task: Task, how: FirstTrials, episodes: int, hold: int, generator: Generator) -> Policy:
    """The policy of the first real trials, of which there are `episodes`.

    uniform draws every action afresh; held keeps one for up to `hold` steps, which leads farther from the start; sobol
    spreads whole sequences of held actions evenly over all that there are.
    """
    if how == "uniform":
        return UniformPolicy(tuple(a.low for a in task.actions), tuple(a.high for a in task.actions))
    if hold < 1:
        raise UserError(f"actions are held for {hold} steps; at least 1 is needed")
    count, blocks = len(task.actions), -(-task.horizon // hold)
    if how == "held":
        unit = torch.rand(episodes, blocks + 1, count, generator=generator, dtype=torch.float64)
        offset = torch.randint(hold, (episodes, 1), generator=generator)
    else:
        seed = int(torch.randint(2**31, (1,), generator=generator))
        engine = torch.quasirandom.SobolEngine(blocks * count, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
        unit = engine.draw(episodes, dtype=torch.float64).reshape(episodes, blocks, count)
        offset = torch.zeros(episodes, 1, dtype=torch.int64)
    block = (torch.arange(task.horizon) + offset) // hold
    held = unit.gather(1, block[..., None].expand(-1, -1, count))
    low = torch.tensor([a.low for a in task.actions], dtype=torch.float64)
    high = torch.tensor([a.high for a in task.actions], dtype=torch.float64)
    return OpenLoopPolicy(low + (high - low) * held)
