"""The gate's regression: what it predicts, how it weighs, and its state."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from samba_rl.improve.experts import FIRST_PRICE, MixturePolicy, fresh_policy
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.updates.batch import Batch, Update, UpdateReport
from samba_rl.improve.updates.choosing import PACE, SHARPNESS, ChoosingUpdate, with_gate
from samba_rl.types import State
from tests.traces import double, seeded, simple_policy

SETTINGS = PolicySettings(hidden=(4,), experts=2, apart=0, gate_hidden=(16,), gate_rate=0.01, gate_passes=20)


class Nothing:
    """An update that leaves the experts alone."""

    std_floor = 0.0
    optimisers: tuple[torch.optim.Adam, ...] = ()

    def __call__(self, batch: Batch, generator: torch.Generator) -> UpdateReport:
        return UpdateReport(0.0, 0.0, 0, ())

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        assert state == {}


def mixture(seed: int = 0, *, apart: int = 0) -> MixturePolicy:
    settings = replace(SETTINGS, apart=apart)
    policy = fresh_policy(
        double([-1.0]), double([1.0]), torch.zeros(1), torch.ones(1), settings, seeded(seed), 1
    )  # fmt: skip
    assert isinstance(policy, MixturePolicy)
    return policy


def starts(n: int, seed: int, multiplier: float = 2.0) -> Batch:
    """Return n trajectories of two steps, whose cost and excess depend on the start x and the expert e.

    Expert 0 costs 1 and exceeds the limit by 1 where x > 0; expert 1 costs 2 and never exceeds it.
    """
    generator = seeded(seed)
    x = 2 * torch.rand(n, generator=generator) - 1
    e = torch.randint(2, (n,), generator=generator)
    first = torch.stack([x, (e == 0).float(), (e == 1).float()], dim=1)
    cost, excess = 1.0 + e, ((e == 0) & (x > 0)).float()
    return Batch(
        inputs=torch.cat([first, first + 0.5]),
        raw=torch.zeros(2 * n, 1),
        objective=torch.tensor([1.0, -1.0]).repeat(n),
        tails=torch.zeros(1, 2 * n),
        critic_inputs=torch.zeros(2, 2 * n, 1),
        targets=torch.stack([torch.cat([cost, 77 + cost]), torch.cat([excess, 77 + excess])]),  # only starts count
        multipliers=(multiplier,),
        units=(0.5,),
        excess=(0.0,),
        first=torch.arange(2 * n) < n,
    )


def test_the_gate_learns_what_each_expert_costs_and_chooses_by_it() -> None:
    policy = mixture()
    update = with_gate(Nothing(), policy)
    for seed in range(30):
        update(starts(200, seed), seeded(seed))
    x = torch.tensor([[-0.8], [-0.4], [0.4], [0.8]])
    expected = [[[1, 0], [2, 0]]] * 2 + [[[1, 1], [2, 0]]] * 2
    assert torch.allclose(policy.gate.predict(x), torch.tensor(expected).float(), atol=0.15)
    # The experts' costs are 1 apart, with a standard deviation of 1/2; the excess is priced in units of the limit.
    assert policy.gate.weights.tolist() == pytest.approx([SHARPNESS / 0.5, SHARPNESS * FIRST_PRICE / 0.5], rel=0.1)
    assert policy.gate.logits(x).argmax(-1).tolist() == [0, 0, 1, 1]
    # At a lower price expert 0 acts everywhere, without learning anything new.
    with torch.no_grad():
        policy.gate.weights[1] /= 100
    assert policy.gate.logits(x).argmax(-1).tolist() == [0, 0, 0, 0]
    assert float(policy.gate.age) == 30


def test_prices_follow_the_excess_once_the_experts_are_no_longer_apart() -> None:
    for apart, excess, expected in (
        (5, 0.5, FIRST_PRICE),  # apart: the last expert alone was measured
        (0, 0.25, FIRST_PRICE * math.exp(PACE * 0.5)),  # half a target above the aim
        (0, 9.0, FIRST_PRICE * math.exp(PACE)),  # by a bounded amount
        (0, -0.25, FIRST_PRICE * math.exp(-PACE * 0.5)),
        (0, math.nan, FIRST_PRICE),
    ):
        policy = mixture(apart=apart)
        with_gate(Nothing(), policy)(starts(10, 0)._replace(excess=(excess,)), seeded(0))
        assert policy.gate.prices.tolist() == pytest.approx([expected])


def test_further_limits_are_left_to_the_experts() -> None:
    policy = mixture()
    batch = starts(50, 0)
    more = torch.cat([batch.targets, torch.full((1, 100), 1e6)])
    batch = batch._replace(
        targets=more, tails=torch.zeros(2, 100), units=(0.5, 0.1), multipliers=(1.0, 1.0), excess=(0.0, 5.0)
    )
    with_gate(Nothing(), policy)(batch, seeded(0))
    assert float(policy.gate.mean.abs().max()) < 10 and policy.gate.prices.tolist() == [FIRST_PRICE]


def test_other_units_do_not_change_the_predictions() -> None:
    policy = mixture()
    update = ChoosingUpdate(Nothing(), policy)
    update(starts(50, 0), seeded(0))
    x = torch.tensor([[-0.5], [0.5]])
    before = policy.gate.predict(x)
    update._renormalise(torch.tensor([[30.0, 2.0], [50.0, 1.0], [20.0, 9.0]]))
    assert torch.allclose(policy.gate.predict(x), before, atol=1e-4)
    assert float(policy.gate.mean[0]) > 3


def test_a_search_without_an_objective_leaves_the_gate_alone() -> None:
    policy = mixture()
    before = [parameter.clone() for parameter in policy.gate.parameters()]
    batch = starts(20, 0)._replace(targets=torch.ones(1, 40))
    with_gate(Nothing(), policy)(batch, seeded(0))
    assert all(torch.equal(a, b) for a, b in zip(before, policy.gate.parameters(), strict=True))


def test_a_restored_gate_learns_on_to_the_same_end() -> None:
    policy, other = mixture(), mixture(1)
    update, again = with_gate(Nothing(), policy), with_gate(Nothing(), other)
    update(starts(50, 0), seeded(0))
    again.load_state_dict(update.state_dict())
    other.load_state_dict(policy.state_dict())
    for one in (update, again):
        one(starts(50, 1), seeded(1))
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in policy.state_dict().items())
    assert len(update.optimisers) == 1


def test_one_expert_has_no_gate() -> None:
    plain: Update = Nothing()
    assert with_gate(plain, simple_policy()) is plain


def test_shares_of_the_multipliers_by_hand() -> None:
    def lagrangian(shares: Tensor | None, units: tuple[float, ...] | None) -> list[float]:
        batch = starts(2, 0, multiplier=3.0)
        tails = torch.tensor([[0.5, 1.0, 0.5, 1.0]])
        numbers: list[float] = batch._replace(tails=tails, units=units, shares=shares).lagrangian.tolist()
        return numbers

    halves = torch.tensor([0.0, 1.0, 0.5, 0.5])
    # The objective is ±1 with spread 1; λ = 3 weighs 3 / 0.5 a unit; the sum is divided by 1 + λ.
    assert lagrangian(None, (0.5,)) == pytest.approx([(1 + 3) / 4, (-1 + 6) / 4, (1 + 3) / 4, (-1 + 6) / 4])
    assert lagrangian(halves, (0.5,)) == pytest.approx([1, (-1 + 6) / 4, (1 + 1.5) / 2.5, (-1 + 3) / 2.5])
    assert lagrangian(halves, None) == pytest.approx([1, -1 + 3, 1 + 0.75, -1 + 1.5])


def test_the_gate_has_its_settings() -> None:
    layers = [layer for layer in mixture().gate.network if isinstance(layer, nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in layers] == [(16, 1), (4, 16)]
