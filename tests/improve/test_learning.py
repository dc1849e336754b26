"""Control iterations, repeated: the cost falls, constraints are met, information is found."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import Chance, Constraint
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.rules import Proximal, UpdateSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.types import Traces
from tests.improve.improvers import (
    COST,
    FAST,
    INFORMATION,
    PLAIN,
    SAFE,
    TAIL,
    UPDATE,
    improver_of,
    iterate,
    numbers,
    some_traces,
)
from tests.traces import on_a_line, seeded, simple_policy


def learn(
    improver: Improver, iterations: int, multipliers: tuple[float, ...] = (), least: float = 1.0, stop: float = 0.0
) -> tuple[Traces, Traces, list[tuple[float, ...]]]:
    """Return traces before and after learning, from other starts, and the weights of each iteration."""
    before = on_a_line(improver.policy, 500, 8, 1000, stop_within=stop)
    weights = [
        iterate(
            improver, on_a_line(improver.policy, 100, 8, i, stop_within=stop), multipliers, seeded(i), None, least
        )
        for i in range(iterations)
    ]  # fmt: skip
    return before, on_a_line(improver.policy, 500, 8, 1000, stop_within=stop), weights


def returns(traces: Traces) -> float:
    return float(traces.returns.mean())


@pytest.mark.parametrize("stop", [0.0, 0.1])
def test_the_cost_falls(stop: float) -> None:
    improver = improver_of(advantage=AdvantageSettings(hidden=(16,)), update=FAST)
    before, after, weights = learn(improver, 30, stop=stop)
    assert returns(after) > 0.1 * returns(before)  # returns are negative
    assert all(each == (1.0,) for each in weights)


@pytest.mark.parametrize("constraint", [SAFE, TAIL, Chance(name="hazard", limit=0.1)], ids=lambda c: type(c).__name__)
def test_a_heavy_multiplier_makes_it_safer(constraint: Constraint) -> None:
    choices = AdvantageSettings(hidden=(16,))
    before, free, _ = learn(improver_of((COST,), (constraint,), choices, FAST), 20, multipliers=(0.0,))
    _, safe, _ = learn(improver_of((COST,), (constraint,), choices, FAST), 20, multipliers=(100.0,))
    assert constraint.measure(safe) < 0.6 * constraint.measure(before)
    assert constraint.measure(safe) < 0.8 * constraint.measure(free)
    assert returns(free) > returns(safe)  # safety has its price


def test_a_constraint_alone_is_minimised_without_any_objective() -> None:
    improver = improver_of((), (SAFE,), AdvantageSettings(hidden=(16,)), FAST)
    before, after, weights = learn(improver, 20, multipliers=(1.0,))
    assert SAFE.measure(after) < 0.6 * SAFE.measure(before)
    assert all(each == () for each in weights)


def test_information_draws_the_policy_to_where_it_is_found() -> None:
    """ζ is the distance from 0, where the cost is least."""
    choices = AdvantageSettings(hidden=(16,))
    _, dutiful, _ = learn(improver_of((COST, INFORMATION), (), choices, FAST), 20, least=1.0)
    _, curious, weights = learn(improver_of((INFORMATION,), (), choices, FAST), 20)
    assert dutiful.zeta is not None and curious.zeta is not None
    assert float(curious.zeta.sum(1).mean()) > 2 * float(dutiful.zeta.sum(1).mean())
    assert all(each == (1.0,) for each in weights)


def test_same_seed_same_learning() -> None:
    choices = dataclasses.replace(UPDATE, minibatch=40)

    def learned(seed: int, own: int = 0) -> Tensor:
        numbers_of = UpdateSettings(choices, TrustRegionSettings())
        improver = Improver(
            simple_policy(hidden=(8,)), (COST, INFORMATION), (TAIL,), PLAIN, Proximal(), numbers_of, seeded(own)
        )
        for i in range(2):
            iterate(improver, some_traces(i), (1.0,), seeded(seed))
        return numbers(improver)

    one, same, other, different = learned(0), learned(0), learned(1), learned(0, own=1)
    assert torch.equal(one, same) and not torch.equal(one, other) and not torch.equal(one, different)
