"""Acting by hand: arrays and tensors in, actions of the same kind within their bounds out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from samba_rl import UserError
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from tests.traces import last_layer, seeded, simple_policy


def pushing(
    low: float = -2.0, high: float = 1.0, *, mean_bound: float | None = 1.1, weight: float = 1.0
) -> GaussianPolicy:
    """Make a policy of one observation without hidden layers, whose network is `weight` times the observation."""
    choices = PolicySettings(hidden=(), mean_bound=mean_bound)
    policy = GaussianPolicy([low], [high], torch.zeros(1), torch.ones(1), choices, seeded(0))
    with torch.no_grad():
        last_layer(policy).weight.fill_(weight)
    return policy


def test_the_action_is_the_squashed_mean_in_the_units_of_the_system() -> None:
    # Centre -0.5, half width 1.5; the network gives 0.4.
    expected = -0.5 + 1.5 * 1.1 * math.tanh(0.4 / 1.1)
    assert pushing().act([0.4]).tolist() == pytest.approx([expected], rel=1e-12)
    assert pushing(mean_bound=None).act([0.4]).tolist() == pytest.approx([-0.5 + 1.5 * 0.4], rel=1e-12)


def test_a_mean_beyond_the_range_is_held_at_its_bound() -> None:
    policy = pushing()
    assert float(policy.mean_action(torch.tensor([[9.0]]))) > 1.1
    assert policy.act([[9.0], [-9.0]]).tolist() == [[1.0], [-2.0]]


def test_arrays_lists_and_tensors_of_one_observation_or_a_batch_are_taken_as_they_come() -> None:
    policy = simple_policy(3, 2, hidden=(4,), mean_bound=1.1)
    rows = np.random.default_rng(0).normal(size=(5, 3))
    batch = policy.act(rows)
    assert isinstance(batch, np.ndarray) and batch.shape == (5, 2) and batch.dtype == np.float64
    one = policy.act(rows[2])
    assert one.shape == (2,) and one.tolist() == pytest.approx(batch[2].tolist(), rel=1e-12)
    assert policy.act(rows[2].tolist()).tolist() == one.tolist()
    assert policy.act(np.zeros(3, dtype=np.int64)).dtype == np.float64
    single = policy.act(torch.tensor(rows[2], dtype=torch.float32))
    assert isinstance(single, torch.Tensor) and single.dtype == torch.float32 and single.shape == (2,)
    assert single.tolist() == pytest.approx(batch[2].tolist(), abs=1e-6)
    assert policy.act(torch.tensor(rows)).dtype == torch.float64 and not policy.act(torch.tensor(rows)).requires_grad


def test_it_agrees_with_the_policy_of_training_up_to_the_precision_of_that() -> None:
    policy = simple_policy(3, 2, hidden=(16, 16), mean_bound=1.1)
    rows = torch.randn(100, 3, generator=seeded(1), dtype=torch.float64)
    assert float((policy.act(rows) - policy.mean_action(rows).clamp(-1, 1)).abs().max()) < 1e-6


def test_it_is_the_same_at_every_call_unless_noise_is_asked_for() -> None:
    policy = pushing()
    assert policy.act([0.3]) == policy.act([0.3])
    rows = np.zeros((20_000, 1))
    noisy = policy.act(rows, seeded(3))
    assert noisy.tolist() == policy.act(rows, seeded(3)).tolist()
    # Noise of 0.6 half widths, clipped at one half width.
    assert noisy.min() == -2.0 and noisy.max() == 1.0
    inside = noisy[(noisy > -2) & (noisy < 1)]
    assert np.quantile(inside, 0.5) == pytest.approx(-0.5, abs=0.03)
    assert float((noisy == 1).mean()) == pytest.approx(0.5 * math.erfc(1 / 0.6 / math.sqrt(2)), abs=0.006)


@settings(max_examples=200, deadline=None)
@given(
    st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.sampled_from([torch.float32, torch.float64]), st.floats(-1e9, 1e9)
)
def test_no_observation_leads_out_of_the_bounds_whatever_the_type(
    low: float, width: float, dtype: torch.dtype, observation: float
) -> None:
    policy = pushing(low, low + width, mean_bound=None)
    action = float(policy.act(torch.tensor([observation], dtype=dtype)))
    assert low <= action <= low + width
    assert low <= float(policy.act([observation])[0]) <= low + width


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([1.0, 2.0], r"has shape \[2\]; give one of \[1\] or a batch of \[B, 1\]"),
        ([[[1.0]]], r"has shape \[1, 1, 1\]"),
        (1.0, r"has shape \[\]"),
        ([math.nan], "component 0 of the observation is not finite"),
        ([[0.0], [math.inf]], "component 0 of the observation is not finite"),
        (["fast"], "not an array of numbers"),
        ([[1.0], [1.0, 2.0]], "not an array of numbers"),
    ],
)
def test_what_is_no_observation_is_explained(wrong: list[float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        pushing().act(wrong)


def test_the_bounds_are_not_part_of_a_policys_file() -> None:
    assert {"low", "high"}.isdisjoint(pushing().state_dict())
