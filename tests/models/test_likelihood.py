import math
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import check_grad
from torch import Tensor

from samba_rl.models import likelihood
from samba_rl.models.kernel import factorise, kernel, scaled
from samba_rl.models.likelihood import (
    FitSettings,
    Hyper,
    _Objective,
    default_hyper,
    fit_hyper,
    negative_log_likelihood,
)


def smooth_data(n: int, seed: int = 0, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Make inputs [n, 3] and targets [n, 2] of smooth functions; the third input is irrelevant."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    y = torch.stack([x[:, 0].sin() + 0.5 * x[:, 1], (x[:, 0] * x[:, 1]).cos()], dim=1)
    y = y + noise * torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return x, (y - y.mean(0)) / y.std(0)


def theta(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.2, 5), min_size=5, max_size=5))
def test_likelihood_against_the_density(values: list[float]) -> None:
    """Compare with -log N(y; 0, K + σ²I) of PyTorch's multivariate normal, with the kernel written out."""
    x, y = smooth_data(12)
    at = theta(*values)
    value, _ = negative_log_likelihood(x, y[:, 0].contiguous(), at)
    lengths, signal, noise = torch.tensor(values[:3], dtype=torch.float64), values[3], values[4]
    distance = ((x[:, None] - x[None]) / lengths).square().sum(-1)
    covariance = signal * torch.exp(-0.5 * distance) + noise * torch.eye(12, dtype=torch.float64)
    density = torch.distributions.MultivariateNormal(torch.zeros(12, dtype=torch.float64), covariance)
    expected = -float(density.log_prob(y[:, 0]))  # type: ignore[no-untyped-call]
    assert value == pytest.approx(expected, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1.5), min_size=3, max_size=3), st.floats(-2, 2), st.floats(-4, 0))
def test_gradient_against_finite_differences(lengths: list[float], signal: float, noise: float) -> None:
    x, y = smooth_data(15)
    objective = _Objective(x, y[:, 1].contiguous(), FitSettings(max_snr=8.0))
    at = np.array([*lengths, signal, noise])
    error = check_grad(lambda t: objective(t)[0], lambda t: objective(t)[1], at, epsilon=1e-6)
    assert error < 1e-4 * (1 + float(np.abs(objective(at)[1]).max()))


def test_without_prior_and_penalty_the_objective_is_the_likelihood() -> None:
    x, y = smooth_data(15)
    plain = FitSettings(max_snr=math.inf, lengthscale_prior=(0.0, math.inf))
    at = np.array([0.5, 3.0, -1.0, 2.0, -9.0])
    value, gradient = negative_log_likelihood(x, y[:, 0].contiguous(), torch.from_numpy(at))
    found, slope = _Objective(x, y[:, 0].contiguous(), plain)(at)
    assert found == value / 15 and np.array_equal(slope, gradient / 15)
    assert _Objective(x, y[:, 0].contiguous(), FitSettings(max_snr=8.0))(at)[0] > found


def test_fit_recovers_the_hyper_parameters_of_the_data() -> None:
    """Fit targets drawn from a GP: the fit comes near its hyper-parameters, and is at least as likely as they are."""
    generator = torch.Generator().manual_seed(1)
    x = 3 * torch.rand(250, 2, generator=generator, dtype=torch.float64)
    truth = Hyper(torch.tensor([[0.5, 2.0]]).double(), torch.tensor([1.0]).double(), torch.tensor([0.01]).double())
    z = scaled(x, truth.lengthscales)
    factor, _ = factorise(kernel(z, z, truth.signal), truth.noise, truth.signal)
    y = (factor[0] @ torch.randn(250, 1, generator=generator, dtype=torch.float64)).contiguous()
    result = fit_hyper(x, y, default_hyper(2, 1), FitSettings())
    assert result.failed == ()
    assert result.hyper.lengthscales[0].tolist() == pytest.approx([0.5, 2.0], rel=0.25)
    assert float(result.hyper.noise) == pytest.approx(0.01, rel=0.3)
    at_truth, _ = negative_log_likelihood(x, y[:, 0], theta(0.5, 2.0, 1.0, 0.01))
    assert result.likelihood[0] >= -at_truth / 250 - 1e-3


def test_a_warm_start_is_faster_and_no_worse() -> None:
    x, y = smooth_data(150)
    cold = fit_hyper(x, y, default_hyper(3, 2), FitSettings())
    warm = fit_hyper(x, y, cold.hyper, FitSettings())
    assert warm.evaluations < cold.evaluations / 2
    assert all(w >= c - 1e-6 for w, c in zip(warm.likelihood, cold.likelihood, strict=True))


def test_hyper_parameters_stay_in_their_bounds() -> None:
    x, y = smooth_data(60, noise=0.0)
    y[:, 1] = 0.0  # constant
    bounds = FitSettings(lengthscale_bounds=(0.5, 3.0), noise_bounds=(1e-3, 1.0))
    hyper = fit_hyper(x, y, default_hyper(3, 2), bounds).hyper
    assert 0.5 <= float(hyper.lengthscales.min()) <= float(hyper.lengthscales.max()) <= 3.0 + 1e-9
    assert float(hyper.noise.min()) >= 1e-3 - 1e-12


def test_the_number_of_fitted_points_is_limited() -> None:
    x, y = smooth_data(200)
    few = fit_hyper(x, y, default_hyper(3, 2), FitSettings(points=50))
    chosen = torch.linspace(0, 199, 50).round().long()
    same = fit_hyper(x[chosen], y[chosen], default_hyper(3, 2), FitSettings(points=None))
    assert torch.equal(few.hyper.lengthscales, same.hyper.lengthscales)


def test_a_fit_that_fails_keeps_its_start_and_reports_why(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = smooth_data(30)
    good = fit_hyper(x, y, default_hyper(3, 2), FitSettings()).hyper
    real = likelihood.negative_log_likelihood

    def broken(inputs: Tensor, target: Tensor, at: Tensor) -> Any:
        if torch.equal(target, y[:, 1]):
            return math.nan, np.full(len(at), math.nan)
        return real(inputs, target, at)

    monkeypatch.setattr(likelihood, "negative_log_likelihood", broken)
    result = fit_hyper(x, y, good, FitSettings())
    assert len(result.failed) == 1 and result.failed[0].startswith("output 1: ")
    assert torch.allclose(result.hyper.lengthscales[1], good.lengthscales[1])
    assert torch.allclose(result.hyper.noise[1], good.noise[1])


def test_likelihood_matches_gpytorch() -> None:
    x, y = smooth_data(40)

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(x, y[:, 0], gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))

        def forward(self, inputs: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model = Model().double()
    model.covar_module.base_kernel.lengthscale = torch.tensor([0.7, 1.5, 3.0], dtype=torch.float64)
    model.covar_module.outputscale = 1.3
    model.likelihood.noise = 0.05
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    expected = float(objective(model(x), y[:, 0]).detach())
    value, _ = negative_log_likelihood(x, y[:, 0].contiguous(), theta(0.7, 1.5, 3.0, 1.3, 0.05))
    assert -value / 40 == pytest.approx(expected, rel=1e-6)
