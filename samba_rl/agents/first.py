"""Policies of the first real trials, before there is a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
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
    amplitude: Annotated[float, In("(0, 1]")] = 1.0
    """Size of the drawn actions, as a share of the action range: they lie between rest (0, or the bound nearest to it)
    and this share of the way to either bound."""
    ramp: Annotated[int, In("[0, 1e9]")] = 0
    """Steps over which the amplitude grows to its full size at the start of each episode. 0: none."""
    stop: Annotated[float, In("[0, 1e12]")] | None = None
    """Safety cost of a step above which an episode of the first trials ends at once; what was measured counts. None: no
    such stop. A rig that another program runs has an emergency stop of its own instead."""
    data: str = ""
    """CSV or Parquet files, or Minari datasets, of real transitions measured earlier, separated by commas; they do not
    count as samples."""
    columns: str = ""
    """Columns of these files that are called otherwise than the system's quantities, as in angle=theta,time=t."""
    data_dt: Annotated[float, In("(0, 1e6]")] | None = None
    """Time between two lines of these files, in seconds. None: from their column `time`, or the system's time step."""


@final
@dataclass(frozen=True)
class Controller:
    """A controller of the user's own as a policy."""

    function: Callable[[Tensor], Tensor]
    """Function from observations [B, no] to actions [B, nu]."""

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:  # noqa: ARG002 - it draws nothing
        """Return the actions [B, nu] for observations [B, no]."""
        action: object = self.function(observation)
        if not isinstance(action, Tensor):
            raise UserError(
                f"the controller returned a {type(action).__name__}; write it with torch operations on whole batches: "
                "observations [B, no] to actions [B, nu]"
            )
        return action.to(observation)


def first_policy(task: Task, settings: FirstSettings, episodes: int, generator: Generator) -> Policy:
    """Return the policy of the first real trials, of which there are `episodes`."""
    low, high = task.action_bounds()
    if settings.how == "uniform" and settings.amplitude == 1 and settings.ramp == 0:
        return UniformPolicy(tuple(low.tolist()), tuple(high.tolist()))
    actions = low + (high - low) * _drawn(task, settings, episodes, generator)
    rest = task.clip(torch.zeros_like(low))
    growth = torch.arange(1, task.horizon + 1, dtype=torch.float64) / max(settings.ramp, 1)
    share = settings.amplitude * growth.clamp(max=1)[:, None]
    return OpenLoopPolicy(
        actions if settings.amplitude == 1 and settings.ramp == 0 else rest + share * (actions - rest)
    )


def _drawn(task: Task, settings: FirstSettings, episodes: int, generator: Generator) -> Tensor:
    """Draw actions [episodes, T, nu] in units of their range, from 0 to 1."""
    hold = 1 if settings.how == "uniform" else settings.hold
    count, blocks = len(task.actions), -(-task.horizon // hold)
    if settings.how == "sobol":
        seed = int(torch.randint(2**31, (1,), generator=generator))
        engine = torch.quasirandom.SobolEngine(blocks * count, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
        unit = engine.draw(episodes, dtype=torch.float64).reshape(episodes, blocks, count)
        offset = torch.zeros(episodes, 1, dtype=torch.int64)
    else:
        unit = torch.rand(episodes, blocks + 1, count, generator=generator, dtype=torch.float64)
        offset = torch.randint(hold, (episodes, 1), generator=generator)
    block = (torch.arange(task.horizon) + offset) // hold
    return unit.gather(1, block[..., None].expand(-1, -1, count))
