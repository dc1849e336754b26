"""Bounds of a proximal update: early stop, adapted learning rate, gradient norm, and the floor of the noise."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import Tensor

from samba_rl.improve.updates.proximal import ProximalUpdate
from tests.improve.updates.batches import PLAIN, a_batch, a_policy, gradient_of, numbers, some_critics
from tests.traces import seeded


def test_the_kl_stop_stops_the_policy_and_not_the_critics() -> None:
    settings = dataclasses.replace(PLAIN, epochs=20, policy_rate=0.02)
    policy, critics = a_policy(), some_critics()
    batch = a_batch(policy)
    stopped, free, cut = (copy.deepcopy(policy) for _ in range(3))
    stopped_critics, free_critics = copy.deepcopy(critics), copy.deepcopy(critics)
    report = ProximalUpdate(stopped, stopped_critics, dataclasses.replace(settings, kl_stop=0.03))(batch, seeded(0))
    assert 2 <= report.epochs < 20 and report.kl > 0.03
    # It rests where that many passes without a stop lead; one pass earlier it was still within the bound.
    ProximalUpdate(cut, copy.deepcopy(critics), dataclasses.replace(settings, epochs=report.epochs))(batch, seeded(0))
    assert torch.equal(numbers(stopped), numbers(cut))
    shorter = dataclasses.replace(settings, epochs=report.epochs - 2)
    assert ProximalUpdate(copy.deepcopy(policy), copy.deepcopy(critics), shorter)(batch, seeded(0)).kl <= 0.03
    # Without a stop it continues; the critics learn the same either way.
    whole = ProximalUpdate(free, free_critics, settings)(batch, seeded(0))
    assert whole.epochs == 20 and not torch.allclose(numbers(stopped), numbers(free), atol=1e-3)
    assert torch.equal(numbers(stopped_critics), numbers(free_critics))


def test_without_a_kl_stop_the_policy_moves_in_every_pass() -> None:
    settings = dataclasses.replace(PLAIN, epochs=9, policy_rate=0.05, kl_stop=None)
    policy = a_policy()
    report = ProximalUpdate(policy, some_critics(), settings)(a_batch(policy), seeded(0))
    assert report.epochs == 9 and report.kl > 0.1


def test_after_a_stop_the_next_batch_moves_the_policy_again() -> None:
    policy = a_policy()
    update = ProximalUpdate(
        policy, some_critics(), dataclasses.replace(PLAIN, epochs=9, policy_rate=0.05, kl_stop=1e-3)
    )
    first = update(a_batch(policy), seeded(0))
    before = numbers(policy)
    second = update(a_batch(policy, seed=1), seeded(0))
    assert first.epochs < 9 and 1 <= second.epochs < 9 and not torch.equal(before, numbers(policy))


@pytest.mark.parametrize(
    ("share", "factor"),
    [(0.4, 1 / 1.5), (0.6, 1.0), (1.9, 1.0), (2.1, 1.5), (None, 1.0)],
    ids=["far too far", "far", "short", "far too short", "no target"],
)
def test_the_rate_follows_the_divergence_aimed_at(share: float | None, factor: float) -> None:
    """`share` is the target relative to the update's divergence; between a half and twice it the rate stays."""
    settings = dataclasses.replace(PLAIN, epochs=4)
    policy = a_policy()
    moved = ProximalUpdate(copy.deepcopy(policy), some_critics(), settings)(a_batch(policy), seeded(0)).kl
    aimed = dataclasses.replace(settings, kl_target=None if share is None else share * moved)
    update = ProximalUpdate(policy, some_critics(), aimed)
    assert update(a_batch(policy), seeded(0)).kl == moved > 0  # the rate changes afterwards
    assert [group["lr"] for group in update.policy_optimiser.param_groups] == pytest.approx([1e-3 * factor])
    assert [group["lr"] for group in update.regression.optimiser.param_groups] == [settings.critic_rate]


@pytest.mark.parametrize(("target", "bound"), [(1e-12, 1e-4), (1e9, 1e-2)])
def test_the_rate_stays_within_a_tenth_and_ten_times_the_first(target: float, bound: float) -> None:
    policy = a_policy()
    update = ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, kl_target=target, epochs=2))
    for i in range(8):
        update(a_batch(policy, n=16, seed=i), seeded(0))
    assert update.policy_optimiser.param_groups[0]["lr"] == pytest.approx(bound)


def test_the_gradients_norm_is_limited_and_its_direction_kept() -> None:
    batch = a_batch(a_policy())

    def gradients(limit: float) -> tuple[Tensor, Tensor]:
        policy, critics = a_policy(), some_critics()
        ProximalUpdate(policy, critics, dataclasses.replace(PLAIN, max_gradient_norm=limit))(batch, seeded(0))
        return gradient_of(policy), gradient_of(critics)

    for free, held in zip(gradients(1e9), gradients(1e-3), strict=True):
        assert float(free.norm()) > 0.1 and float(held.norm()) == pytest.approx(1e-3, rel=1e-2)
        assert torch.allclose(held / held.norm(), free / free.norm(), atol=1e-5)


def test_entropy_widens_the_policy() -> None:
    gradients = []
    for weight in (0.0, 0.3):
        policy = a_policy()
        ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, entropy=weight))(a_batch(policy), seeded(0))
        assert policy.log_std.grad is not None
        gradients.append(policy.log_std.grad)
    # The entropy grows by one with the logarithm of each standard deviation.
    assert torch.allclose(gradients[1], gradients[0] - 0.3, atol=1e-5)


def test_the_standard_deviation_never_falls_below_the_updates_floor() -> None:
    policy = a_policy()
    update = ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, epochs=3))
    assert update.std_floor == policy.settings.std_floor
    update.std_floor = 0.8
    update(a_batch(policy), seeded(0))
    assert policy.std.tolist() == pytest.approx([0.8, 0.8])
