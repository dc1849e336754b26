"""Certificates: upper bounds on the real value of each constraint, with a confidence, from fresh real episodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import from_numpy

from samba_rl.errors import UserError
from samba_rl.improve.constraints import Chance, Constraint, CVaR
from samba_rl.runs.bounds import MOST_EPISODES, ROUNDING, Method, episodes_needed, upper_bound
from samba_rl.runs.evaluation import real_episodes
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, Traces

CERTIFICATE = "certificate.json"
"""File in a run's folder with its latest certificate."""


@final
@dataclass(frozen=True)
class CertifiedLimit:
    """The upper bound on the real value of one constraint, beside its limit."""

    words: str
    """Description of the constrained value, such as "CVaR 0.9 of the hazard cost of a trajectory"."""
    limit: float
    """Limit on the value."""
    value: float
    """Value measured on the episodes."""
    bound: float
    """Upper confidence bound on the value."""
    needed: int | None
    """Estimated number of episodes that certify the limit, if they are distributed like those measured; None: more than
    10 million."""
    least: int | None
    """Number of episodes that certify the limit if none of them costs anything; None: more than 10 million."""

    @property
    def certified(self) -> bool:
        """Return whether the bound is within the limit."""
        return self.bound <= self.limit

    @property
    def shown_bound(self) -> float:
        """Return the bound rounded up for people, but not beyond a limit that it keeps."""
        return min(_rounded_up(self.bound), self.limit) if self.certified else _rounded_up(self.bound)

    def verdict(self, confidence: float) -> str:
        """Return the result in one sentence."""
        most = f"is at most {self.shown_bound:g} (limit {self.limit:g})"
        start = f"With {100 * confidence:g} % confidence {self.words} {most}"
        if self.certified:
            return f"{start}: certified."
        if self.value > self.limit:
            return f"{start}: not certified; the measured value, {self.value:.3g}, is itself above the limit."
        many = f"more than {MOST_EPISODES:,}" if self.needed is None else f"about {self.needed:,}"
        return f"{start}: not certified; {many} episodes would be needed, if the policy behaves as in these."


@final
@dataclass(frozen=True)
class Certificate:
    """Upper confidence bounds on all constraints of a policy; together they hold with the confidence."""

    limits: tuple[CertifiedLimit, ...]
    """Bound on each constraint."""
    confidence: float
    """Probability with which all bounds hold together."""
    method: Method
    """Method of the bounds."""
    episodes: int
    """Number of real episodes."""
    step_bound: float
    """Largest safety cost that a step was assumed to have."""
    seed: int
    """Seed of the episodes."""
    deterministic: bool
    """Whether the policy acted without noise."""

    @property
    def certified(self) -> bool:
        """Return whether every limit is certified."""
        return all(limit.certified for limit in self.limits)

    def verdicts(self) -> list[str]:
        """Return the result for each constraint in one sentence."""
        return [limit.verdict(self.confidence) for limit in self.limits]

    def to_json(self) -> dict[str, Any]:
        """Return the fields and the verdicts as plain values for JSON."""
        limits = [
            {**asdict(limit), "certified": limit.certified, "verdict": words}
            for limit, words in zip(self.limits, self.verdicts(), strict=True)
        ]
        return {"certified": self.certified, **asdict(self), "limits": limits}


def certify(
    task: Task,
    policy: Policy,
    constraints: tuple[Constraint, ...],
    *,
    episodes: int,
    confidence: float = 0.95,
    seed: int = 0,
    step_bound: float = 1.0,
    method: Method = "betting",
    deterministic: bool = False,
    workers: int | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> Certificate:
    """Run real episodes and bound the value of each constraint from above.

    The policy must have been chosen before these episodes, and the episodes must be independent of learning. For k
    constraints each bound has the confidence 1 - δ / k, so that all of them hold together with the confidence 1 - δ.
    `deterministic` is only recorded in the result: the policy that is passed in must already be without noise.
    """
    if not 0.5 <= confidence < 1:
        raise UserError(f"confidence = {confidence}; give a number in [0.5, 1), such as 0.95")
    if not (math.isfinite(step_bound) and step_bound > 0):
        raise UserError(f"step_bound = {step_bound}; give the largest safety cost of a step, a positive number")
    amounts: list[list[NDArray[np.float64]]] = [[] for _ in constraints]
    done = 0
    with real_episodes(task, policy, episodes=episodes, seed=seed, workers=workers) as batches:
        for traces in batches:
            for constraint, column in zip(constraints, amounts, strict=True):
                _check_steps(constraint, traces, step_bound)
                column.append(constraint.amounts(traces).double().numpy())
            done += len(traces.cost)
            tell(done)
    each = 1 - (1 - confidence) / len(constraints)
    limits = tuple(
        _certified_limit(constraint, np.concatenate(column), _highest(constraint, task, step_bound), each, method)
        for constraint, column in zip(constraints, amounts, strict=True)
    )
    return Certificate(limits, confidence, method, done, step_bound, seed, deterministic)


def _certified_limit(
    constraint: Constraint, amounts: NDArray[np.float64], high: float, confidence: float, method: Method
) -> CertifiedLimit:
    alpha = constraint.alpha if isinstance(constraint, CVaR) else 0.0

    def forecast(losses: NDArray[np.float64], episodes: int) -> float:
        return upper_bound(losses, high, confidence, alpha=alpha, method=method, episodes=episodes)

    value = float(constraint.value(from_numpy(amounts)))
    return CertifiedLimit(
        words=constraint.in_words(),
        limit=constraint.limit,
        value=value,
        # The episodes that choose ν may have cost more than the others; a bound below what was measured would mislead.
        bound=max(value, upper_bound(amounts, high, confidence, alpha=alpha, method=method)),
        needed=episodes_needed(partial(forecast, amounts), constraint.limit),
        least=episodes_needed(partial(forecast, np.zeros(1)), constraint.limit),
    )


def _highest(constraint: Constraint, task: Task, step_bound: float) -> float:
    """Return the largest possible amount of a trajectory."""
    if isinstance(constraint, Chance):
        return 1.0
    return step_bound if constraint.per_step else step_bound * task.horizon


def _check_steps(constraint: Constraint, traces: Traces, step_bound: float) -> None:
    """Raise if a step's safety cost is outside [0, step_bound], where the bounds do not hold."""
    if isinstance(constraint, Chance):
        return
    costs = traces.safety[..., constraint.column]
    slack = ROUNDING * step_bound
    outside = costs[~((costs >= -slack) & (costs <= step_bound + slack))]
    if len(outside):
        raise UserError(
            f"the {constraint.name} cost of a step is {float(outside[0]):.9g}, outside [0, {step_bound:g}]; give the "
            "largest safety cost that a step can have as --step-bound"
        )


def _rounded_up(value: float) -> float:
    """Return the value rounded up to three significant digits."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    # A value that has three digits already must not move up by rounding.
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.3g}")
