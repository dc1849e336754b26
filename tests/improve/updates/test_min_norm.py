"""Min-norm weights by hand and against numerical minimisers, and policy gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from samba_rl.improve.objectives import Cost, Information
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.min_norm import (
    comparable_weights,
    min_norm_weight,
    min_norm_weights,
    policy_gradients,
)
from samba_rl.models.zeta import LeaveOneOut
from tests.traces import by_hand, double, last_layer, seeded, simple_policy


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


@st.composite
def gradient_pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Draw two gradients of very different length, at any angle."""
    size, seed = draw(st.integers(1, 6)), draw(st.integers(0, 10_000))
    scales = [10 ** draw(st.floats(-2, 2)) for _ in range(2)]
    together = draw(st.floats(-2, 2))
    first, second = random(2, size, seed=seed)
    return scales[0] * first, scales[1] * (second + together * first)


def shortest(first: Tensor, second: Tensor) -> float:
    """Return the least norm that a numerical minimiser finds, the ends of the segment included."""

    def norm(weight: float) -> float:
        return float((weight * first + (1 - weight) * second).norm())

    found = minimize_scalar(norm, bounds=(0, 1), method="bounded", options={"xatol": 1e-12}).x
    return min(norm(float(found)), norm(0.0), norm(1.0))


# Two objectives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "weight"),
    [
        ([1.0, 0.0], [0.0, 1.0], 0.5),
        ([2.0, 0.0], [0.0, 1.0], 0.2),  # the shorter one weighs more
        ([1.0, 0.0], [2.0, 1.0], 1.0),  # the first is short and the second descends it too
        ([2.0, 1.0], [1.0, 0.0], 0.0),
        ([1.0, 0.0], [-3.0, 0.0], 0.75),  # nothing descends both: the shortest is zero
        ([1.0, 2.0], [1.0, 2.0], 1.0),
        ([0.0, 0.0], [1.0, 0.0], 1.0),  # the first is at its best already
        ([1.0, 0.0], [0.0, 0.0], 0.0),
    ],
)
def test_the_weight_of_two_by_hand(first: list[float], second: list[float], weight: float) -> None:
    assert min_norm_weight(torch.tensor(first), torch.tensor(second)) == pytest.approx(weight)


@settings(max_examples=100, deadline=None)
@given(gradient_pairs())
def test_the_weight_of_two_against_a_numerical_minimiser(pair: tuple[Tensor, Tensor]) -> None:
    first, second = pair
    weight = min_norm_weight(first, second)
    assert 0 <= weight <= 1
    ours = float((weight * first + (1 - weight) * second).norm())
    # As short as the numerical minimum.
    assert ours == pytest.approx(shortest(first, second), rel=1e-6, abs=1e-6 * float(first.norm() + second.norm()))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.floats(1.01, 5), st.floats(0, 3), st.integers(0, 10_000))
def test_gradients_built_to_end_at_a_corner(size: int, along: float, aside: float, seed: int) -> None:
    """If the long one's projection on the short one exceeds the short one, that alone is the shortest point."""
    short, other = random(2, size, seed=seed)
    long = along * short + aside * (other - (other @ short) / (short @ short) * short)
    assert min_norm_weight(short, long) == 1
    assert min_norm_weight(long, short) == 0
    assert shortest(short, long) == pytest.approx(float(short.norm()))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.floats(0.05, 0.95), st.floats(0.1, 3), st.integers(0, 10_000))
def test_gradients_built_to_end_in_between(size: int, weight: float, apart: float, seed: int) -> None:
    """Build the gradients around the foot of the perpendicular, so that it divides the segment as wanted."""
    foot, other = random(2, size, seed=seed)
    aside = other - (other @ foot) / (foot @ foot) * foot
    assume(float(aside.norm()) > 1e-3)
    first, second = foot + (1 - weight) * apart * aside, foot - weight * apart * aside
    assert min_norm_weight(first, second) == pytest.approx(weight, abs=1e-6)
    assert min_norm_weight(second, first) == pytest.approx(1 - weight, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(gradient_pairs())
def test_minus_the_shortest_combination_descends_both(pair: tuple[Tensor, Tensor]) -> None:
    weights = min_norm_weights(torch.stack(pair))
    combined = weights @ torch.stack(pair)
    for gradient in pair:
        # For the point of least norm d in a convex set, g · d ≥ d · d for every g in the set.
        assert float(gradient @ combined) >= float(combined @ combined) - 1e-9 * float(gradient @ gradient + 1)


def test_narrow_numbers_are_weighed_in_double() -> None:
    first, second = torch.tensor([1.0, 1e-4]), torch.tensor([1.0, -1e-4])
    assert min_norm_weight(first, second) == pytest.approx(0.5)
    assert min_norm_weights(torch.stack([first, second])).dtype == torch.float64


def test_the_sign_of_the_paper_where_cost_and_information_pull_apart() -> None:
    """Cost C = (θ - 1)² pulls towards 1, information ζ = -(θ + 1)² towards -1; in between they conflict."""

    def weight(theta: float) -> float:
        cost_gradient, zeta_gradient = 2 * (theta - 1), -2 * (theta + 1)
        return min_norm_weight(double([cost_gradient]), double([-zeta_gradient]))

    # In between, the shortest combination is zero: λ·2(θ - 1) + (1 - λ)·2(θ + 1) = 0, so λ = (θ + 1) / 2.
    for theta in (-0.9, -0.5, 0.0, 0.7):
        assert weight(theta) == pytest.approx((theta + 1) / 2)
    # Outside, both agree, and the nearer optimum has the shorter gradient.
    assert weight(3.0) == 1 and weight(-3.0) == 0


# Three and more -------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 5), st.integers(1, 8), st.integers(0, 10_000), st.floats(0, 2))
def test_the_weights_of_several_against_slsqp(count: int, size: int, seed: int, together: float) -> None:
    gradients = random(count, size, seed=seed) + together * random(size, seed=seed + 1)
    gram = (gradients @ gradients.T).numpy()
    found = minimize(
        lambda w: w @ gram @ w,
        np.full(count, 1 / count),
        jac=lambda w: 2 * gram @ w,
        method="SLSQP",
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 300},
    )
    weights = min_norm_weights(gradients)
    assert float(weights.min()) >= 0 and float(weights.sum()) == pytest.approx(1)
    ours = float((weights @ gradients).square().sum())
    assert found.fun - 1e-8 <= ours <= found.fun + 1e-6 * np.diag(gram).max()


@pytest.mark.parametrize(
    ("gradients", "weights"),
    [
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [1 / 3, 1 / 3, 1 / 3]),
        ([[1.0, 0.0], [3.0, 1.0], [2.0, -4.0]], [1.0, 0.0, 0.0]),
        ([[0.0, 1.0], [5.0, 3.0], [1.0, 0.0]], [0.5, 0.0, 0.5]),
        ([[2.0, 0.0], [0.0, 1.0]], [0.2, 0.8]),
        ([[2.0, 0.0]], [1.0]),
        ([[0.0, 0.0]] * 3, [1.0, 0.0, 0.0]),
    ],
)
def test_the_weights_by_hand(gradients: list[list[float]], weights: list[float]) -> None:
    assert min_norm_weights(double(gradients)).tolist() == pytest.approx(weights, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 5), st.integers(0, 10_000))
def test_minus_the_shortest_of_several_descends_all_where_that_is_possible(count: int, seed: int) -> None:
    common = torch.nn.functional.normalize(random(6, seed=seed), dim=0)
    gradients = random(count, 6, seed=seed + 1)
    # Each gradient has a component of at least 1 along a common direction, so a common descent direction exists.
    gradients = gradients + (1 - gradients @ common).clamp(min=0)[:, None] * common
    combined = min_norm_weights(gradients) @ gradients
    assert float((gradients @ combined).min()) > 0


# The policy's gradients -----------------------------------------------------------------------------------------------


def some_policy() -> GaussianPolicy:
    policy = simple_policy(3, 2, hidden=(4,), mean_bound=1.1)
    with torch.no_grad():
        last_layer(policy).weight.mul_(50)
    return policy.double()


def test_policy_gradients_against_one_backward_pass_for_each() -> None:
    policy, inputs, raw, advantages = some_policy(), random(30, 3), random(30, 2, seed=1), random(3, 30, seed=2)
    gradients = policy_gradients(policy, inputs, raw, advantages)
    assert all(parameter.grad is None for parameter in policy.parameters())  # no gradients are left behind
    for k in range(3):
        policy.zero_grad()
        (policy.log_density(inputs, raw) * advantages[k]).mean().backward()  # type: ignore[no-untyped-call]
        expected = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
        assert torch.allclose(gradients[k], expected, rtol=1e-10)


def test_policy_gradients_against_finite_differences() -> None:
    policy, inputs, raw, advantages = some_policy(), random(30, 3), random(30, 2, seed=1), random(2, 30, seed=2)
    gradients = policy_gradients(policy, inputs, raw, advantages)
    numbers = torch.nn.utils.parameters_to_vector(policy.parameters()).detach()

    def objectives(at: Tensor) -> Tensor:
        torch.nn.utils.vector_to_parameters(at, policy.parameters())
        with torch.no_grad():
            return (advantages * policy.log_density(inputs, raw)).mean(1)

    for i in range(len(numbers)):
        aside = torch.zeros_like(numbers)
        aside[i] = 1e-5
        slope = (objectives(numbers + aside) - objectives(numbers - aside)) / 2e-5
        assert gradients[:, i].tolist() == pytest.approx(slope.tolist(), abs=1e-8)


def bandit(n: int) -> tuple[GaussianPolicy, Tensor, Tensor, Tensor]:
    """Return a bandit with C = (u - 1)² and ζ = -(u + 1)² for actions u ~ N(0.2, 0.5²), and both gradients."""
    policy = simple_policy(std=0.5).double()
    with torch.no_grad():
        last_layer(policy).bias.fill_(0.2)
    inputs, raw = torch.zeros(n, 1, dtype=torch.float64), 0.2 + 0.5 * random(n, 1)
    traces = by_hand((raw - 1).square(), zeta=-(raw + 1).square())
    advantages = torch.stack([Cost()(traces)[:, 0], Information(LeaveOneOut())(traces)[:, 0]])
    return policy, inputs, raw, policy_gradients(policy, inputs, raw, advantages - advantages.mean(1, keepdim=True))


def test_the_gradients_of_cost_and_information_are_those_of_their_expectations() -> None:
    """E[(u - m)²] = (μ - m)² + σ² has the slope 2(μ - m) in μ and 2σ² in log σ; for -ζ, m = -1."""
    policy, _, _, gradients = bandit(400_000)
    names = [name for name, _ in policy.named_parameters()]
    mean, log_std = gradients[:, names.index("network.0.bias")], gradients[:, names.index("log_std")]
    assert mean.tolist() == pytest.approx([2 * (0.2 - 1), 2 * (0.2 + 1)], rel=0.03)
    assert log_std.tolist() == pytest.approx([2 * 0.25, 2 * 0.25], rel=0.1)


def test_a_step_along_the_shortest_combination_costs_less_and_teaches_more() -> None:
    policy, inputs, raw, gradients = bandit(50_000)
    weights = min_norm_weights(gradients)
    step = -1e-3 * (weights @ gradients)
    with torch.no_grad():
        before = policy.log_density(inputs, raw)
        numbers = torch.nn.utils.parameters_to_vector(policy.parameters())
        torch.nn.utils.vector_to_parameters(numbers + step, policy.parameters())
        ratio = (policy.log_density(inputs, raw) - before).exp()[:, None]
    change = ratio - 1
    assert float((change * (raw - 1).square()).mean()) < 0  # the cost falls
    assert float((change * -(raw + 1).square()).mean()) > 0  # ζ rises


# Gradients of any length ----------------------------------------------------------------------------------------------


@given(gradient_pairs())
def test_comparable_weights_lead_along_the_bisector_whatever_the_lengths(pair: tuple[Tensor, Tensor]) -> None:
    first, second = pair
    units = [each / each.norm() for each in pair]
    assume(float((units[0] + units[1]).norm()) > 1e-3)
    weights = comparable_weights(torch.stack(pair))
    assert float(weights.sum()) == pytest.approx(1) and float(weights.min()) >= 0
    along = weights[0] * first + weights[1] * second
    direction = along / along.norm()
    assert torch.allclose(direction, (units[0] + units[1]) / (units[0] + units[1]).norm(), atol=1e-6)
    # Minus that direction descends both objectives, and both alike.
    assert float(direction @ units[0]) == pytest.approx(float(direction @ units[1]), abs=1e-6)
    assert float(direction @ units[0]) > 0


@pytest.mark.parametrize(
    ("gradients", "weights"),
    [
        ([[3.0, 0.0], [0.0, 1.0]], [0.25, 0.75]),  # the longer one counts less, so that both count alike
        ([[0.0, 0.0], [0.0, 1.0]], [0.0, 1.0]),
        ([[0.0, 2.0], [0.0, 0.0]], [1.0, 0.0]),
        ([[0.0, 0.0], [0.0, 0.0]], [0.5, 0.5]),
    ],
)
def test_comparable_weights_by_hand(gradients: list[list[float]], weights: list[float]) -> None:
    assert comparable_weights(double(gradients)).tolist() == pytest.approx(weights)
