"""Advantages against a slow double loop, and critics against PyTorch's own layers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from samba_rl.improve.advantages import Critics, gae, to_go
from tests.traces import double, seeded


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def slow_gae(steps: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """Compute advantages by their definition: the sum over l of (γλ)^l times the one-step error at t + l."""
    horizon = len(steps)
    after = [*values[1:], 0.0]
    errors = [steps[t] + gamma * after[t] - values[t] for t in range(horizon)]
    return [sum((gamma * lam) ** (k - t) * errors[k] for k in range(t, horizon)) for t in range(horizon)]


# Generalised advantage estimation -------------------------------------------------------------------------------------


def test_gae_by_hand() -> None:
    # Errors 1 + 0.5·4 - 2 = 1, 2 + 0.5·6 - 4 = 1, 3 - 6 = -3; decay 0.25.
    advantages = gae(double([[1.0, 2.0, 3.0]]), double([[2.0, 4.0, 6.0]]), 0.5, 0.5)
    assert advantages.tolist() == [[1 + 0.25 * (1 - 0.75), 1 - 0.75, -3]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.floats(0, 1), st.floats(0, 1), st.integers(0, 10_000))
def test_gae_against_a_slow_double_loop(n: int, horizon: int, gamma: float, lam: float, seed: int) -> None:
    steps, values = random(n, horizon, seed=seed), random(n, horizon, seed=seed + 1)
    advantages = gae(steps, values, gamma, lam)
    for i in range(n):
        expected = slow_gae(steps[i].tolist(), values[i].tolist(), gamma, lam)
        assert advantages[i].tolist() == pytest.approx(expected, abs=1e-9)


def test_each_of_several_has_its_own_gamma_and_lambda() -> None:
    steps, values = random(3, 5, 7), random(3, 5, 7, seed=1)
    gammas, lams = [0.9, 1.0, 0.3], [0.95, 1.0, 0.0]
    together = gae(steps, values, double([gammas])[0], double([lams])[0])
    mixed, to_the_end = gae(steps, values, double([gammas])[0], 0.7), to_go(steps, double([gammas])[0])
    for k in range(3):
        assert torch.allclose(together[k], gae(steps[k], values[k], gammas[k], lams[k]))
        assert torch.allclose(mixed[k], gae(steps[k], values[k], gammas[k], 0.7))
        assert torch.allclose(to_the_end[k], to_go(steps[k], gammas[k]))
        assert together[k, 2].tolist() == pytest.approx(
            slow_gae(steps[k, 2].tolist(), values[k, 2].tolist(), gammas[k], lams[k])
        )


def test_what_is_left_to_come_is_discounted() -> None:
    assert to_go(double([[1.0, 2.0, 4.0]]), 0.5).tolist() == [[3, 4, 4]]
    assert to_go(double([[1.0, 2.0, 4.0]]), 1.0).tolist() == [[7, 6, 4]]
    assert to_go(double([[1.0, 2.0, 4.0]]), 0.0).tolist() == [[1, 2, 4]]


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1), st.integers(0, 1000))
def test_lambda_one_trusts_the_traces_and_lambda_zero_the_critics(gamma: float, seed: int) -> None:
    steps, values = random(3, 6, seed=seed), random(3, 6, seed=seed + 1)
    assert torch.equal(gae(steps, torch.zeros_like(values), gamma, 1.0), to_go(steps, gamma))
    # With λ = 1 the critic is only a baseline.
    assert torch.allclose(gae(steps, values, gamma, 1.0), to_go(steps, gamma) - values)
    after = torch.cat([values[:, 1:], torch.zeros(3, 1)], dim=1)
    assert torch.allclose(gae(steps, values, gamma, 0.0), steps + gamma * after - values)


def test_nothing_follows_an_episodes_end() -> None:
    steps, values = random(2, 6), random(2, 6, seed=1)
    steps[0, 3:], values[0, 3:] = 0, 0
    advantages = gae(steps, values, 0.9, 0.8)
    assert torch.allclose(advantages[0, :3], gae(steps[0, :3], values[0, :3], 0.9, 0.8))
    assert advantages[0, 3:].tolist() == [0, 0, 0]
    assert torch.allclose(advantages[1], gae(steps[1], values[1], 0.9, 0.8))


def test_perfect_critics_are_never_surprised() -> None:
    steps = random(4, 8)
    assert torch.allclose(gae(steps, to_go(steps, 0.95), 0.95, 0.9), torch.zeros(4, 8).double(), atol=1e-12)


# Critics --------------------------------------------------------------------------------------------------------------


def plain(critics: Critics, k: int) -> nn.Sequential:
    """Return critic k as PyTorch layers."""
    layers: list[nn.Module] = []
    for weight, bias in zip(critics.weights, critics.biases, strict=True):
        layer = nn.Linear(*weight[k].shape)
        layer.load_state_dict({"weight": weight[k].T, "bias": bias[k, 0]})
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def critics_with_bias(count: int, inputs: int, hidden: tuple[int, ...]) -> Critics:
    critics = Critics(count, inputs, hidden, seeded(0))
    with torch.no_grad():
        for i, bias in enumerate(critics.biases):
            bias.copy_(torch.randn(bias.shape, generator=seeded(i)))
    return critics


@pytest.mark.parametrize("hidden", [(), (5,), (7, 4)])
def test_critics_side_by_side_are_separate_networks(hidden: tuple[int, ...]) -> None:
    critics, inputs = critics_with_bias(3, 2, hidden), torch.randn(3, 11, 2, generator=seeded(1))
    values = critics(inputs)
    assert values.shape == (3, 11) and values.requires_grad
    for k in range(3):
        assert torch.allclose(values[k], plain(critics, k)(inputs[k])[:, 0], atol=1e-6)


def test_critics_begin_without_bias_differently_and_from_the_generator_alone() -> None:
    critics, again, other = (Critics(2, 3, (8, 4), seeded(seed)) for seed in (0, 0, 1))
    for one, same, different in zip(critics.weights, again.weights, other.weights, strict=True):
        assert torch.equal(one, same) and not torch.equal(one, different) and not torch.equal(one[0], one[1])
    assert all(float(bias.detach().abs().max()) == 0 for bias in critics.biases)
    gains = [math.sqrt(2), math.sqrt(2), 1.0]
    for weight, gain in zip(critics.weights, gains, strict=True):
        for matrix in weight.detach():
            size = min(matrix.shape)
            small = matrix.T @ matrix if matrix.shape[1] == size else matrix @ matrix.T
            assert torch.allclose(small, gain**2 * torch.eye(size), atol=1e-5)


def test_a_critic_learns_nothing_from_the_others_errors() -> None:
    critics, inputs = critics_with_bias(2, 2, (5,)), torch.randn(2, 11, 2, generator=seeded(1))
    (critics(inputs)[0] - 1).square().mean().backward()
    for parameter in critics.parameters():
        assert parameter.grad is not None
        assert float(parameter.grad[0].abs().max()) > 0 and float(parameter.grad[1].abs().max()) == 0


def test_renormalising_takes_the_units_of_the_targets_and_leaves_the_networks_alone() -> None:
    critics, inputs = critics_with_bias(3, 2, (5,)), torch.randn(3, 40, 2, generator=seeded(1))
    before = critics(inputs).detach()
    assert not critics.values(inputs).any()  # a fresh critic knows of no unit
    for i, (centre, size) in enumerate([([5.0, -1.0, 0.0], [2.0, 30.0, 0.1]), ([0.0, 9.0, 1.0], [1.0, 0.2, 7.0])]):
        noise = torch.randn(3, 40, generator=seeded(2 + i))
        targets = torch.tensor(centre)[:, None] + torch.tensor(size)[:, None] * noise
        critics.renormalise(targets)
        assert torch.equal(critics(inputs), before)
        # The values follow the targets: as many standard deviations from the mean as before.
        expected = targets.mean(1, keepdim=True) + targets.std(1, correction=0, keepdim=True) * before
        assert torch.allclose(critics.values(inputs), expected, rtol=1e-4, atol=1e-4)
        normalised = critics.normalised(targets)
        assert torch.allclose(normalised.mean(1), torch.zeros(3), atol=1e-5)
        assert torch.allclose(normalised.std(1, correction=0), torch.ones(3), atol=1e-5)


def test_targets_that_are_all_the_same_are_predicted_whatever_the_network_says() -> None:
    critics, nothing = critics_with_bias(2, 2, (5,)), torch.zeros(2, 30)
    nothing[1] = 5 * torch.randn(30, generator=seeded(2))
    critics.renormalise(nothing)
    assert critics.mean[0] == critics.std[0] == 0 and critics.normalised(nothing)[0].abs().max() == 0
    assert not critics.values(torch.randn(2, 7, 2, generator=seeded(3)))[0].any()
    assert float(critics.std[1]) == pytest.approx(float(nothing[1].std(correction=0)))


def test_critics_learn_simple_functions_of_quite_different_size() -> None:
    critics = Critics(2, 1, (16, 16), seeded(0))
    x = torch.linspace(-1, 1, 50)[:, None].expand(2, 50, 1)
    targets = torch.stack([500 + 30 * x[0, :, 0], 0.001 * (2 * x[1, :, 0]).sin()])
    critics.renormalise(targets)
    optimiser = torch.optim.Adam(critics.parameters(), lr=0.02)
    for _ in range(200):
        optimiser.zero_grad()
        (critics(x) - critics.normalised(targets)).square().mean(1).sum().backward()
        optimiser.step()
    missed = (critics.values(x) - targets).square().mean(1) / targets.var(1)
    assert float(missed.max()) < 0.02


def test_without_normalising_the_targets_stay_as_they_are() -> None:
    critics, targets = (
        Critics(2, 1, (4,), seeded(0), normalise=False),
        500 + 30 * torch.randn(2, 50, generator=seeded(1)),
    )
    critics.renormalise(targets)
    inputs = torch.randn(2, 50, 1, generator=seeded(2))
    assert torch.equal(critics.normalised(targets), targets) and torch.equal(critics.values(inputs), critics(inputs))
