"""The latent model: its shortcuts against the plain way, its units, weights and settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from samba_rl.planet.latent import Belief, LatentModel
from tests.planet.examples import SMALL, a_model, seeded


@given(weight=st.sampled_from([0.0, 2.5]), constraints=st.integers(1, 2), seed=st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_imagined_costs_are_those_of_the_plain_steps(weight: float, constraints: int, seed: int) -> None:
    model = a_model(seed=seed, constraints=constraints)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=seeded(seed)))
        model.outcome_mean.copy_(torch.arange(1 + constraints) + 0.5)
        model.outcome_scale.copy_(torch.arange(1 + constraints) + 2.0)
        actions = torch.rand(2, 3, 4, 1, generator=seeded(seed)) * 2 - 1
        first = model.see(model.begin(2), torch.randn(2, 2, generator=seeded(seed)))
        found = model.imagine(first, actions, weight)
        for i in range(2):
            for j in range(3):
                belief, total = Belief(first.h[i : i + 1], first.s[i : i + 1]), 0.0
                for t in range(4):
                    h = model(belief, actions[i, j, t][None])
                    belief = Belief(h, model.prior(h).mean)
                    outcome = (model.outcome(belief) * model.outcome_scale + model.outcome_mean)[0]
                    total += float(outcome[0] + weight * outcome[1:].sum())
                assert float(found[i, j]) == pytest.approx(total, rel=1e-4, abs=1e-4)


def test_the_open_loop_is_in_the_units_of_the_task() -> None:
    model = a_model()
    with torch.no_grad():
        model.centre.copy_(torch.tensor([5.0, -3.0]))
        model.scale.copy_(torch.tensor([2.0, 4.0]))
        model.outcome_mean.fill_(7.0)
        observation, action = torch.tensor([[6.0, 1.0]]), torch.zeros(1, 3, 1)
        seen, outcome = model.open_loop(observation, action)
        belief = model.see(model.begin(1), observation)
        belief = Belief(belief.h, model.posterior(belief.h, model.encode(torch.tensor([[0.5, 1.0]]))).mean)
        h = model(belief, action[:, 0])
        first = Belief(h, model.prior(h).mean)
    assert seen.shape == (1, 3, 2) and outcome.shape == (1, 3, 2)
    assert torch.allclose(seen[0, 0], model.decode(first)[0] * model.scale + model.centre)
    assert torch.allclose(outcome[0, 0], model.outcome(first)[0] + 7)


def test_the_generator_alone_decides_on_the_weights() -> None:
    for settings_ in (SMALL, replace(SMALL, observation="pixels", channels=2)):
        one, again, other = (LatentModel(2, 1, 1, settings_, seeded(seed)).state_dict() for seed in (0, 0, 1))
        assert all(torch.equal(one[name], again[name]) for name in one)
        assert not torch.equal(one["gru.weight_ih"], other["gru.weight_ih"])
