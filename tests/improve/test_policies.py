"""Policies: densities, units, bounds of the mean, noise, and orthogonal layers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.improve.policies import (
    GaussianPolicy,
    MeanPolicy,
    OpenLoopPolicy,
    PolicySettings,
    UniformPolicy,
    linear,
    orthogonal,
)
from tests.traces import last_layer, seeded, simple_policy

LOW, HIGH = (-2.0, 0.0), (2.0, 10.0)


def policy_of(choices: PolicySettings | None = None, *, seed: int = 0) -> GaussianPolicy:
    """Make a policy of three observations and two actions whose mean depends strongly on the observation."""
    centre, scale = torch.tensor([1.0, 0.0, -5.0]), torch.tensor([2.0, 1.0, 0.5])
    policy = GaussianPolicy(LOW, HIGH, centre, scale, choices or PolicySettings(hidden=(8,)), seeded(seed))
    with torch.no_grad():
        last_layer(policy).weight.mul_(100)
        last_layer(policy).bias.copy_(torch.tensor([0.3, -0.2]))
        policy.log_std.copy_(torch.tensor([-0.5, 0.2]))
    return policy


def observations(n: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return 3 * torch.randn(n, 3, generator=seeded(seed), dtype=dtype)


# The Gaussian policy --------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(0, 1000), st.floats(-3, 1))
def test_log_density_is_that_of_a_normal_distribution(n: int, seed: int, log_std: float) -> None:
    policy = policy_of().double()
    with torch.no_grad():
        policy.log_std[1] = log_std
    inputs, raw = observations(n, seed), 2 * torch.randn(n, 2, generator=seeded(seed), dtype=torch.float64)
    normal = torch.distributions.Normal(policy.mean_of(inputs), policy.std)
    assert torch.allclose(policy.log_density(inputs, raw), normal.log_prob(raw).sum(-1), rtol=1e-9)  # type: ignore[no-untyped-call]


def test_log_density_keeps_the_shape_of_a_batch_of_trajectories() -> None:
    policy = policy_of()
    inputs, raw = torch.randn(4, 5, 3, generator=seeded(0)), torch.randn(4, 5, 2, generator=seeded(1))
    density = policy.log_density(inputs, raw)
    assert density.shape == (4, 5)
    assert torch.allclose(density.flatten(), policy.log_density(inputs.reshape(20, 3), raw.reshape(20, 2)), atol=1e-6)


def test_actions_have_the_stated_mean_and_spread_in_the_units_of_the_system() -> None:
    policy = policy_of(PolicySettings(hidden=(8,), mean_bound=None))
    seen = observations(1).expand(100_000, 3)
    actions = policy(seen, seeded(2))
    raw = policy.mean_of(policy.normalised(seen[:1]))[0]
    # The ranges -2..2 and 0..10 have centres 0 and 5, half widths 2 and 5.
    mean = torch.tensor([0.0, 5.0]) + torch.tensor([2.0, 5.0]) * raw
    std = torch.tensor([2.0, 5.0]) * torch.tensor([-0.5, 0.2]).exp()
    assert actions.mean(0).tolist() == pytest.approx(mean.tolist(), abs=0.1)
    assert actions.std(0).tolist() == pytest.approx(std.tolist(), rel=0.02)
    assert policy.mean_action(seen[:1])[0].tolist() == pytest.approx(mean.tolist(), rel=1e-5)


def test_inside_actions_are_half_widths_and_observations_are_scaled() -> None:
    policy = policy_of()
    actions = torch.tensor([[-2.0, 0.0], [0.0, 5.0], [2.0, 10.0], [4.0, 12.5]], dtype=torch.float64)
    assert policy.raw(actions).tolist() == [[-1, -1], [0, 0], [1, 1], [2, 1.5]]
    seen = torch.tensor([[1.0, 0.0, -5.0], [3.0, 1.0, -4.5]], dtype=torch.float64)
    assert policy.normalised(seen).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert policy.raw(actions).dtype == policy.normalised(seen).dtype == torch.float32


def test_raw_undoes_what_acting_does() -> None:
    policy, seen = policy_of(), observations(50)
    noise = torch.randn(50, 2, generator=seeded(3))
    expected = policy.mean_of(policy.normalised(seen)) + policy.std * noise
    assert torch.allclose(policy.raw(policy(seen, seeded(3))), expected, atol=1e-5)


@pytest.mark.parametrize("bound", [0.5, 1.1, 3.0])
def test_a_bounded_mean_stays_within_the_bound_and_is_the_networks_near_the_centre(bound: float) -> None:
    policy = policy_of(PolicySettings(hidden=(8,), mean_bound=bound))
    with torch.no_grad():
        last_layer(policy).bias.zero_()
        last_layer(policy).weight.mul_(5)
    inputs = 100 * torch.randn(500, 3, generator=seeded(1))
    assert policy.network(inputs).abs().max().item() > 2 * bound
    assert 0.9 * bound < policy.mean_of(inputs).abs().max().item() <= bound * (1 + 1e-6)
    # In the units of the system: half widths of 2 and 5.
    away = (policy.mean_action(inputs) - torch.tensor([0.0, 5.0])).abs().amax(0)
    assert bool((away <= torch.tensor([2.0, 5.0]) * bound + 1e-5).all())
    with torch.no_grad():
        last_layer(policy).weight.mul_(1e-3)
    assert torch.allclose(policy.mean_of(inputs), policy.network(inputs), atol=1e-5)


def test_without_a_bound_the_mean_is_the_networks_own() -> None:
    policy = policy_of(PolicySettings(hidden=(8,), mean_bound=None))
    with torch.no_grad():
        last_layer(policy).weight.mul_(100)
    inputs = torch.randn(50, 3, generator=seeded(1))
    assert torch.equal(policy.mean_of(inputs), policy.network(inputs))
    assert policy.mean_of(inputs).abs().max().item() > 10


def test_same_seed_same_actions_and_same_weights() -> None:
    one, same, other = policy_of(seed=0), policy_of(seed=0), policy_of(seed=1)
    seen = observations(6)
    assert torch.equal(one(seen, seeded(5)), same(seen, seeded(5)))
    assert not torch.equal(one(seen, seeded(5)), one(seen, seeded(6)))
    assert not torch.equal(one.mean_action(seen), other.mean_action(seen))
    # Global random numbers play no part, neither in making a policy nor in acting.
    before = torch.random.get_rng_state()
    for policy in (one, policy_of(seed=0)):
        torch.manual_seed(99)
        assert torch.equal(policy(seen, seeded(5)), same(seen, seeded(5)))
    torch.random.set_rng_state(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_actions_are_of_the_observations_type_and_carry_no_gradient(dtype: torch.dtype) -> None:
    policy, seen = policy_of(), observations(4, dtype=dtype)
    for actions in (policy(seen, seeded(0)), policy.mean_action(seen), MeanPolicy(policy)(seen, seeded(0))):
        assert actions.shape == (4, 2) and actions.dtype == dtype and actions.device == seen.device
        assert not actions.requires_grad


def test_the_mean_policy_leaves_the_generator_alone() -> None:
    policy, generator = policy_of(), seeded(0)
    before = generator.get_state()
    assert torch.equal(MeanPolicy(policy)(observations(4), generator), policy.mean_action(observations(4)))
    assert torch.equal(generator.get_state(), before)


def test_at_first_the_policy_is_nearly_its_noise_alone_in_the_middle_of_the_range() -> None:
    policy = GaussianPolicy(LOW, HIGH, torch.zeros(3), torch.ones(3), PolicySettings(std=0.6), seeded(0))
    assert policy.mean_action(observations(100)).mean(0).tolist() == pytest.approx([0.0, 5.0], abs=0.1)
    assert policy.std.tolist() == pytest.approx([0.6, 0.6])
    assert policy.mean_of(observations(100).float()).abs().max().item() < 0.1


def test_the_floor_lifts_only_what_lies_below_it() -> None:
    policy = policy_of()  # exp(-0.5) = 0.61 and exp(0.2) = 1.22
    policy.floor_std(0.5)
    assert policy.log_std.tolist() == pytest.approx([-0.5, 0.2])
    policy.floor_std(0.8)
    assert policy.std.tolist() == pytest.approx([0.8, math.exp(0.2)])
    assert policy.log_std.requires_grad and policy.log_std.is_leaf


def test_the_floor_falls_over_a_run() -> None:
    choices = PolicySettings(std_floor_first=0.4, std_floor=0.1)
    assert [choices.floor_at(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.4, 0.2, 0.1])


def test_without_a_floor_nothing_is_lifted() -> None:
    choices = PolicySettings(std_floor_first=0.0, std_floor=0.0)
    assert [choices.floor_at(progress) for progress in (0.0, 0.5, 1.0)] == [0, 0, 0]
    policy = policy_of()
    with torch.no_grad():
        policy.log_std.fill_(-20.0)
    policy.floor_std(0.0)
    assert policy.log_std.tolist() == [-20, -20]


def test_a_policy_without_hidden_layers_is_linear() -> None:
    policy = simple_policy(2)
    with torch.no_grad():
        last_layer(policy).weight.copy_(torch.tensor([[2.0, -1.0]]))
        last_layer(policy).bias.fill_(0.5)
    assert policy.mean_of(torch.tensor([[1.0, 1.0], [0.0, 3.0]])).tolist() == [[1.5], [-2.5]]


# Layers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (7, 2), (2, 7), (1, 4), (4, 1)])
def test_orthogonal_matrices(rows: int, columns: int) -> None:
    matrix = orthogonal(rows, columns, seeded(0))
    assert matrix.shape == (rows, columns)
    small = matrix.T @ matrix if rows >= columns else matrix @ matrix.T
    assert torch.allclose(small, torch.eye(min(rows, columns)), atol=1e-5)
    assert torch.equal(matrix, orthogonal(rows, columns, seeded(0)))
    assert not torch.allclose(matrix, orthogonal(rows, columns, seeded(1)))


def test_orthogonal_matrices_favour_no_direction() -> None:
    """Without the correction of signs, the diagonal of a QR factor would be biased."""
    generator = seeded(0)
    draws = torch.stack([orthogonal(3, 3, generator) for _ in range(1000)])
    assert float(draws.mean(0).abs().max()) < 0.1


def test_a_layer_has_its_gain_and_no_bias() -> None:
    layer = linear(4, 3, 0.5, seeded(0))
    assert layer.weight.requires_grad and layer.bias.tolist() == [0, 0, 0]
    assert torch.allclose(layer.weight @ layer.weight.T, 0.25 * torch.eye(3), atol=1e-6)


# The others -----------------------------------------------------------------------------------------------------------


def test_the_open_loop_policy_does_what_was_fixed_whatever_it_sees() -> None:
    actions = torch.arange(12, dtype=torch.float64).reshape(2, 3, 2)
    policy = OpenLoopPolicy(actions)
    for t in range(3):
        seen = torch.randn(2, 5, generator=seeded(t))
        out = policy(seen, seeded(0))
        assert out.dtype == seen.dtype and torch.equal(out, actions[:, t].float())
    with pytest.raises(IndexError):
        policy(torch.zeros(2, 5), seeded(0))


def test_the_uniform_policy_fills_its_box() -> None:
    actions = UniformPolicy(LOW, HIGH)(torch.zeros(4000, 3, dtype=torch.float64), seeded(0))
    assert actions.shape == (4000, 2) and actions.dtype == torch.float64
    assert bool((actions >= torch.tensor(LOW)).all()) and bool((actions <= torch.tensor(HIGH)).all())
    assert actions.mean(0).tolist() == pytest.approx([0.0, 5.0], abs=0.2)
    assert actions.std(0).tolist() == pytest.approx([4 / math.sqrt(12), 10 / math.sqrt(12)], rel=0.05)
