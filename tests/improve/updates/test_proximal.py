from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.multi_gradient import policy_gradients
from samba_rl.improve.updates.proximal import ProximalSettings, ProximalUpdate
from tests.traces import last_layer, seeded, simple_policy

# One pass over the whole batch, and nothing held back.
PLAIN = ProximalSettings(
    epochs=1,
    minibatch=10**6,
    policy_rate=1e-3,
    kl_target=None,
    critic_rate=1e-3,
    clip=0.2,
    kl_stop=math.inf,
    max_gradient_norm=1e9,
    entropy=0.0,
    critic_loss="squared",
)


def a_policy(actions: int = 2) -> GaussianPolicy:
    policy = simple_policy(3, actions, hidden=(6,), mean_bound=1.1)
    with torch.no_grad():
        last_layer(policy).weight.mul_(30)
    return policy


def a_batch(policy: GaussianPolicy, n: int = 64, critics: int = 2, seed: int = 0) -> Batch:
    """On-policy actions with random advantages and targets."""
    generator = seeded(seed)
    inputs = torch.randn(n, 3, generator=generator)
    with torch.no_grad():
        mean = policy.mean_of(inputs)
        raw = mean + policy.std * torch.randn(mean.shape, generator=generator)
    return Batch(
        inputs=inputs,
        raw=raw,
        advantage=3 + 5 * torch.randn(n, generator=generator),
        critic_inputs=torch.randn(critics, n, 4, generator=generator),
        targets=7 + 2 * torch.randn(critics, n, generator=generator),
    )


def some_critics(count: int = 2) -> Critics:
    return Critics(count, 4, (5,), seeded(1))


def gradient_of(module: nn.Module) -> Tensor:
    """What the last step left [P]."""
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters() if parameter.grad is not None])


def numbers(module: nn.Module) -> Tensor:
    """Parameters [P]."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def standardised(advantage: Tensor) -> Tensor:
    return (advantage - advantage.mean()) / advantage.std(correction=0)


# The policy -----------------------------------------------------------------------------------------------------------


def test_the_first_gradient_is_the_plain_policy_gradient() -> None:
    policy, critics = a_policy(), some_critics()
    batch = a_batch(policy)
    expected = policy_gradients(policy, batch.inputs, batch.raw, standardised(batch.advantage)[None])[0]
    before = numbers(policy)
    ProximalUpdate(policy, critics, PLAIN)(batch, seeded(0))
    assert torch.allclose(gradient_of(policy), expected, rtol=1e-3, atol=1e-6)
    # Adam's first step goes against the gradient's signs, by its rate.
    clear = expected.abs() > 1e-4
    assert torch.allclose((numbers(policy) - before)[clear], -1e-3 * expected.sign()[clear], rtol=1e-2)


def reference(policy: GaussianPolicy, batch: Batch, settings: ProximalSettings) -> None:
    """The clipped surrogate, a step at a time and one sample at a time, over the whole batch."""
    old = policy.log_density(batch.inputs, batch.raw).tolist()
    advantage = standardised(batch.advantage).tolist()
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
    assert report.epochs == 12 and 0.2 < report.clipped < 1  # the cut-off had a part in it
    with torch.no_grad():
        log_ratio = policy.log_density(batch.inputs, batch.raw) - a_policy().log_density(batch.inputs, batch.raw)
    assert report.clipped == pytest.approx(float(((log_ratio.exp() - 1).abs() > 0.2).float().mean()))
    assert report.kl == pytest.approx(float((log_ratio.exp() - 1 - log_ratio).mean()), rel=1e-3)


def push(
    advantages: list[float], actions: list[float], settings: ProximalSettings
) -> tuple[GaussianPolicy, UpdateReport]:
    """One state, a mean that is the bias alone, standard deviation 0.5."""
    policy = simple_policy(std=0.5)
    n = len(actions)
    batch = Batch(
        inputs=torch.zeros(n, 1),
        raw=torch.tensor(actions)[:, None],
        advantage=torch.tensor(advantages),
        critic_inputs=torch.zeros(1, n, 4),
        targets=torch.randn(1, n, generator=seeded(0)),
    )
    report = ProximalUpdate(policy, some_critics(1), settings)(batch, seeded(0))
    return policy, report


def test_the_surrogate_cuts_off_what_has_gone_far_enough() -> None:
    """Actions ±1, the right one good: a step of 0.1 to the right changes log π by (±0.1 - 0.005) / 0.25."""
    two = dataclasses.replace(PLAIN, epochs=2, policy_rate=0.1)
    # exp(0.38) = 1.46 > 1.2 for the good one, exp(-0.42) = 0.66 < 0.8 for the bad one: neither pulls any more.
    policy, report = push([-1.0, 1.0], [1.0, -1.0], two)
    assert gradient_of(policy).tolist() == pytest.approx([0] * 3, abs=1e-6) and report.clipped == 1
    # With a wider clip both still do.
    policy, report = push([-1.0, 1.0], [1.0, -1.0], dataclasses.replace(two, clip=0.6))
    assert gradient_of(policy).abs().max().item() > 0.5 and report.clipped < 1


def test_what_was_pushed_the_wrong_way_still_pulls_back() -> None:
    """Two of three ask for the right; the third finds the same action as the first bad, and it has become likelier."""
    policy, report = push([-4.0, 2.0, 2.0], [1.0, -1.0, 1.0], dataclasses.replace(PLAIN, epochs=2, policy_rate=0.1))
    # Standardised: -√2, √½, √½. After the first step the mean is 0.1, and the third alone has a gradient.
    pull = math.sqrt(0.5) * math.exp((1 - 0.9**2) / (2 * 0.25)) / 3
    bias, log_std = last_layer(policy).bias.grad, policy.log_std.grad
    assert bias is not None and bias.item() == pytest.approx(pull * 0.9 / 0.25, rel=1e-4)
    assert log_std is not None and log_std.item() == pytest.approx(pull * (0.9**2 / 0.25 - 1), rel=1e-4)
    assert report.clipped == 1


def test_minibatches_share_the_batch_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, critics = a_policy(), some_critics()
    batch = a_batch(policy, n=50)
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std(correction=0) + 1e-8)
    steps: list[list[int]] = []
    plain = ProximalUpdate._policy_step

    def watch(self: ProximalUpdate, actor: Any, inputs: Tensor, raw: Tensor, *rest: Tensor) -> Tensor:
        rows = [int((batch.inputs == row).all(1).nonzero()) for row in inputs]
        assert torch.equal(raw, batch.raw[rows])  # an observation keeps its action
        assert torch.equal(rest[0], advantage[rows])  # and what came of it
        steps.append(rows)
        return plain(self, actor, inputs, raw, *rest)

    monkeypatch.setattr(ProximalUpdate, "_policy_step", watch)
    ProximalUpdate(policy, critics, dataclasses.replace(PLAIN, epochs=2, minibatch=16))(batch, seeded(0))
    assert [len(rows) for rows in steps] == [16, 17, 17] * 2
    first, second = ([row for rows in steps[k : k + 3] for row in rows] for k in (0, 3))
    assert sorted(first) == sorted(second) == list(range(50)) and first != second


def test_the_kl_stop_stops_the_policy_and_not_the_critics() -> None:
    settings = dataclasses.replace(PLAIN, epochs=20, policy_rate=0.02)
    policy, critics = a_policy(), some_critics()
    batch = a_batch(policy)
    stopped, free, cut = (copy.deepcopy(policy) for _ in range(3))
    stopped_critics, free_critics = copy.deepcopy(critics), copy.deepcopy(critics)
    report = ProximalUpdate(stopped, stopped_critics, dataclasses.replace(settings, kl_stop=0.03))(batch, seeded(0))
    assert 2 <= report.epochs < 20 and report.kl > 0.03
    # It rests where that many passes without a stop lead, and had not gone too far one pass earlier.
    ProximalUpdate(cut, copy.deepcopy(critics), dataclasses.replace(settings, epochs=report.epochs))(batch, seeded(0))
    assert torch.equal(numbers(stopped), numbers(cut))
    shorter = dataclasses.replace(settings, epochs=report.epochs - 2)
    assert ProximalUpdate(copy.deepcopy(policy), copy.deepcopy(critics), shorter)(batch, seeded(0)).kl <= 0.03
    # Without a stop it goes on; the critics learn as much either way.
    whole = ProximalUpdate(free, free_critics, settings)(batch, seeded(0))
    assert whole.epochs == 20 and not torch.allclose(numbers(stopped), numbers(free), atol=1e-3)
    assert torch.equal(numbers(stopped_critics), numbers(free_critics))


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
    """`share` is the target in units of how far the update goes; within half and twice of it the rate stays."""
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


def test_advantages_count_by_their_order_of_size_alone() -> None:
    """Their unit and their mean make no difference."""
    policies = [a_policy() for _ in range(2)]
    batch = a_batch(policies[0])
    for policy, advantage in zip(policies, (batch.advantage, 1000 * batch.advantage - 77), strict=True):
        ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, epochs=3))(
            batch._replace(advantage=advantage), seeded(0)
        )
    assert torch.allclose(numbers(policies[0]), numbers(policies[1]), atol=1e-4)


def test_advantages_without_any_difference_teach_nothing() -> None:
    policy = a_policy()
    before = numbers(policy)
    batch = a_batch(policy)._replace(advantage=torch.full((64,), 4.0))
    report = ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, epochs=3))(batch, seeded(0))
    assert torch.equal(numbers(policy), before) and report.kl == 0


# The critics ----------------------------------------------------------------------------------------------------------


def line_critic(rate: float, kind: str, epochs: int = 2) -> tuple[float, float, float]:
    """A critic w·x that begins with w = 0 and should say x at x = ±1: its w, its last gradient, the reported loss."""
    critics = Critics(1, 1, (), seeded(0))
    with torch.no_grad():
        critics.weights[0].zero_()
    x = torch.tensor([[[1.0], [-1.0]]])
    policy = simple_policy()
    batch = Batch(torch.zeros(2, 1), torch.tensor([[0.1], [0.2]]), torch.zeros(2), x, x[..., 0])
    settings = dataclasses.replace(PLAIN, epochs=epochs, critic_rate=rate, critic_loss=kind)  # type: ignore[arg-type]
    report = ProximalUpdate(policy, critics, settings)(batch, seeded(0))
    gradient = critics.weights[0].grad
    assert gradient is not None
    return critics.weights[0].item(), gradient.item(), report.critic_loss[0]


def test_the_squared_critic_loss_by_hand() -> None:
    # The gradient of (w - 1)² is 2(w - 1); Adam's first step is the rate itself.
    w, gradient, loss = line_critic(0.5, "squared", epochs=1)
    assert (w, gradient, loss) == pytest.approx((0.5, -2.0, 0.25), rel=1e-4)
    assert line_critic(0.5, "squared")[1] == pytest.approx(-1.0, rel=1e-4)
    assert line_critic(1.5, "squared")[1] == pytest.approx(1.0, rel=1e-4)


def test_the_clipped_critic_loss_by_hand() -> None:
    """From 0 the value may go to 0.2, where the loss is 0.64; only what is worse than that still has a gradient."""
    assert line_critic(0.5, "clipped", epochs=1)[1] == pytest.approx(-2.0, rel=1e-4)  # at first all is as squared
    assert line_critic(0.1, "clipped")[1] == pytest.approx(2 * (0.1 - 1), rel=1e-4)  # within the clip as well
    assert line_critic(0.5, "clipped")[1] == 0  # (0.5 - 1)² = 0.25
    assert line_critic(1.5, "clipped")[1] == 0  # (1.5 - 1)² = 0.25
    assert line_critic(2.0, "clipped")[1] == pytest.approx(2.0, rel=1e-4)  # (2 - 1)² = 1


def test_critics_learn_from_targets_in_their_own_units_and_say_how_well() -> None:
    policy, critics = a_policy(), Critics(2, 4, (), seeded(1))
    batch = a_batch(policy, n=200)
    x = batch.critic_inputs
    targets = torch.stack([20 + 3 * x[0, :, 0] - x[0, :, 1], 0.5 + 0.2 * x[1, :, 2]])
    settings = dataclasses.replace(PLAIN, epochs=400, critic_rate=0.05, policy_rate=0.0)
    report = ProximalUpdate(policy, critics, settings)(batch._replace(targets=targets), seeded(0))
    error = (critics.values(x) - targets).square().mean(1)
    assert float((error / targets.var(1)).max()) < 1e-3
    assert report.critic_loss == pytest.approx((error / targets.var(1, correction=0)).tolist(), rel=0.05, abs=1e-6)


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
        batch = Batch(seen, raw, cost, torch.zeros(1, 500, 4), cost[None])
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
    before = [part.clone() for part in batch[:5]]
    ProximalUpdate(policy, some_critics(), dataclasses.replace(PLAIN, epochs=2, minibatch=16))(batch, seeded(0))
    assert all(torch.equal(a, b) for a, b in zip(before, batch[:5], strict=True))
