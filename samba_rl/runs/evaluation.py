"""Evaluation of a policy on the real system: its return and its safety, on seeded episodes apart from learning."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from samba_rl.data.plain import from_plain
from samba_rl.errors import UserError
from samba_rl.improve.constraints import Constraint, CVaR
from samba_rl.improve.results import ConstraintResult
from samba_rl.runs.folder import EVALUATION, read_json
from samba_rl.tasks.rig import RigTask
from samba_rl.tasks.rollout import RealSource
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, Traces

STEPS = 10_000
"""Number of real steps of an evaluation unless another number of steps or episodes is given."""
COMMON_ALPHA = 0.9
"""Level α at which every evaluation gives CVaR, so that learners with different levels can be compared."""
HALF_WIDTH = 1.96
"""Standard errors from the middle to the end of a 95 % interval."""
BATCH = 1000
"""Largest number of episodes that run at once, which bounds the memory of long evaluations."""


@final
@dataclass(frozen=True)
class StandardErrors:
    """Standard errors of the figures of an evaluation, each in the unit of its figure.

    They are estimated from the spread over the episodes, which are independent.
    """

    return_mean: float
    """Standard error of the mean return."""
    TV: float
    """Standard error of TV in the evaluation's number of steps."""
    TC: float
    """Standard error of TC in the evaluation's number of steps."""
    safety_mean: float
    """Standard error of the mean safety cost of an episode."""
    safety_quartiles: tuple[float, float, float]
    """Standard errors of the quartiles of an episode's safety cost."""
    cvar: float
    """Standard error of CVaR at level α."""
    cvar90: float
    """Standard error of CVaR at level 0.9."""
    constraints: tuple[float, ...]
    """Standard error of the value of each constraint."""


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
    cvar90: float | None = None
    """CVaR at level 0.9 of the safety cost of an episode; None in results of earlier versions."""
    errors: StandardErrors | None = None
    """Standard errors of the figures; None for a single episode and in results of earlier versions."""

    @property
    def safety_mean(self) -> float:
        """Return the mean safety cost of an episode."""
        return self.TC / self.episodes

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON."""
        return asdict(self)


def read_evaluations(folder: Path) -> tuple[Evaluation, Evaluation] | None:
    """Read the evaluations with and without noise in a run's folder; None if there are none."""
    path = folder / EVALUATION
    if not path.exists():
        return None
    kept = read_json(path)
    with_noise, without_noise = (
        from_plain(Evaluation, kept.get(name), f"{path}: {name}") for name in ("with_noise", "without_noise")
    )
    return with_noise, without_noise


def fresh_seed() -> int:
    """Return an unpredictable seed, small enough to be typed again."""
    return secrets.randbelow(2**31)


def evaluate(
    task: Task,
    policy: Policy,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    seed: int = 0,
    alpha: float = 0.9,
    constraints: tuple[Constraint, ...] = (),
    deterministic: bool = False,
    workers: int | None = None,
) -> Evaluation:
    """Run `episodes` whole episodes, or as many as take at least `steps` steps; several safety costs are added up.

    `deterministic` is only recorded in the result: the policy that is passed in must already be without noise.
    """
    returns, safety, unsafe, lengths = [], [], [], []
    amounts: list[list[Tensor]] = [[] for _ in constraints]
    with real_episodes(task, policy, steps=steps, episodes=episodes, seed=seed, workers=workers) as batches:
        for traces in batches:
            returns.append(traces.returns)
            safety.append(traces.safety_costs.sum(-1))
            unsafe.append(traces.violation.any(-1).sum(1))
            lengths.append(traces.active.sum(1))
            for constraint, column in zip(constraints, amounts, strict=True):
                column.append(constraint.amounts(traces))
    all_returns, all_safety, all_unsafe, taken = map(torch.cat, (returns, safety, unsafe, lengths))
    all_amounts = [torch.cat(column) for column in amounts]
    tail, tail90 = (CVaR(name="safety", limit=0.0, alpha=level) for level in (alpha, COMMON_ALPHA))
    errors = StandardErrors(
        return_mean=_mean_error(all_returns),
        TV=_total_error(all_unsafe, taken),
        TC=_total_error(all_safety, taken),
        safety_mean=_mean_error(all_safety),
        safety_quartiles=_quartile_errors(all_safety),
        cvar=_mean_error(_contributions(tail, all_safety)),
        cvar90=_mean_error(_contributions(tail90, all_safety)),
        constraints=tuple(
            _mean_error(_contributions(one, column)) for one, column in zip(constraints, all_amounts, strict=True)
        ),
    )
    low, median, high = all_safety.quantile(all_safety.new_tensor([0.25, 0.5, 0.75])).tolist()
    return Evaluation(
        TV=int(all_unsafe.sum()),
        TC=float(all_safety.sum()),
        steps=int(taken.sum()),
        episodes=len(all_returns),
        return_mean=float(all_returns.mean()),
        return_std=float(all_returns.std(correction=0)),
        safety_quartiles=(low, median, high),
        cvar=float(tail.value(all_safety)),
        alpha=alpha,
        limit=constraints[0].limit * (task.horizon if constraints[0].per_step else 1) if constraints else None,
        constraints=tuple(one.result(column) for one, column in zip(constraints, all_amounts, strict=True)),
        seed=seed,
        deterministic=deterministic,
        cvar90=float(tail90.value(all_safety)),
        errors=errors if len(all_returns) > 1 else None,
    )


@contextmanager
def real_episodes(
    task: Task,
    policy: Policy,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    seed: int,
    workers: int | None = None,
) -> Iterator[Iterator[Traces]]:
    """Open the real system and provide batches of whole episodes until so many steps or episodes are done."""
    if steps is not None and episodes is not None:
        raise UserError(f"cannot evaluate {steps} steps and {episodes} episodes; give one of the two")
    if isinstance(task, RigTask):
        raise task.outside()
    if steps is None and episodes is None and not task.parallel:
        raise UserError(f"{task.name} is a rig, which runs only what it is told to; give a number of steps or episodes")
    unit = "steps" if episodes is None else "episodes"
    wanted = episodes if episodes is not None else STEPS if steps is None else steps
    if wanted < 1:
        raise UserError(f"cannot evaluate {wanted} {unit}; at least 1 is needed")
    if not 0 <= seed < 2**63:
        raise UserError(f"seed = {seed}; give a whole number from 0 to 2^63 - 1")
    generator = torch.Generator().manual_seed(seed)
    # A rig runs one episode at a time anyway, and its progress can then be followed.
    most = BATCH if task.parallel else 1
    world = task.world(workers)

    def batches() -> Iterator[Traces]:
        done = 0
        while done < wanted:
            left = wanted - done
            traces = RealSource(world)(policy, min(left if episodes else -(-left // task.horizon), most), generator)
            yield traces
            done += len(traces.cost) if episodes else traces.steps

    try:
        yield batches()
    finally:
        world.close()


# Standard errors ------------------------------------------------------------------------------------------------------


def _contributions(constraint: Constraint, amounts: Tensor) -> Tensor:
    """Return the contribution of each amount [B] to the value, which is their mean."""
    if not isinstance(constraint, CVaR):
        return amounts
    nu = constraint.nu(amounts)
    return nu + (amounts - nu).clamp(min=0) / (1 - constraint.alpha)


def _mean_error(values: Tensor) -> float:
    """Return the standard error of the mean of values [B]; zero for a single one."""
    return float(values.std(correction=0)) / math.sqrt(max(len(values) - 1, 1))


def _total_error(amounts: Tensor, lengths: Tensor) -> float:
    """Return the standard error of the total of amounts [B] at the given total length of the episodes [B].

    The amount per step is a ratio of two means, so its error is that of the deviations from the common ratio.
    """
    deviations = amounts - lengths * (amounts.sum() / lengths.sum())
    return len(amounts) * _mean_error(deviations)


def _quartile_errors(values: Tensor) -> tuple[float, float, float]:
    """Return the standard errors of the quartiles of values [B]: half the distance of the ranks one error apart."""
    levels = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    rank_errors = (levels * (1 - levels) / len(values)).sqrt()
    low, high = (
        values.double().quantile((levels + sign * rank_errors).clamp(0, 1)) for sign in (-1, 1)
    )  # fmt: skip
    first, second, third = ((high - low) / 2).tolist()
    return first, second, third
