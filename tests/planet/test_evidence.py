"""The evidence bound against Gaussians by hand and against the plain way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.distributions import Normal as TorchNormal

from samba_rl.planet.evidence import LEAST_HEAD_STD, negative_evidence
from samba_rl.planet.gaussian import Normal, kl_normal
from samba_rl.planet.latent import LEAST_STD, Belief, LatentModel
from samba_rl.planet.networks import as_floats
from samba_rl.planet.replay import Sequences
from tests.planet.examples import SMALL, a_model, seeded, sequences


class Held(LatentModel):  # type: ignore[misc]  # of a final class: the heads are held at values known by hand
    """Prior N(0, 1), posterior N(m, 0.5²) in every dimension, and heads that say zero."""

    m = 0.6

    def prior(self, h: Tensor) -> Normal:
        return Normal(torch.zeros(len(h), 3), torch.ones(len(h), 3))

    def posterior(self, h: Tensor, encoded: Tensor) -> Normal:
        return Normal(torch.full((len(h), 3), self.m), torch.full((len(h), 3), 0.5))

    def decode(self, belief: Belief) -> Tensor:
        return torch.zeros(*belief.h.shape[:-1], 2)

    def outcome(self, belief: Belief) -> Tensor:
        return torch.zeros(*belief.h.shape[:-1], 2)


@pytest.mark.parametrize("free", [0.0, 0.5, 4.0])
def test_the_bound_of_known_gaussians_by_hand(free: float) -> None:
    """Two sequences of two steps, the second of which breaks off after one: 5 observations and 3 outcomes in all."""
    model = Held(2, 1, 1, replace(SMALL, free_nats=free), seeded(0))
    with torch.no_grad():
        model.observation_log_std.copy_(torch.tensor([0.0, math.log(2.0)]))
        model.outcome_log_std.copy_(torch.tensor([math.log(0.5), 0.0]))
    seen = Sequences(
        torch.tensor([[[1.0, 2.0]] * 3] * 2),
        torch.zeros(2, 2, 1),
        torch.tensor([[[1.0, 3.0]] * 2] * 2),
        torch.tensor([[True, True], [True, False]]),
    )
    with torch.no_grad():
        found = negative_evidence(model, seen, seeded(1))
    constant = 0.5 * math.log(2 * math.pi)
    observation = (0.5 + constant) + (0.5 + math.log(2) + constant)
    cost, safety = 2 + math.log(0.5) + constant, 4.5 + constant
    kl = 3 * 0.5 * (0.25 + 0.36 - 1 - 2 * math.log(0.5))
    # There are five observations and three outcomes, and all is per observation.
    assert float(found.observation) == pytest.approx(observation)
    assert float(found.cost) == pytest.approx(cost * 3 / 5)
    assert float(found.safety) == pytest.approx(safety * 3 / 5)
    assert float(found.kl) == pytest.approx(kl)
    assert float(found.loss) == pytest.approx(observation + (cost + safety) * 3 / 5 + max(kl, free))


def test_the_bound_is_below_the_evidence_of_a_linear_gaussian_model() -> None:
    """s ~ N(0, 1), o = s + N(0, σ²): with the exact posterior the bound is the evidence, log N(o; 0, 1 + σ²)."""
    sigma = 0.5
    posterior_std = 1 / math.sqrt(1 + 1 / sigma**2)

    class Linear(LatentModel):  # type: ignore[misc]
        shift = 0.0

        def prior(self, h: Tensor) -> Normal:
            return Normal(torch.zeros(len(h), 1), torch.ones(len(h), 1))

        def encode(self, observation: Tensor) -> Tensor:
            return observation

        def posterior(self, h: Tensor, encoded: Tensor) -> Normal:
            mean = encoded / sigma**2 * posterior_std**2 + self.shift
            return Normal(mean, torch.full_like(mean, posterior_std))

        def decode(self, belief: Belief) -> Tensor:
            return belief.s

    model = Linear(1, 1, 1, replace(SMALL, stochastic=1), seeded(0))
    with torch.no_grad():
        model.observation_log_std.fill_(math.log(sigma))
    seen = torch.linspace(-2, 2, 50_000)[:, None, None]
    count = len(seen)
    nothing = Sequences(
        seen.expand(-1, 2, -1),
        torch.zeros(count, 1, 1),
        torch.zeros(count, 1, 2),
        torch.zeros(count, 1, dtype=torch.bool),
    )
    exact = -TorchNormal(0.0, math.sqrt(1 + sigma**2)).log_prob(seen).mean()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        assert float(negative_evidence(model, nothing, seeded(0)).loss) == pytest.approx(float(exact), abs=0.01)
        model.shift = 0.3
        assert float(negative_evidence(model, nothing, seeded(0)).loss) > float(exact) + 0.05


def test_steps_that_did_not_take_place_count_for_nothing() -> None:
    model, whole = a_model(), sequences()
    cut = whole._replace(active=whole.active.clone())
    cut.active[:, 3:] = False
    strange = cut._replace(observation=cut.observation.clone(), action=cut.action.clone(), outcome=cut.outcome.clone())
    strange.observation[:, 4:] = 1e3
    strange.outcome[:, 3:] = -1e3
    strange.action[:, 3:] = 0.9
    with torch.no_grad():
        one, other, longer = (torch.stack(negative_evidence(model, each, seeded(3))) for each in (cut, strange, whole))
    assert torch.allclose(one, other)
    assert not torch.allclose(one, longer, rtol=1e-3)


def test_the_noise_of_heads_is_not_believed_below_a_floor() -> None:
    model, seen = a_model(), sequences()
    with torch.no_grad():
        for log_std in (model.observation_log_std, model.outcome_log_std):
            log_std.fill_(math.log(LEAST_HEAD_STD))
        at = torch.stack(negative_evidence(model, seen, seeded(0)))
        for log_std in (model.observation_log_std, model.outcome_log_std):
            log_std.fill_(-50)
        assert torch.equal(torch.stack(negative_evidence(model, seen, seeded(0))), at)
        assert float(model.prior(torch.zeros(1, 5)).std.min()) > LEAST_STD


@given(distance=st.integers(2, 8), seed=st.integers(0, 100))
@settings(max_examples=15, deadline=None)
def test_overshooting_against_one_start_at_a_time(distance: int, seed: int) -> None:
    model, seen = a_model(replace(SMALL, overshooting=distance, free_nats=0.1), seed), sequences(seed=seed)
    seen.active[0, 2:] = False
    plain = a_model(replace(SMALL, free_nats=0.1), seed)
    with torch.no_grad():
        found = float(negative_evidence(model, seen, seeded(5)).loss - negative_evidence(plain, seen, seeded(5)).loss)
        encoded, noise = model.encode(seen.observation), torch.randn(6, 4, 3, generator=seeded(5))
        beliefs: list[Belief] = []
        h, posteriors = model.begin(4), []
        for t in range(6):
            if t:
                h = model(beliefs[-1], seen.action[:, t - 1])
            posteriors.append(model.posterior(h, encoded[:, t]))
            beliefs.append(Belief(h, posteriors[-1].sample(noise[t])))
        there = torch.cat([torch.ones(4, 1, dtype=torch.bool), seen.active], 1)
        by_distance: dict[int, float] = {}
        for start in range(6):
            belief = beliefs[start]
            for ahead in range(1, min(distance, 5 - start) + 1):
                h = model(belief, seen.action[:, start + ahead - 1])
                prior = model.prior(h)
                belief = Belief(h, prior.mean)
                kl = kl_normal(posteriors[start + ahead], prior).clamp(min=0.1)
                total = float(kl[there[:, start + ahead]].sum()) / int(there.sum())
                by_distance[ahead] = by_distance.get(ahead, 0.0) + total
    expected = [value for ahead, value in by_distance.items() if ahead > 1]
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-4)


def test_gradients_reach_every_parameter() -> None:
    model = a_model(replace(SMALL, overshooting=3))
    negative_evidence(model, sequences(), seeded(0)).loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())


def test_pictures_go_in_and_come_out() -> None:
    model = LatentModel(2, 1, 1, replace(SMALL, observation="pixels", channels=2), seeded(0))
    pictures = torch.randint(256, (3, 4, 3, 64, 64), dtype=torch.uint8, generator=seeded(0))
    seen = Sequences(pictures, torch.zeros(3, 3, 1), torch.zeros(3, 3, 2), torch.ones(3, 3, dtype=torch.bool))
    evidence = negative_evidence(model, seen, seeded(0))
    # Pixels have a standard deviation of one.
    assert evidence.observation.item() > 0.5 * math.log(2 * math.pi) * 3 * 64 * 64
    evidence.loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert model.observation_log_std.grad is None
    expected, _ = model.open_loop(pictures[:, 0], torch.zeros(3, 2, 1))
    assert expected.shape == (3, 2, 3, 64, 64)
    assert as_floats(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-0.5, 0.5]
