"""The joint information of a trajectory, against brute force."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from samba_rl import SafePendulum, UniformPolicy, UserError
from samba_rl.models.gp import GPDynamics
from samba_rl.models.information import InformationGain
from samba_rl.models.kernel import kernel, scaled
from samba_rl.models.likelihood import FitSettings, Hyper
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelSource
from tests.models.test_gp import QUICK, TASK, queries, real
from tests.traces import seeded


@pytest.fixture(scope="module")
def model() -> GPDynamics:
    model = GPDynamics(TASK, GPSettings(fit=QUICK))
    model.fit(real(60))
    return model


def trajectories(count: int = 4, steps: int = 6) -> Tensor:
    return queries(count * steps).view(count, steps, -1)


def brute_force(model: GPDynamics, steps: Tensor, noise: Tensor) -> Tensor:
    """½ log det(I + C / s²) of one trajectory [T, ni], with C from a plain solve on all covariances."""
    posterior = model.posterior
    hyper = posterior.hyper
    assert isinstance(hyper, Hyper)
    total = torch.zeros((), dtype=torch.float64)
    old, new = scaled(posterior.inputs, hyper.lengthscales), scaled(model.normalised(steps), hyper.lengthscales)
    for i in range(len(hyper.noise)):
        a, b, signal = old[i : i + 1], new[i : i + 1], hyper.signal[i : i + 1]
        gram = kernel(a, a, signal)[0] + hyper.noise[i] * torch.eye(a.shape[1], dtype=a.dtype)
        cross = kernel(a, b, signal)[0]
        left = kernel(b, b, signal)[0] - cross.T @ torch.linalg.solve(gram, cross)
        total += 0.5 * torch.logdet(torch.eye(len(left), dtype=left.dtype) + left / noise[i])
    return total


@pytest.mark.parametrize("resolution", [0.03, 0.1, 1.0])
def test_the_steps_add_up_to_the_log_determinant(model: GPDynamics, resolution: float) -> None:
    noise = model.posterior.hyper.noise.clamp(min=resolution**2)
    at = trajectories()
    gained = InformationGain(resolution).along(model, at)
    assert gained.shape == (4, 6) and float(gained.min()) >= 0
    expected = [float(brute_force(model, one, noise)) for one in at]
    assert gained.sum(1).tolist() == pytest.approx(expected, rel=1e-6)
    # The chain rule: what the first t steps tell is the sum of their parts.
    for t in range(1, 6):
        assert float(gained[0, :t].sum()) == pytest.approx(float(brute_force(model, at[0, :t], noise)), rel=1e-6)


def test_the_first_step_tells_what_it_would_tell_by_itself(model: GPDynamics) -> None:
    zeta, at = InformationGain(), trajectories()
    prediction, alone = zeta.predict(model, at[:, 0])
    assert torch.allclose(zeta.along(model, at)[:, 0], alone, rtol=1e-6)
    assert torch.equal(prediction.mean, model.predict(at[:, 0]).mean)


def test_dwelling_teaches_less_and_less_and_covering_does_not(model: GPDynamics) -> None:
    far = model.normalised(queries(6))[None] + torch.arange(6)[None, :, None] * 100.0 + 100
    unscaled = far * model._rollout_inputs.scale + model._rollout_inputs.mean
    gained = InformationGain().along(model, torch.cat([unscaled, unscaled[:, :1].expand(1, 6, -1)]))
    covering, dwelling = gained
    assert covering.tolist() == pytest.approx([float(covering[0])] * 6, rel=1e-6)
    assert (dwelling[1:] < 0.2 * dwelling[0]).all() and (dwelling.diff() < 0).all()


def test_trajectories_are_measured_by_themselves_whatever_the_chunks(
    model: GPDynamics, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = trajectories(7)
    together = InformationGain().along(model, at)
    monkeypatch.setattr("samba_rl.models.information.chunk_rows", lambda *_: 13)
    assert torch.allclose(InformationGain().along(model, at), together, rtol=1e-9)
    assert torch.allclose(InformationGain().along(model, at[3:4]), together[3:4], rtol=1e-9)


@pytest.mark.parametrize("kind", ["sparse", "correlated"])
def test_other_kinds_of_model_agree_with_their_own_variance(kind: str) -> None:
    quick = FitSettings(iterations=5, points=40)
    settings = GPSettings(fit=quick, sparse_above=15, inducing=12)
    model = GPDynamics(TASK, GPSettings(fit=quick, outputs="correlated") if kind == "correlated" else settings)
    assert model.fit(real(40)).kind == kind
    at = trajectories()
    covariance = model.posterior.covariance(model.normalised(at.flatten(0, 1)).view(at.shape))
    variance = model.posterior.predict(model.normalised(at.flatten(0, 1))).variance
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    assert torch.allclose(diagonal, variance.T.view(diagonal.shape), rtol=1e-6, atol=1e-12)
    gained = InformationGain().along(model, at)
    assert torch.allclose(gained[:, 0], InformationGain().predict(model, at[:, 0])[1], rtol=1e-6)
    assert float(gained.min()) >= 0 and float(gained.max()) > 0.01


def test_imagined_trajectories_carry_it_up_to_their_end() -> None:
    early = dataclasses.replace(SafePendulum(), horizon=12)
    model = GPDynamics(early, GPSettings(fit=QUICK))
    model.fit(real(60))
    traces = ModelSource(model, InformationGain(), "functions")(UniformPolicy((-2.0,), (2.0,)), 30, seeded(0))
    assert traces.zeta is not None and traces.zeta.shape == (30, 12)
    expected = InformationGain().along(model, early.model_inputs(traces.x[:, :-1], traces.u))
    assert torch.allclose(traces.zeta.double(), (expected * traces.active).double(), rtol=1e-5)
    plain = ModelSource(model, None, "functions")(UniformPolicy((-2.0,), (2.0,)), 30, seeded(0))
    assert torch.equal(plain.x, traces.x)


def test_a_resolution_is_positive() -> None:
    with pytest.raises(UserError, match=r"resolution = 0\.0; it must be positive"):
        InformationGain(0.0)
