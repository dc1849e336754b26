"""The trust-region step against the natural gradient, and guarantees that hold for any batch."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.distributions import Normal, kl_divergence

from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.min_norm import policy_gradients
from samba_rl.improve.updates.trust_region import (
    StepReport,
    TrustRegionSettings,
    TrustRegionStep,
    flat,
    mean_kl,
    set_flat,
)
from tests.improve.updates.steps import (
    KINDS,
    a_policy,
    hessian_of_divergence,
    random_advantage,
    standardised,
    steps,
    surrogate,
    unchanged,
)
from tests.traces import last_layer, seeded, simple_policy

# Parameters as one vector ---------------------------------------------------------------------------------------------


def test_parameters_survive_the_way_into_a_vector_and_back() -> None:
    one, other = a_policy(seed=0), a_policy(seed=1)
    vector = flat(one)
    assert vector.dtype == torch.float64 and len(vector) == 2 + 6 * 3 + 6 + 2 * 6 + 2
    set_flat(other, vector)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert all(parameter.requires_grad and parameter.dtype == torch.float32 for parameter in other.parameters())


def test_the_vector_does_not_change_with_the_policy() -> None:
    policy = a_policy()
    vector = flat(policy)
    kept = vector.clone()
    set_flat(policy, vector + 1)
    assert torch.equal(vector, kept)


# The divergence and the surrogate -------------------------------------------------------------------------------------


def test_the_divergence_against_torchs_own() -> None:
    generator = seeded(0)
    old, new = torch.randn(2, 7, 3, generator=generator, dtype=torch.float64)
    old_log, new_log = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    expected = kl_divergence(Normal(old, old_log.exp()), Normal(new, new_log.exp())).sum(-1).mean()
    assert float(mean_kl(old, old_log, new, new_log)) == pytest.approx(float(expected))
    assert float(mean_kl(old, old_log, old, old_log)) == 0


def test_the_surrogate_by_hand() -> None:
    policy = simple_policy(std=0.5)
    inputs, raw = torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]])
    old = policy.log_density(inputs, raw).detach()
    with torch.no_grad():
        last_layer(policy).bias.fill_(0.1)
    # log π changes by (±0.1 - 0.005) / 0.25.
    expected = (3 * math.exp(0.38) + 5 * math.exp(-0.42)) / 2
    assert surrogate(policy, inputs, raw, torch.tensor([3.0, 5.0]), old).item() == pytest.approx(expected)


# A step ---------------------------------------------------------------------------------------------------------------


def test_a_small_step_follows_the_natural_gradient() -> None:
    policy = a_policy()
    inputs, raw, advantage = steps(policy)
    before = flat(policy)
    fisher = hessian_of_divergence(copy.deepcopy(policy).double(), inputs.double())
    damped = fisher + 0.1 * torch.eye(len(fisher), dtype=torch.float64)
    gradient = policy_gradients(policy, inputs, raw, standardised(advantage)[None])[0].double()
    direction = torch.linalg.solve(damped, gradient)
    report = TrustRegionStep(policy, TrustRegionSettings(kl=1e-5, damping=0.1, cg_iterations=40))(
        inputs, raw, advantage
    )
    expected = -math.sqrt(2e-5 / float(direction @ damped @ direction)) * direction
    assert report.accepted and report.backtracks == 0
    moved = flat(policy) - before
    assert float((moved - expected).norm()) < 1e-2 * float(expected.norm())
    assert report.kl == pytest.approx(0.5 * float(moved @ fisher @ moved), rel=0.05)
    assert report.improvement == pytest.approx(-float(gradient @ moved), rel=0.05)


@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1000),
    kl=st.sampled_from([1e-4, 0.01, 0.3, 3.0]),
    n=st.integers(2, 40),
    floor=st.sampled_from([0.01, 0.5, 0.7, 5.0]),
    backtracks=st.integers(0, 10),
)
@settings(max_examples=150, deadline=None)
def test_no_step_is_worse_or_too_long(kind: str, seed: int, kl: float, n: int, floor: float, backtracks: int) -> None:
    policy = a_policy(seed=seed)
    inputs, raw, _ = steps(policy, n, seed)
    advantage = random_advantage(kind, n, seed)
    before = copy.deepcopy(policy)
    update = TrustRegionStep(policy, TrustRegionSettings(kl=kl, damping=1e-3, backtracks=backtracks))
    update.std_floor = floor
    report = update(inputs, raw, advantage)
    assert kind in ("random", "outlier") or not report.accepted
    if not report.accepted:
        assert unchanged(policy, before) and report[:2] == (0, 0)
        return
    with torch.no_grad():
        moved = mean_kl(before.mean_of(inputs), before.log_std, policy.mean_of(inputs), policy.log_std)
        wide, old = policy.double(), before.double()
        inputs, raw = inputs.double(), raw.double()
        old_log = old.log_density(inputs, raw)
        better = -float(surrogate(wide, inputs, raw, standardised(advantage.double()), old_log))
    assert 0 <= report.backtracks <= backtracks
    assert report.kl == pytest.approx(float(moved)) and report.kl <= kl
    assert report.improvement > 0 and report.improvement == pytest.approx(better, rel=1e-3, abs=1e-5)
    # The floor is reached wherever it was not above the policy's standard deviation, and approached elsewhere.
    assert bool((policy.std >= min(floor, float(old.log_std.detach().exp().min())) * (1 - 1e-6)).all())


@pytest.mark.parametrize("where", ["inputs", "actions", "parameters", "deviation"])
def test_what_is_not_finite_leaves_the_policy_alone(where: str) -> None:
    policy = a_policy()
    inputs, raw, advantage = steps(policy)
    if where == "inputs":
        inputs[3, 1] = math.nan
    elif where == "actions":
        raw[3, 1] = math.inf
    else:
        with torch.no_grad():
            (last_layer(policy).bias if where == "parameters" else policy.log_std)[0] = (
                math.inf if where == "parameters" else -200.0
            )
    before = [parameter.clone() for parameter in policy.parameters()]
    report = TrustRegionStep(policy, TrustRegionSettings())(inputs, raw, advantage)
    assert not report.accepted
    assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_the_floor_holds_and_its_divergence_counts() -> None:
    """Less noise is always better here, down to the floor."""

    def learn(floor: float, std: float) -> tuple[GaussianPolicy, list[StepReport]]:
        policy = simple_policy(std=std)
        update = TrustRegionStep(policy, TrustRegionSettings(kl=0.05))
        assert update.std_floor == policy.settings.std_floor
        update.std_floor = floor
        generator, seen, reports = seeded(0), torch.zeros(300, 1), []
        for _ in range(20):
            raw = policy.raw(policy(seen, generator))
            reports.append(update(seen, raw, raw[:, 0].square()))
        return policy, reports

    policy, reports = learn(floor=0.4, std=0.6)
    assert policy.std.item() == pytest.approx(0.4)
    assert all(report.kl <= 0.05 for report in reports) and sum(report.accepted for report in reports) >= 2
    assert learn(floor=0.05, std=0.6)[0].std.item() < 0.2


def test_a_step_that_makes_things_worse_is_not_taken() -> None:
    """Less noise would be better, but the floor only allows more."""
    policy = simple_policy(std=0.3)
    update = TrustRegionStep(policy, TrustRegionSettings(kl=0.5))
    update.std_floor, before, seen = 0.4, copy.deepcopy(policy), torch.zeros(300, 1)
    raw = 0.3 * torch.randn(300, 1, generator=seeded(0))
    report = update(seen, raw, raw[:, 0].square())
    assert report == StepReport(0, 0, False, 10) and unchanged(policy, before)
    # If more noise is better, the step is taken.
    assert update(seen, raw, -raw[:, 0].square()).accepted and policy.std.item() >= 0.4 * (1 - 1e-6)


def test_a_policy_below_the_floor_climbs_within_the_divergence() -> None:
    policy = simple_policy(std=0.1)
    update = TrustRegionStep(policy, TrustRegionSettings(kl=0.01))
    update.std_floor = 0.3
    generator, seen = seeded(0), torch.zeros(300, 1)
    for _ in range(60):
        raw = policy.raw(policy(seen, generator))
        assert update(seen, raw, raw[:, 0]).kl <= 0.01
    assert policy.std.item() >= 0.3 * (1 - 1e-6)


def test_the_unit_of_the_advantage_and_its_mean_make_no_difference() -> None:
    one, other = a_policy(), a_policy()
    inputs, raw, advantage = steps(one)
    first = TrustRegionStep(one, TrustRegionSettings())(inputs, raw, advantage)
    second = TrustRegionStep(other, TrustRegionSettings())(inputs, raw, 1000 * advantage - 77)
    assert torch.allclose(flat(one), flat(other), atol=1e-4)
    assert first.improvement == pytest.approx(second.improvement, rel=1e-3)


def test_as_many_fisher_samples_as_steps_are_all() -> None:
    results = []
    for samples in (None, 64, 16):
        policy = a_policy()
        inputs, raw, advantage = steps(policy)
        assert TrustRegionStep(policy, TrustRegionSettings(fisher_samples=samples))(inputs, raw, advantage).accepted
        results.append(flat(policy))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_steps_and_gradients_are_left_as_they_were() -> None:
    policy = a_policy()
    batch = steps(policy)
    before = [part.clone() for part in batch]
    assert TrustRegionStep(policy, TrustRegionSettings())(*batch).accepted
    assert all(torch.equal(a, b) for a, b in zip(before, batch, strict=True))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in policy.parameters())


def test_repeated_steps_solve_a_bandit() -> None:
    """The best action is half the first observation."""
    policy = simple_policy(2, hidden=(8,), mean_bound=1.1)
    update, generator, costs = TrustRegionStep(policy, TrustRegionSettings(kl=0.03)), seeded(0), []
    for _ in range(60):
        seen = 2 * torch.rand(400, 2, generator=generator) - 1
        raw = policy.raw(policy(seen, generator))
        cost = (raw[:, 0] - 0.5 * seen[:, 0]).square()
        costs.append(float(cost.mean()))
        update(seen, raw, cost)
    probe = torch.tensor([[-0.8, 0.3], [0.0, 0.0], [0.6, -0.5]])
    assert policy.mean_of(probe)[:, 0].tolist() == pytest.approx([-0.4, 0.0, 0.3], abs=0.1)
    assert costs[0] > 0.3 and costs[-1] < 0.02
