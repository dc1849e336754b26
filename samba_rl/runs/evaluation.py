"""How good and how safe a policy is on the real system: a seeded pass of its own, apart from learning."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.improve.constraints import Constraint, CVaR
from samba_rl.tasks.rollout import RealSource
from samba_rl.tasks.task import Task
from samba_rl.types import Policy


@final
@dataclass(frozen=True)
class Evaluation:
    """What came of some thousand steps."""

    TV: int
    """Steps inside the unsafe region."""
    TC: float
    """Safety cost in all."""
    steps: int
    episodes: int
    return_mean: float
    """Of an episode: negative cost."""
    return_std: float
    safety_quartiles: tuple[float, float, float]
    """Of an episode's safety cost."""
    cvar: float
    """CVaR_α of an episode's safety cost."""
    alpha: float
    limit: float | None
    """What the first constraint was to stay under, of an episode, if there is one."""
    constraints: tuple[tuple[str, float, float], ...]
    """What each constraint is, its value and its limit."""
    seed: int
    deterministic: bool

    def to_json(self) -> dict[str, Any]:
        """For a line of JSON."""
        return asdict(self)


def evaluate(
    task: Task,
    policy: Policy,
    *,
    steps: int = 10_000,
    seed: int = 0,
    alpha: float = 0.9,
    constraints: tuple[Constraint, ...] = (),
    deterministic: bool = False,
    workers: int | None = None,
) -> Evaluation:
    """Run whole episodes until `steps` steps are done; several safety costs are added up.

    `deterministic` only goes into the result: whoever asks for it gives a policy without noise.
    """
    if steps < 1:
        raise UserError(f"an evaluation of {steps} steps; at least 1 is needed")
    generator = torch.Generator().manual_seed(seed)
    returns, safety, done, violations = [], [], 0, 0
    amounts: list[list[Tensor]] = [[] for _ in constraints]
    world = task.world(workers)
    try:
        while done < steps:
            traces = RealSource(world)(policy, -(-(steps - done) // task.horizon), generator)
            returns.append(traces.returns)
            safety.append(traces.safety_costs.sum(-1))
            violations += int(traces.violation.any(-1).sum())
            for constraint, column in zip(constraints, amounts, strict=True):
                column.append(constraint.amounts(traces))
            done += traces.steps
    finally:
        world.close()
    all_returns, all_safety = torch.cat(returns), torch.cat(safety)
    low, median, high = all_safety.quantile(all_safety.new_tensor([0.25, 0.5, 0.75])).tolist()
    return Evaluation(
        TV=violations,
        TC=float(all_safety.sum()),
        steps=done,
        episodes=len(all_returns),
        return_mean=float(all_returns.mean()),
        return_std=float(all_returns.std(correction=0)),
        safety_quartiles=(low, median, high),
        cvar=float(CVaR(name="safety", limit=0.0, alpha=alpha).value(all_safety)),
        alpha=alpha,
        limit=constraints[0].limit * (task.horizon if constraints[0].per_step else 1) if constraints else None,
        constraints=tuple(
            (constraint.in_words(), float(constraint.value(torch.cat(column))), constraint.limit)
            for constraint, column in zip(constraints, amounts, strict=True)
        ),
        seed=seed,
        deterministic=deterministic,
    )
