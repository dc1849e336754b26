"""The latent model against Gaussians by hand, and its shortcuts against the plain way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal as TorchNormal
from torch.distributions import kl_divergence

from samba_rl.errors import UserError
from samba_rl.planet.latent import (
    LEAST_HEAD_STD,
    LEAST_STD,
    Belief,
    LatentModel,
    LatentSettings,
    Normal,
    Sequences,
    kl_normal,
    negative_log_normal,
)
from samba_rl.planet.networks import as_floats

SMALL = LatentSettings(deterministic=5, stochastic=3, hidden=6, free_nats=0.0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def a_model(settings: LatentSettings = SMALL, seed: int = 0, constraints: int = 1) -> LatentModel:
    return LatentModel(2, 1, constraints, settings, seeded(seed))


def sequences(count: int = 4, steps: int = 5, seed: int = 0, constraints: int = 1) -> Sequences:
    generator = seeded(seed)
    return Sequences(
        torch.randn(count, steps + 1, 2, generator=generator),
        torch.rand(count, steps, 1, generator=generator) * 2 - 1,
        torch.randn(count, steps, 1 + constraints, generator=generator),
        torch.ones(count, steps, dtype=torch.bool),
    )


# Gaussians ------------------------------------------------------------------------------------------------------------


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


# The evidence bound ---------------------------------------------------------------------------------------------------


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
        found = model.evidence(seen, seeded(1))
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
        assert float(model.evidence(nothing, seeded(0)).loss) == pytest.approx(float(exact), abs=0.01)
        model.shift = 0.3
        assert float(model.evidence(nothing, seeded(0)).loss) > float(exact) + 0.05


def test_steps_that_did_not_take_place_count_for_nothing() -> None:
    model, whole = a_model(), sequences()
    cut = whole._replace(active=whole.active.clone())
    cut.active[:, 3:] = False
    strange = cut._replace(observation=cut.observation.clone(), action=cut.action.clone(), outcome=cut.outcome.clone())
    strange.observation[:, 4:] = 1e3
    strange.outcome[:, 3:] = -1e3
    strange.action[:, 3:] = 0.9
    with torch.no_grad():
        one, other, longer = (torch.stack(model.evidence(each, seeded(3))) for each in (cut, strange, whole))
    assert torch.allclose(one, other)
    assert not torch.allclose(one, longer, rtol=1e-3)


def test_the_noise_of_heads_is_not_believed_below_a_floor() -> None:
    model, seen = a_model(), sequences()
    with torch.no_grad():
        for log_std in (model.observation_log_std, model.outcome_log_std):
            log_std.fill_(math.log(LEAST_HEAD_STD))
        at = torch.stack(model.evidence(seen, seeded(0)))
        for log_std in (model.observation_log_std, model.outcome_log_std):
            log_std.fill_(-50)
        assert torch.equal(torch.stack(model.evidence(seen, seeded(0))), at)
        assert float(model.prior(torch.zeros(1, 5)).std.min()) > LEAST_STD


@given(distance=st.integers(2, 8), seed=st.integers(0, 100))
@settings(max_examples=15, deadline=None)
def test_overshooting_against_one_start_at_a_time(distance: int, seed: int) -> None:
    model, seen = a_model(replace(SMALL, overshooting=distance, free_nats=0.1), seed), sequences(seed=seed)
    seen.active[0, 2:] = False
    plain = a_model(replace(SMALL, free_nats=0.1), seed)
    with torch.no_grad():
        found = float(model.evidence(seen, seeded(5)).loss - plain.evidence(seen, seeded(5)).loss)
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


# Looking ahead --------------------------------------------------------------------------------------------------------


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


def test_gradients_reach_every_parameter() -> None:
    model = a_model(replace(SMALL, overshooting=3))
    model.evidence(sequences(), seeded(0)).loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())


# Pictures -------------------------------------------------------------------------------------------------------------


def test_pictures_go_in_and_come_out() -> None:
    model = LatentModel(2, 1, 1, replace(SMALL, observation="pixels", channels=2), seeded(0))
    pictures = torch.randint(256, (3, 4, 3, 64, 64), dtype=torch.uint8, generator=seeded(0))
    seen = Sequences(pictures, torch.zeros(3, 3, 1), torch.zeros(3, 3, 2), torch.ones(3, 3, dtype=torch.bool))
    evidence = model.evidence(seen, seeded(0))
    # Pixels have a standard deviation of one.
    assert evidence.observation.item() > 0.5 * math.log(2 * math.pi) * 3 * 64 * 64
    evidence.loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert model.observation_log_std.grad is None
    expected, _ = model.open_loop(pictures[:, 0], torch.zeros(3, 2, 1))
    assert expected.shape == (3, 2, 3, 64, 64)
    assert as_floats(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-0.5, 0.5]


def test_the_generator_alone_decides_on_the_weights() -> None:
    for settings_ in (SMALL, replace(SMALL, observation="pixels", channels=2)):
        one, again, other = (LatentModel(2, 1, 1, settings_, seeded(seed)).state_dict() for seed in (0, 0, 1))
        assert all(torch.equal(one[name], again[name]) for name in one)
        assert not torch.equal(one["gru.weight_ih"], other["gru.weight_ih"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deterministic": 0}, "latent.deterministic = 0; it must be at least 1"),
        ({"overshooting": 0}, "latent.overshooting = 0; it must be at least 1"),
        ({"rate": 0.0}, "latent.rate = 0.0; it must be positive"),
        ({"free_nats": -1.0}, "latent.free_nats = -1.0; it must be at least zero"),
        ({"safety_weight": math.inf}, "latent.safety_weight = inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        LatentSettings(**changes)  # type: ignore[arg-type]
