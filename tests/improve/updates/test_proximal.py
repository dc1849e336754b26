"""The proximal update against a slow reference, and its clipping by hand."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from samba_rl.capture import Recorder
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.min_norm import policy_gradients
from samba_rl.improve.updates.proximal import ProximalSettings, ProximalUpdate
from tests.capture.fakes import FakeGraphs
from tests.improve.updates.batches import PLAIN, a_batch, a_policy, gradient_of, numbers, some_critics, standardised
from tests.traces import last_layer, seeded, simple_policy

# The policy -----------------------------------------------------------------------------------------------------------


def test_the_first_gradient_is_the_plain_policy_gradient() -> None:
    policy, critics = a_policy(), some_critics()
    batch = a_batch(policy)
    expected = policy_gradients(policy, batch.inputs, batch.raw, standardised(batch.objective)[None])[0]
    before = numbers(policy)
    ProximalUpdate(policy, critics, PLAIN)(batch, seeded(0))
    assert torch.allclose(gradient_of(policy), expected, rtol=1e-3, atol=1e-6)
    # Adam's first step goes against the gradient's signs, by its rate.
    clear = expected.abs() > 1e-4
    assert torch.allclose((numbers(policy) - before)[clear], -1e-3 * expected.sign()[clear], rtol=1e-2)


def test_without_standardising_the_gradient_is_that_of_the_plain_advantages() -> None:
    policy, critics = a_policy(), some_critics()
    batch = a_batch(policy)._replace(units=None)
    expected = policy_gradients(policy, batch.inputs, batch.raw, batch.objective[None])[0]
    ProximalUpdate(policy, critics, dataclasses.replace(PLAIN, standardise=False))(batch, seeded(0))
    assert torch.allclose(gradient_of(policy), expected, rtol=1e-3, atol=1e-5)


def reference(policy: GaussianPolicy, batch: Batch, settings: ProximalSettings) -> None:
    """Minimise the clipped surrogate over the whole batch, one sample at a time."""
    old = policy.log_density(batch.inputs, batch.raw).tolist()
    advantage = standardised(batch.objective).tolist()
    optimiser = torch.optim.Adam(policy.parameters(), lr=settings.policy_rate)
    for _ in range(settings.epochs):
        loss = torch.zeros(())
        for i, weight in enumerate(advantage):
            ratio = (policy.log_density(batch.inputs[i], batch.raw[i]) - old[i]).exp()
            # Rewards are -weight; PPO maximises the smaller of the two.
            gone_too_far = ratio > 1 + settings.clip if weight < 0 else ratio < 1 - settings.clip
            if not gone_too_far:
                loss = loss + ratio * weight / len(advantage)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def test_several_passes_against_a_slow_reference() -> None:
    settings = dataclasses.replace(PLAIN, epochs=12, policy_rate=0.02)
    policy = a_policy()
    batch, slow = a_batch(policy, n=16), copy.deepcopy(policy)
    reference(slow, batch, settings)
    report = ProximalUpdate(policy, some_critics(), settings)(batch, seeded(0))
    assert torch.allclose(numbers(policy), numbers(slow), atol=2e-4)
    assert report.epochs == 12 and 0.2 < report.clipped < 1  # the clip took effect
    with torch.no_grad():
        log_ratio = policy.log_density(batch.inputs, batch.raw) - a_policy().log_density(batch.inputs, batch.raw)
    assert report.clipped == pytest.approx(float(((log_ratio.exp() - 1).abs() > 0.2).float().mean()))
    assert report.kl == pytest.approx(float((log_ratio.exp() - 1 - log_ratio).mean()), rel=1e-3)


def push(
    advantages: list[float], actions: list[float], settings: ProximalSettings
) -> tuple[GaussianPolicy, UpdateReport]:
    """Update a policy with one state, a mean that is its bias, and a standard deviation of 0.5."""
    policy = simple_policy(std=0.5)
    n = len(actions)
    batch = Batch(
        inputs=torch.zeros(n, 1),
        raw=torch.tensor(actions)[:, None],
        objective=torch.tensor(advantages),
        tails=torch.zeros(0, n),
        critic_inputs=torch.zeros(1, n, 4),
        targets=torch.randn(1, n, generator=seeded(0)),
    )
    report = ProximalUpdate(policy, some_critics(1), settings)(batch, seeded(0))
    return policy, report


def test_the_surrogate_cuts_off_what_has_gone_far_enough() -> None:
    """Of the actions ±1, +1 is good: a step of 0.1 to the right changes log π by (±0.1 - 0.005) / 0.25."""
    two = dataclasses.replace(PLAIN, epochs=2, policy_rate=0.1)
    # exp(0.38) = 1.46 > 1.2 for the good one, exp(-0.42) = 0.66 < 0.8 for the bad one: both are clipped.
    policy, report = push([-1.0, 1.0], [1.0, -1.0], two)
    assert gradient_of(policy).tolist() == pytest.approx([0] * 3, abs=1e-6) and report.clipped == 1
    # With a wider clip neither is.
    policy, report = push([-1.0, 1.0], [1.0, -1.0], dataclasses.replace(two, clip=0.6))
    assert gradient_of(policy).abs().max().item() > 0.5 and report.clipped < 1


def test_what_was_pushed_the_wrong_way_still_pulls_back() -> None:
    """Two of three samples pull to the right; the third finds that action bad, which has become likelier."""
    policy, report = push([-4.0, 2.0, 2.0], [1.0, -1.0, 1.0], dataclasses.replace(PLAIN, epochs=2, policy_rate=0.1))
    # Standardised: -√2, √½, √½. After the first step the mean is 0.1, and only the third has a gradient.
    pull = math.sqrt(0.5) * math.exp((1 - 0.9**2) / (2 * 0.25)) / 3
    bias, log_std = last_layer(policy).bias.grad, policy.log_std.grad
    assert bias is not None and bias.item() == pytest.approx(pull * 0.9 / 0.25, rel=1e-4)
    assert log_std is not None and log_std.item() == pytest.approx(pull * (0.9**2 / 0.25 - 1), rel=1e-4)
    assert report.clipped == 1


def test_minibatches_share_the_batch_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, critics = a_policy(), some_critics()
    batch = a_batch(policy, n=50)
    advantage = batch.lagrangian
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    steps: list[list[int]] = []
    plain = ProximalUpdate._policy_step

    def watch(self: ProximalUpdate, floor: Tensor, share: None, inputs: Tensor, raw: Tensor, *rest: Tensor) -> Tensor:
        rows = [int((batch.inputs == row).all(1).nonzero()) for row in inputs]
        assert torch.equal(raw, batch.raw[rows])  # an observation keeps its action
        assert torch.equal(rest[0], advantage[rows])  # and its advantage
        steps.append(rows)
        return plain(self, floor, share, inputs, raw, *rest)

    monkeypatch.setattr(ProximalUpdate, "_policy_step", watch)
    ProximalUpdate(policy, critics, dataclasses.replace(PLAIN, epochs=2, minibatch=16))(batch, seeded(0))
    assert [len(rows) for rows in steps] == [16, 17, 17] * 2
    first, second = ([row for rows in steps[k : k + 3] for row in rows] for k in (0, 3))
    assert sorted(first) == sorted(second) == list(range(50)) and first != second


def test_advantages_count_by_their_order_of_size_alone() -> None:
    """Neither their unit nor their mean makes a difference."""
    policies = [a_policy() for _ in range(2)]
    batch = a_batch(policies[0])
    for policy, advantage in zip(policies, (batch.objective, 1000 * batch.objective - 77), strict=True):
        ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, epochs=3))(
            batch._replace(objective=advantage), seeded(0)
        )
    assert torch.allclose(numbers(policies[0]), numbers(policies[1]), atol=1e-4)


def test_advantages_without_any_difference_teach_nothing() -> None:
    policy = a_policy()
    before = numbers(policy)
    batch = a_batch(policy)._replace(objective=torch.full((64,), 4.0))
    report = ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, epochs=3))(batch, seeded(0))
    assert torch.equal(numbers(policy), before) and report.kl == 0


# As a whole -----------------------------------------------------------------------------------------------------------


def test_a_two_armed_bandit_is_learned() -> None:
    """Actions to the right cost nothing, actions to the left cost one."""
    policy = simple_policy(std=0.6)
    update = ProximalUpdate(policy, some_critics(1), dataclasses.replace(PLAIN, epochs=10, policy_rate=0.02))
    generator, seen, costs = seeded(0), torch.zeros(500, 1), []
    for _ in range(30):
        raw = policy.raw(policy(seen, generator))
        cost = (raw[:, 0] < 0).float()
        costs.append(float(cost.mean()))
        batch = Batch(seen, raw, cost, torch.zeros(0, 500), torch.zeros(1, 500, 4), cost[None])
        update(batch, generator)
    assert costs[0] == pytest.approx(0.5, abs=0.07) and costs[-1] < 0.05
    assert all(after < before + 0.05 for before, after in itertools.pairwise(costs))


def test_the_generator_alone_decides() -> None:
    settings = dataclasses.replace(PLAIN, epochs=3, minibatch=16)

    def learned(seed: int) -> tuple[Tensor, Tensor, UpdateReport]:
        policy, critics = a_policy(), some_critics()
        report = ProximalUpdate(policy, critics, settings)(a_batch(policy), seeded(seed))
        return numbers(policy), numbers(critics), report

    one, same, other = learned(0), learned(0), learned(1)
    assert torch.equal(one[0], same[0]) and torch.equal(one[1], same[1]) and one[2] == same[2]
    assert not torch.equal(one[0], other[0]) and not torch.equal(one[1], other[1])


def test_the_batch_is_left_as_it_was() -> None:
    policy = a_policy()
    batch = a_batch(policy)
    before = [part.clone() for part in batch[:6]]
    ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, epochs=2, minibatch=16))(batch, seeded(0))
    assert all(torch.equal(a, b) for a, b in zip(before, batch[:6], strict=True))


def test_the_policy_follows_the_lagrangian() -> None:
    """A constraint that outweighs the objective decides on the direction."""
    policies = [a_policy() for _ in range(3)]
    batch = a_batch(policies[0])
    tail = torch.randn(64, generator=seeded(9))
    plain = batch._replace(objective=tail)
    heavy = batch._replace(tails=tail[None], multipliers=(1e6,), units=(10.0,))
    ignored = batch._replace(tails=tail[None], multipliers=(0.0,), units=(10.0,))
    for policy, one in zip(policies, (plain, heavy, ignored), strict=True):
        ProximalUpdate(policy, some_critics(), PLAIN)(one, seeded(0))
    assert torch.allclose(gradient_of(policies[0]), gradient_of(policies[1]), atol=1e-5)
    free = a_policy()
    ProximalUpdate(free, some_critics(), PLAIN)(batch, seeded(0))
    assert torch.equal(numbers(policies[2]), numbers(free))


# Recorded -------------------------------------------------------------------------------------------------------------


def recorded(update: ProximalUpdate) -> FakeGraphs:
    """Let an update record its calls, as on a GPU."""

    def changed() -> list[Tensor]:
        states = [kept for each in update.optimisers for state in each.state.values() for kept in state.values()]
        parameters = [p for each in update.optimisers for group in each.param_groups for p in group["params"]]
        return [*parameters, *(p.grad for p in parameters if p.grad is not None), *states]

    graphs = FakeGraphs(changed)
    update.recorder = Recorder(torch.device("cpu"), graphs)
    return graphs


@pytest.mark.parametrize("minibatch", [10_000, 40], ids=["one minibatch", "several"])
@pytest.mark.parametrize("loss", ["squared", "clipped"])
@pytest.mark.parametrize("kl_stop", [None, 0.05])
def test_a_recorded_update_agrees_with_a_plain_one(
    minibatch: int, loss: Literal["squared", "clipped"], kl_stop: float | None
) -> None:
    settings = dataclasses.replace(
        PLAIN, epochs=6, minibatch=minibatch, kl_stop=kl_stop, critic_loss=loss, policy_rate=0.02, kl_target=0.01
    )
    policies, critics = [a_policy() for _ in range(2)], [some_critics(3) for _ in range(2)]
    updates = [ProximalUpdate(p, c, settings) for p, c in zip(policies, critics, strict=True)]
    graphs = recorded(updates[1])
    generators = seeded(1), seeded(1)
    # Batches of changing length, the second with a critic that has nothing to learn, and another floor.
    for i, count in enumerate((150, 130, 142, 141)):
        batch = a_batch(policies[0], n=count, critics=3, seed=i)
        if i == 1:
            batch.targets[1] = 3.0
        for update in updates:
            update.std_floor = 0.1 * i
        plain, other = (update(batch, g) for update, g in zip(updates, generators, strict=True))
        assert other.epochs == plain.epochs
        assert (other.kl, other.clipped) == pytest.approx((plain.kl, plain.clipped), rel=1e-3, abs=1e-5)
        assert other.critic_loss == pytest.approx(plain.critic_loss, rel=1e-4)
    assert torch.allclose(numbers(policies[1]), numbers(policies[0]), atol=1e-4)
    assert torch.allclose(numbers(critics[1]), numbers(critics[0]), atol=1e-4)
    assert torch.equal(generators[0].get_state(), generators[1].get_state())
    assert graphs.recorded and not updates[1].recorder.refused
