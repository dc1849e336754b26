"""Traces: what they sum up, and how they are joined, cut and taken apart."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from samba_rl.types import Traces
from tests.traces import by_hand, double

PLACES = torch.arange(6, dtype=torch.float64).reshape(2, 3, 1)


def some_traces(*, zeta: bool = True) -> Traces:
    return by_hand(
        [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
        safety=[[[0.5, 0.0, 1.0], [0.25, 0.0, 9.0]], [[0.0, 0.0, 1.0], [1.0, 0.0, 9.0]]],
        violation=[[[0, 0, 1], [0, 0, 1]], [[0, 0, 1], [1, 0, 1]]],
        zeta=[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]] if zeta else None,
        lengths=[3, 2],
        observation=PLACES,
        wanted=double([[[0.5], [2.0], [-3.0]], [[1.0], [0.0], [7.0]]]),
    )


def test_sums_need_no_mask() -> None:
    traces = some_traces()
    assert traces.steps == 5 and traces.returns.tolist() == [-6, -9]
    assert traces.safety_costs.tolist() == [[1.5, 1.0], [0.25, 1.0]]
    # An action after the end of an episode was never taken.
    assert traces.clipped.tolist() == [[False, True, True], [False, False, False]]


@pytest.mark.parametrize("name", ["cost", "safety"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_a_cost_that_is_not_finite_is_found(name: str, number: float) -> None:
    traces = some_traces()
    assert traces.finite
    broken = getattr(traces, name).clone()
    broken[0, 1] = number
    assert not replace(traces, **{name: broken}).finite


def test_batches_are_joined_one_after_the_other() -> None:
    traces = some_traces()
    both = Traces.joined([traces, traces])
    for field in fields(Traces):
        one = getattr(traces, field.name)
        assert torch.equal(getattr(both, field.name), torch.cat([one, one])), field.name
    assert Traces.joined([traces, some_traces(zeta=False)]).zeta is None


@pytest.mark.parametrize("zeta", [True, False])
def test_episodes_without_a_step_are_left_out(zeta: bool) -> None:
    traces = some_traces(zeta=zeta)
    assert traces.begun() is traces
    active = traces.active.clone()
    active[0] = False
    left = replace(traces, active=active).begun()
    assert left.returns.tolist() == [-9] and torch.equal(left.x, traces.x[1:])
    assert (left.zeta is None) is not zeta


def test_traces_move_to_a_device() -> None:
    moved = some_traces(zeta=False).to(torch.device("meta"))
    assert moved.zeta is None
    tensors = [getattr(moved, field.name) for field in fields(Traces) if field.name != "zeta"]
    assert all(tensor.device.type == "meta" for tensor in tensors)


def test_transitions_are_the_steps_that_took_place() -> None:
    steps = some_traces().transitions(first_episode=7)
    assert len(steps) == 5
    assert steps.episode.tolist() == [7, 7, 7, 8, 8] and steps.step.tolist() == [0, 1, 2, 0, 1]
    assert steps.x[:, 0].tolist() == [0, 1, 2, 3, 4] and steps.x_next[:, 0].tolist() == [1, 2, 2, 4, 5]
    assert steps.cost.tolist() == [1, 2, 3, 4, 5] and steps.u[:, 0].tolist() == [0.5, 1, -1, 1, 0]
    assert steps.terminated.tolist() == [False, False, False, False, True]
    assert steps.safety.shape == steps.violation.shape == (5, 2)
