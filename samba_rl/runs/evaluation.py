"""Evaluation of a policy on the real system: its return and its safety, on seeded episodes apart from learning."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.improve.constraints import Constraint, ConstraintResult, CVaR
from samba_rl.tasks.rollout import RealSource
from samba_rl.tasks.task import Task
from samba_rl.types import Policy


@final
@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    TV: int
    """Number of steps in the unsafe region."""
    TC: float
    """Total safety cost."""
    steps: int
    """Number of real steps."""
    episodes: int
    """Number of whole episodes."""
    return_mean: float
    """Mean return (negative cost) of an episode."""
    return_std: float
    """Standard deviation of the return over episodes."""
    safety_quartiles: tuple[float, float, float]
    """Quartiles of the safety cost of an episode."""
    cvar: float
    """CVaR_α of the safety cost of an episode."""
    alpha: float
    """Level α of CVaR."""
    limit: float | None
    """Limit of the first constraint, per episode; None without constraints."""
    constraints: tuple[ConstraintResult, ...]
    """Measured value of each constraint, beside its limit."""
    seed: int
    """Seed of the episodes."""
    deterministic: bool
    """Whether the policy acted without noise."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON."""
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
    """Run whole episodes until at least `steps` steps are done; several safety costs are added up.

    `deterministic` is only recorded in the result: the policy that is passed in must already be without noise.
    """
    if steps < 1:
        raise UserError(f"cannot evaluate {steps} steps; at least 1 is needed")
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
            constraint.result(torch.cat(column)) for constraint, column in zip(constraints, amounts, strict=True)
        ),
        seed=seed,
        deterministic=deterministic,
    )
