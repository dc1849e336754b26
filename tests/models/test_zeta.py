import math

import pytest
import torch

from samba_rl import UserError
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.gp import GPDynamics
from samba_rl.models.information import InformationGain
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.settings import GPSettings
from samba_rl.models.zeta import ZETAS, Bootstrap, Entropy, LeaveOneOut, Zeta, symmetric_kl
from tests.models.test_gp import QUICK, TASK, queries, real


@pytest.fixture(scope="module")
def model() -> GPDynamics:
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    model.fit(real(60))
    return model


def far() -> torch.Tensor:
    return queries(30) + 1e4


def measured(zeta: Zeta, model: GPDynamics, at: torch.Tensor) -> torch.Tensor:
    return zeta.predict(model, at)[1]


def test_loo_is_that_of_the_posterior(model: GPDynamics) -> None:
    expected = model.predict(queries(20), loo=True).zeta
    assert expected is not None and torch.equal(measured(LeaveOneOut(), model, queries(20)), expected)


@pytest.mark.parametrize("name", ZETAS)
def test_the_prediction_comes_along(name: str, model: GPDynamics) -> None:
    prediction, zeta = ZETAS[name].predict(model, queries(20))
    expected = model.predict(queries(20))
    assert torch.equal(prediction.mean, expected.mean) and torch.equal(prediction.variance, expected.variance)
    assert zeta.shape == (20,)


def test_equal_values_are_equal() -> None:
    expected = [
        LeaveOneOut(),
        LeaveOneOut(noise=0.01),
        Bootstrap(partitions=5, seed=0),
        Entropy(),
        InformationGain(0.1),
    ]
    assert list(ZETAS.values()) == expected
    assert Bootstrap(seed=1) != Bootstrap() and len({*ZETAS.values(), Bootstrap()}) == 5
    with pytest.raises(UserError, match="partitions = 0; it must be at least 1"):
        Bootstrap(partitions=0)


def test_bootstrap_against_two_explicit_gps(model: GPDynamics) -> None:
    """Condition both halves of each split by hand, and take the divergence from PyTorch."""
    generator = torch.Generator().manual_seed(3)
    z, posterior = model.normalised(queries(15)), model.posterior
    each = []
    for _ in range(3):
        order = torch.randperm(60, generator=generator)
        answers = [
            ExactPosterior.condition(posterior.inputs[half], posterior.targets[half], posterior.hyper).predict(z)  # type: ignore[arg-type]
            for half in (order[:30], order[30:])
        ]
        a, b = (torch.distributions.Normal(answer.mean, answer.variance.sqrt()) for answer in answers)
        each.append(0.5 * (torch.distributions.kl_divergence(a, b) + torch.distributions.kl_divergence(b, a)).sum(-1))
    three = measured(Bootstrap(partitions=3, seed=3), model, queries(15))
    assert torch.allclose(three, torch.stack(each).mean(0), rtol=1e-8)
    assert torch.allclose(measured(Bootstrap(partitions=1, seed=3), model, queries(15)), each[0], rtol=1e-8)
    assert torch.equal(three, measured(Bootstrap(partitions=3, seed=3), model, queries(15)))


def test_loo_and_bootstrap_vanish_far_from_the_data_and_entropy_does_not(model: GPDynamics) -> None:
    near = queries(30)
    for zeta in (LeaveOneOut(), Bootstrap()):
        assert float(measured(zeta, model, near).min()) >= 0 and float(measured(zeta, model, near).mean()) > 1e-4
        assert measured(zeta, model, far()).tolist() == pytest.approx([0.0] * 30, abs=1e-12)
    assert float(measured(Entropy(), model, far()).min()) > float(measured(Entropy(), model, near).max())


def test_entropy_by_hand(model: GPDynamics) -> None:
    hyper = model.posterior.hyper
    prior = hyper.signal + hyper.noise  # type: ignore[union-attr]
    expected = float(0.5 * (2 * math.pi * math.e * prior).log().sum())
    assert measured(Entropy(), model, far()).tolist() == pytest.approx([expected] * 30, rel=1e-9)


def test_symmetric_kl_by_hand() -> None:
    one = torch.ones(1)
    assert float(symmetric_kl(0 * one, one, 0 * one, one)) == 0
    assert float(symmetric_kl(0 * one, one, 2 * one, one)) == pytest.approx(2.0)  # ½ Δ²/σ² each way
    expected = 0.5 * (0.5 * (1 / 4 - 1 + math.log(4)) + 0.5 * (4 - 1 - math.log(4)))
    assert float(symmetric_kl(0 * one, one, 0 * one, 4 * one)) == pytest.approx(expected)


@pytest.mark.parametrize("least", [0.0, 1e-2, 0.5])
def test_loo_of_the_observation_against_explicit_gps(model: GPDynamics, least: float) -> None:
    """Condition a posterior without each point in turn, and take the divergence from PyTorch."""
    posterior, z = model.posterior, model.normalised(queries(15))
    noise = posterior.hyper.noise.clamp(min=least) if least else 0 * posterior.hyper.noise

    def at(chosen: torch.Tensor) -> torch.distributions.Normal:
        each = ExactPosterior.condition(posterior.inputs[chosen], posterior.targets[chosen], posterior.hyper)  # type: ignore[arg-type]
        answer = each.predict(z)
        return torch.distributions.Normal(answer.mean, (answer.variance + noise).sqrt())

    everything = torch.arange(len(posterior))
    whole = at(everything)
    divergences = [torch.distributions.kl_divergence(at(everything[everything != i]), whole) for i in everything]
    expected = torch.stack(divergences).mean(0).sum(-1)
    assert torch.allclose(measured(LeaveOneOut(noise=least), model, queries(15)), expected, rtol=1e-4, atol=1e-9)


def test_new_data_are_split_anew() -> None:
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    model.fit(real(40))
    before = measured(Bootstrap(), model, queries(10))
    model.add(real(10, seed=4))
    assert not torch.allclose(before, measured(Bootstrap(), model, queries(10)))
    lonely = GPDynamics(TASK, GPSettings(fit=QUICK))
    lonely.fit(real(1))
    with pytest.raises(UserError, match="has 1 points; splitting the data needs at least 2"):
        Bootstrap().predict(lonely, queries(3))


@pytest.mark.parametrize("kind", ["sparse", "correlated"])
def test_every_kind_of_model_measures_all_three(kind: str) -> None:
    quick = FitSettings(iterations=5, points=40)
    settings = GPSettings(fit=quick, sparse_above=15, inducing=12)
    model = GPDynamics(TASK, GPSettings(fit=quick, outputs="correlated") if kind == "correlated" else settings)
    assert model.fit(real(40)).kind == kind
    for zeta in (LeaveOneOut(), LeaveOneOut(noise=1e-2), Bootstrap()):
        near, away = measured(zeta, model, queries(20)), measured(zeta, model, far())
        assert float(near.min()) >= 0 and float(near.mean()) > 10 * float(away.abs().max())
    entropy = Entropy()
    assert float(measured(entropy, model, far()).min()) > float(measured(entropy, model, queries(20)).max()) - 1e-9
