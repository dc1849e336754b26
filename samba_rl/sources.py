"""Where traces come from: the real system, or a model of it; and the first real trials, before there is a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, final

import torch
from torch import Generator, Tensor

from samba_rl.exploration import entropy, zeta_bootstrap
from samba_rl.models.gp import GPDynamics
from samba_rl.models.world import ModelWorld
from samba_rl.policies import OpenLoopPolicy, UniformPolicy
from samba_rl.rollout import rollout
from samba_rl.tasks.task import Task, World
from samba_rl.types import Policy, Traces, UserError

ZetaName = Literal["loo", "bootstrap", "entropy"]
FirstTrials = Literal["uniform", "held", "sobol"]


class Source(Protocol):
    """Gives traces of a policy."""

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """n trajectories under the policy."""
        ...


@final
@dataclass(frozen=True)
class RealSource:
    """The real system."""

    world: World

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """n real trajectories; one after the other where the system is a single one, such as a rig."""
        parts = policies_by_part(policy, n, self.world.task.parallel)
        return Traces.joined([rollout(self.world, one, count, generator=generator) for one, count in parts])


def policies_by_part(policy: Policy, n: int, parallel: bool) -> list[tuple[Policy, int]]:
    """The policy for n episodes and their number: all at once, or one after the other."""
    if parallel:
        return [(policy, n)]
    return [(policy.episode(i) if isinstance(policy, OpenLoopPolicy) else policy, 1) for i in range(n)]


@final
@dataclass(frozen=True)
class ModelSource:
    """A Gaussian-process model of the system."""

    model: GPDynamics
    zeta: ZetaName | None = None
    """What is measured of each imagined step."""
    draw: Literal["marginals", "functions"] = "marginals"
    starts: Tensor | None = None
    """Start states to draw from [k, nx]; None: the task's own."""

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """n imagined trajectories."""
        world = ModelWorld(self.model, zeta=self._zeta(), draw=self.draw, starts=self.starts)
        return rollout(world, policy, n, generator=generator)

    def _zeta(self) -> Literal["loo"] | Callable[[Tensor], Tensor] | None:
        if self.zeta == "bootstrap":
            return partial(zeta_bootstrap, self.model)
        if self.zeta == "entropy":
            return partial(entropy, self.model)
        return self.zeta


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
