"""Divergence and likelihood of Gaussians, by hand and against torch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.distributions import Normal as TorchNormal, kl_divergence

from samba_rl.planet.gaussian import Normal, kl_normal, negative_log_normal
from tests.planet.examples import seeded


def test_divergence_and_likelihood_by_hand() -> None:
    # KL(N(1, 2²) ‖ N(0, 1)) = ½ (4 + 1 - 1 - log 4) = 2 - log 2, twice over two dimensions
    p, q = Normal(torch.ones(2), torch.full((2,), 2.0)), Normal(torch.zeros(2), torch.ones(2))
    assert float(kl_normal(p, q)) == pytest.approx(2 * (2 - math.log(2)))
    assert float(kl_normal(q, q)) == 0
    # -log N(3; 0, 2²) = ½ 9/4 + log 2 + ½ log 2π
    found = negative_log_normal(torch.tensor(3.0), torch.tensor(math.log(2.0)))
    assert float(found) == pytest.approx(9 / 8 + math.log(2) + 0.5 * math.log(2 * math.pi))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_divergence_and_likelihood_against_torch(seed: int) -> None:
    generator = seeded(seed)
    means = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    stds = torch.rand(2, 4, 3, generator=generator, dtype=torch.float64) + 0.05
    ours = kl_normal(Normal(means[0], stds[0]), Normal(means[1], stds[1]))
    theirs = kl_divergence(TorchNormal(means[0], stds[0]), TorchNormal(means[1], stds[1])).sum(-1)
    assert torch.allclose(ours, theirs)
    error = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    assert torch.allclose(negative_log_normal(error, stds[0].log()), -TorchNormal(0.0, stds[0]).log_prob(error))  # type: ignore[no-untyped-call]
