"""When a policy is stranded."""

from __future__ import annotations

from dataclasses import replace

from samba_rl.improve.gates import STRANDED, is_stranded
from tests.traces import by_hand, double


def test_a_policy_is_stranded_where_all_trajectories_cost_the_same() -> None:
    traces = by_hand([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]])
    assert is_stranded(traces, step_cost=1.0)
    assert not is_stranded(replace(traces, cost=traces.cost + double([[0.0, 0.1], [0.0, 0.0], [0.0, 0.0]])), 1.0)


def test_the_threshold_is_a_share_of_a_typical_trajectorys_cost() -> None:
    """Returns ±d have the standard deviation d; the horizon is 2."""
    for factor, stranded in ((0.99, True), (1.01, False)):
        d = factor * STRANDED * 5.0 * 2
        assert is_stranded(by_hand([[1.0, 1.0 + d], [1.0, 1.0 - d]]), step_cost=5.0) is stranded
