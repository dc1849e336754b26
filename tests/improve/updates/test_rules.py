"""Update rules: the values that a row names, and the updates that they make."""

from __future__ import annotations

import math

import pytest
import torch

from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch, Update
from samba_rl.improve.updates.natural import NaturalUpdate
from samba_rl.improve.updates.proximal import ProximalSettings, ProximalUpdate
from samba_rl.improve.updates.rules import Projection, Proximal, TrustRegion, UpdateRule, UpdateSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings, flat
from tests.improve.updates.steps import a_policy, steps
from tests.traces import seeded

RULES: tuple[UpdateRule, ...] = (Proximal(), TrustRegion(), Projection())
SETTINGS = UpdateSettings(ProximalSettings(epochs=3, minibatch=16, kl_target=1e-9), TrustRegionSettings(kl=0.02))
EACH = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)


def a_batch(policy: GaussianPolicy, excess: float = -1e3, seed: int = 0) -> Batch:
    """Return on-policy steps with one constraint, `excess` above its target."""
    inputs, raw, advantage = steps(policy, seed=seed)
    generator = seeded(seed + 1)
    return Batch(
        inputs=inputs,
        raw=raw,
        objective=advantage,
        tails=torch.randn(1, 64, generator=generator),
        critic_inputs=torch.randn(2, 64, 4, generator=generator),
        targets=torch.randn(2, 64, generator=generator),
        multipliers=(0.5,),
        units=(1.0,),
        excess=(excess,),
        steps=7.0,
    )


def made(rule: UpdateRule) -> tuple[Update, GaussianPolicy, Critics]:
    policy, critics = a_policy(), Critics(2, 4, (5,), seeded(1))
    return rule.make(policy, critics, SETTINGS), policy, critics


def test_the_words_that_files_use() -> None:
    assert [rule.label for rule in RULES] == ["proximal", "trust-region", "projection"]
    assert [rule.own_dual for rule in RULES] == [False, False, True]


def test_rules_are_values_and_make_their_update() -> None:
    assert Proximal() == Proximal() and len({*RULES, Proximal(), TrustRegion(), Projection()}) == 3
    assert [type(made(rule)[0]) for rule in RULES] == [ProximalUpdate, NaturalUpdate, NaturalUpdate]


@EACH
def test_an_update_moves_the_policy_and_the_critics(rule: UpdateRule) -> None:
    update, policy, critics = made(rule)
    before, critic = flat(policy), critics.weights[0].detach().clone()
    report = update(a_batch(policy), seeded(0))
    assert not torch.equal(flat(policy), before) and not torch.equal(critics.weights[0], critic)
    assert report.kl > 0 and report.epochs >= 1 and len(report.critic_loss) == 2
    assert (report.nu is None) is not rule.own_dual


@EACH
def test_the_floor_of_the_standard_deviation_is_set_from_outside(rule: UpdateRule) -> None:
    update, policy, _ = made(rule)
    assert update.std_floor == policy.settings.std_floor
    update.std_floor = 0.5
    for i in range(10):
        update(a_batch(policy, seed=i), seeded(i))
    assert float(policy.std.detach().min()) >= 0.5 * (1 - 1e-6)


@EACH
def test_an_update_continues_from_its_state(rule: UpdateRule) -> None:
    """Moments, learning rates and the floor of the standard deviation are part of it."""
    (one, policy, critics), (other, other_policy, other_critics) = made(rule), made(rule)
    one.std_floor = 0.4
    one(a_batch(policy), seeded(0))
    other_policy.load_state_dict(policy.state_dict())
    other_critics.load_state_dict(critics.state_dict())
    other.load_state_dict(one.state_dict())
    assert other.std_floor == 0.4
    batch = a_batch(policy, seed=5)
    assert one(batch, seeded(1)) == other(batch, seeded(1))
    assert torch.equal(flat(policy), flat(other_policy))
    assert all(torch.equal(a, b) for a, b in zip(critics.parameters(), other_critics.parameters(), strict=True))


@pytest.mark.parametrize("rule", [Proximal(), TrustRegion()], ids=lambda rule: rule.label)
def test_the_lagrangian_weighs_the_constraint_by_its_multiplier(rule: UpdateRule) -> None:
    """What exceeds the limit does not matter to these rules; the given multiplier does."""

    def moved(batch: Batch) -> torch.Tensor:
        update, policy, _ = made(rule)
        update(batch, seeded(0))
        return flat(policy)

    batch = a_batch(a_policy())
    assert torch.equal(moved(batch), moved(batch._replace(excess=(1e3,))))
    assert not torch.allclose(moved(batch), moved(batch._replace(multipliers=(50.0,))), atol=1e-3)


def test_projection_finds_its_own_multiplier() -> None:
    """Given multipliers do not matter to it; how far the limit is does."""

    def outcome(excess: float, multiplier: float = 0.5) -> tuple[torch.Tensor, float | None]:
        update, policy, _ = made(Projection())
        report = update(a_batch(policy, excess)._replace(multipliers=(multiplier,)), seeded(0))
        return flat(policy), report.nu

    (far, none), (same, _) = outcome(-1e3), outcome(-1e3, multiplier=50.0)
    assert none == 0 and torch.equal(far, same)
    back, infinite = outcome(1e3)
    assert infinite == math.inf and not torch.allclose(far, back, atol=1e-3)
    binding, some = outcome(0.3)
    assert some is not None and 0 < some < math.inf and not torch.allclose(binding, far, atol=1e-3)
