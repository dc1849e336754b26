"""Gates: judgements on imagined trajectories of whether a policy is fit to go on with or to hand over."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Generator, Tensor

from samba_rl.improve.constraints import Constraint
from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.types import Source, Traces

JUDGED_TRAJECTORIES = 600
"""Trajectories on which each candidate is judged."""
STRANDED = 1e-4
"""A policy is stranded if the returns of its trajectories deviate by less than this share of a random policy's cost."""


def is_stranded(traces: Traces, step_cost: float) -> bool:
    """Return whether all trajectories cost the same, so that no gradient leads on; `step_cost` is a typical cost."""
    return float(traces.returns.std(correction=0)) < STRANDED * step_cost * traces.cost.shape[1]


def choose(
    policy: GaussianPolicy,
    candidates: Sequence[dict[str, Tensor]],
    source: Source,
    constraints: tuple[Constraint, ...],
    multipliers: Multipliers,
) -> None:
    """Load the best candidate into the policy: the cheapest within its targets, or else the safest.

    All candidates (state dicts of the policy) are judged on the same imagined episodes.
    """
    if len(candidates) < 2:
        return
    judged = []
    for state in candidates:
        policy.load_state_dict(state)
        traces = source(policy, JUDGED_TRAJECTORIES, Generator(policy.centre.device).manual_seed(0))
        excess = [
            max(0.0, constraint.measure(traces) / max(target, 1e-6) - 1)
            for constraint, target in zip(constraints, multipliers.targets, strict=True)
        ]
        judged.append((max(excess, default=0.0), -float(traces.returns.mean())))
    best = min(range(len(candidates)), key=judged.__getitem__)
    policy.load_state_dict(candidates[best])
