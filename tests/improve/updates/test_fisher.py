"""The Fisher product against the Hessian of the divergence, and conjugate gradients against a direct solve."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.improve.updates.fisher import FisherProduct, conjugate_gradient, spread
from samba_rl.improve.updates.trust_region import flat, set_flat
from tests.improve.updates.steps import a_policy, hessian_of_divergence, steps
from tests.traces import seeded

# The Fisher matrix ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean_bound", [None, 1.1])
@pytest.mark.parametrize("hidden", [(), (4,), (5, 4)], ids=str)
def test_the_fisher_product_against_the_hessian_of_the_divergence(
    hidden: tuple[int, ...], mean_bound: float | None
) -> None:
    policy = a_policy(hidden=hidden, mean_bound=mean_bound).double()
    inputs = steps(a_policy(), n=20)[0].double()
    hessian = hessian_of_divergence(policy, inputs)
    product = FisherProduct(policy, inputs, damping=0.0)
    rows = torch.stack([product(row) for row in torch.eye(len(hessian), dtype=torch.float64)])
    assert torch.allclose(rows, hessian, atol=1e-10)
    assert float(torch.linalg.matrix_norm(hessian[2:, 2:])) > 1  # not only the standard deviations matter


def test_the_fisher_product_in_single_precision_with_damping() -> None:
    policy = a_policy()
    inputs = steps(policy)[0]
    vector = torch.randn(len(flat(policy)), generator=seeded(1), dtype=torch.float64)
    exact = FisherProduct(copy.deepcopy(policy).double(), inputs.double(), damping=0.0)(vector)
    product = FisherProduct(policy, inputs, damping=0.3)
    found = product(vector)
    assert found.dtype == torch.float64 and torch.allclose(found, exact + 0.3 * vector, rtol=1e-4, atol=1e-5)
    # It stays that of the policy at the time.
    set_flat(policy, flat(policy) + 0.1)
    assert torch.equal(product(vector), found)


def test_few_steps_stand_for_all_of_them() -> None:
    inputs = torch.arange(10.0)[:, None]
    assert spread(inputs, 5)[:, 0].tolist() == [0, 2, 4, 6, 8]
    assert spread(inputs, 3)[:, 0].tolist() == [0, 3, 6]
    assert spread(inputs, 10) is spread(inputs, 11) is spread(inputs, None) is inputs


# Conjugate gradients --------------------------------------------------------------------------------------------------


@given(size=st.integers(1, 8), seed=st.integers(0, 10_000), scale=st.floats(-4, 4))
@settings(max_examples=50, deadline=None)
def test_conjugate_gradients_against_a_direct_solve(size: int, seed: int, scale: float) -> None:
    root = torch.randn(size, size + 2, generator=seeded(seed), dtype=torch.float64)
    matrix = root @ root.T + 0.5 * torch.eye(size, dtype=torch.float64)
    b = 10**scale * torch.randn(size, generator=seeded(seed + 1), dtype=torch.float64)
    exact = torch.linalg.solve(matrix, b)
    found = conjugate_gradient(lambda v: matrix @ v, b, iterations=3 * size, tolerance=1e-20)
    assert torch.allclose(found, exact, rtol=0, atol=1e-7 * float(exact.norm()))
    # Cut short, xᵀAx still equals xᵀb.
    short = conjugate_gradient(lambda v: matrix @ v, b, iterations=max(1, size // 2))
    assert float(short @ matrix @ short) == pytest.approx(float(short @ b), rel=1e-6)


def test_conjugate_gradients_stop_once_they_are_there() -> None:
    calls = []

    def product(v: Tensor) -> Tensor:
        calls.append(v)
        return 2 * v

    assert conjugate_gradient(product, torch.tensor([3.0, 4.0]), 10).tolist() == [1.5, 2.0] and len(calls) == 1
    assert conjugate_gradient(product, torch.zeros(2), 10).tolist() == [0, 0] and len(calls) == 1
    assert conjugate_gradient(lambda v: v * math.nan, torch.ones(2), 10).isnan().all()
