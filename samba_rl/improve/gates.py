"""A gate on imagined trajectories: whether a policy can be improved from where it is."""

from __future__ import annotations

from samba_rl.types import Traces

STRANDED = 1e-4
"""A policy is stranded if the returns of its trajectories deviate by less than this share of a random policy's cost."""


def is_stranded(traces: Traces, step_cost: float) -> bool:
    """Return whether all trajectories cost the same, so that no gradient leads on; `step_cost` is a typical cost."""
    return float(traces.returns.std(correction=0)) < STRANDED * step_cost * traces.cost.shape[1]
