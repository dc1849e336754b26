"""The correlated GP against GPyTorch, independent GPs and brute-force refits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models import correlated, correlated_fit, marginals
from samba_rl.models.correlated import CorrelatedHyper, CorrelatedPosterior
from samba_rl.models.correlated_fit import default_correlated_hyper, fit_correlated
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.likelihood import FitSettings, Hyper, default_hyper, fit_hyper
from samba_rl.models.marginals import Marginals

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch

Q, D, NI = 2, 3, 2


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: the matrices are so small that threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_hyper(seed: int = 0, noise: float = 0.05) -> CorrelatedHyper:
    root = random(Q, D, D, seed=seed)
    lengthscales = 1 + 0.5 * random(Q, NI, seed=seed + 1).tanh()
    return CorrelatedHyper(lengthscales, root @ root.mT, noise * torch.arange(1, D + 1).double())


def some_data(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    return random(n, NI, seed=seed + 100), random(n, D, seed=seed + 200)


def gram(inputs: Tensor, others: Tensor, hyper: CorrelatedHyper) -> Tensor:
    """Compute the covariance [ND, MD] from its definition."""
    result = torch.zeros(len(inputs), D, len(others), D, dtype=torch.float64)
    for lengths, mixing in zip(hyper.lengthscales, hyper.mixing, strict=True):
        k = (-0.5 * ((inputs[:, None] - others) / lengths).square().sum(-1)).exp()
        result += k[:, None, :, None] * mixing[None, :, None, :]
    return result.reshape(len(inputs) * D, -1)


def log_likelihood(inputs: Tensor, targets: Tensor, hyper: CorrelatedHyper) -> float:
    covariance = gram(inputs, inputs, hyper) + torch.diag(hyper.noise.repeat(len(inputs)))
    normal = torch.distributions.MultivariateNormal(torch.zeros(targets.numel()).double(), covariance)
    return float(normal.log_prob(targets.reshape(-1))) / len(inputs)  # type: ignore[no-untyped-call]


def known_lcm(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Make data of three outputs: the first two are nearly the same function, the third is another."""
    base = torch.tensor([[1.0, 1.0, 0.0]]).double()
    mixing = torch.stack([base.T @ base, torch.diag(torch.tensor([1e-3, 1e-3, 1.0]).double())])
    hyper = CorrelatedHyper(torch.tensor([[0.8, 0.8], [2.0, 2.0]]).double(), mixing, torch.full((D,), 0.02).double())
    inputs = random(n, NI, seed=seed)
    covariance = gram(inputs, inputs, hyper) + torch.diag(hyper.noise.repeat(n))
    return inputs, (torch.linalg.cholesky(covariance) @ random(n * D, seed=seed + 1)).view(n, D)


def without(posterior: CorrelatedPosterior, i: int) -> CorrelatedPosterior:
    keep = torch.arange(len(posterior)) != i
    return CorrelatedPosterior.condition(posterior.inputs[keep], posterior.targets[keep], posterior.hyper)


def close(a: CorrelatedPosterior, b: CorrelatedPosterior, queries: Tensor, tolerance: float) -> None:
    for x, y in zip(a.predict(queries, loo=True), b.predict(queries, loo=True), strict=True):
        assert x is not None and y is not None
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


def test_mean_and_variance_match_gpytorch() -> None:
    hyper, (inputs, targets), queries = some_hyper(), some_data(20), random(7, NI, seed=5)

    class Reference(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(D, has_global_noise=False)
            super().__init__(inputs, targets, likelihood)
            bases = [gpytorch.kernels.RBFKernel(ard_num_dims=NI) for _ in range(Q)]
            self.kernel = gpytorch.kernels.LCMKernel(bases, num_tasks=D, rank=D)
            self.double()
            for q, part in enumerate(self.kernel.covar_module_list):
                part.data_covar_module.lengthscale = hyper.lengthscales[q]
                part.task_covar_module.var = torch.full((D,), 1e-10).double()
                part.task_covar_module.initialize(covar_factor=torch.linalg.cholesky(hyper.mixing[q]))
            likelihood.task_noises = hyper.noise

        def forward(self, x: Tensor) -> Any:
            mean = torch.zeros(len(x), D, dtype=torch.float64)
            return gpytorch.distributions.MultitaskMultivariateNormal(mean, self.kernel(x))

    reference = Reference().eval()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference(queries)
        mean, variance = expected.mean, expected.variance
    found = CorrelatedPosterior.condition(inputs, targets, hyper).predict(queries)
    torch.testing.assert_close(found.mean, mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance, variance, rtol=1e-6, atol=1e-6)
    assert found.zeta is None


def test_diagonal_mixing_gives_independent_gps() -> None:
    inputs, targets = some_data(25)
    lengthscales, signal = 1 + 0.3 * random(D, NI, seed=8).tanh(), torch.tensor([0.5, 1.0, 2.0]).double()
    noise = torch.tensor([0.01, 0.1, 0.03]).double()
    mixing = torch.diag_embed(torch.diag(signal))
    queries = torch.cat([random(9, NI, seed=3), inputs[:3]])
    one = CorrelatedPosterior.condition(inputs, targets, CorrelatedHyper(lengthscales, mixing, noise))
    other = ExactPosterior.condition(inputs, targets, Hyper(lengthscales, signal, noise))
    for x, y in zip(one.predict(queries, loo=True), other.predict(queries, loo=True), strict=True):
        assert x is not None and y is not None
        torch.testing.assert_close(x, y, rtol=1e-8, atol=1e-8)


def test_leaving_a_point_out_matches_a_refit_without_it() -> None:
    posterior = CorrelatedPosterior.condition(*some_data(8), some_hyper())
    queries = torch.cat([random(4, NI, seed=3), posterior.inputs[:2]])
    whole = posterior.predict(queries, loo=True)
    v = (gram(queries, posterior.inputs, posterior.hyper) @ posterior.inverse).view(len(queries), D, -1, D)
    zeta = torch.zeros(len(queries)).double()
    for i in range(len(posterior)):
        refit = without(posterior, i).predict(queries)
        parts = v[:, :, i] @ posterior.leave[i]
        torch.testing.assert_close(refit.mean - whole.mean, -parts[..., D], rtol=1e-8, atol=1e-8)
        growth = parts[..., :D].square().sum(-1)
        torch.testing.assert_close(refit.variance - whole.variance, growth, rtol=1e-8, atol=1e-8)
        before = torch.distributions.Normal(refit.mean, refit.variance.sqrt())
        after = torch.distributions.Normal(whole.mean, whole.variance.sqrt())
        zeta += torch.distributions.kl_divergence(before, after).sum(1) / len(posterior)
    assert whole.zeta is not None
    torch.testing.assert_close(whole.zeta, zeta, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("jitter", [0.0, 1e-4])
def test_extending_equals_conditioning_on_all_points(jitter: float) -> None:
    inputs, targets = some_data(20)
    first = CorrelatedPosterior.condition(inputs[:12], targets[:12], some_hyper())
    if jitter:
        # As if the first points had needed jitter: it is part of their matrix, and so of everything that is added.
        level = float(first.hyper.prior.amax())
        noisier = replace(some_hyper(), noise=some_hyper().noise + jitter * level)
        first = replace(CorrelatedPosterior.condition(inputs[:12], targets[:12], noisier), hyper=first.hyper)
        first = replace(first, jitter=jitter)
        whole = CorrelatedPosterior.condition(inputs, targets, noisier)
    else:
        whole = CorrelatedPosterior.condition(inputs, targets, first.hyper)
    grown = first.extend(inputs[12:19], targets[12:19]).extend(inputs[19:], targets[19:])
    assert len(grown) == 20 and grown.jitter == jitter
    torch.testing.assert_close(grown.inverse, whole.inverse, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(grown.targets, targets)
    close(grown, whole, random(5, NI, seed=4), 1e-8)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior, queries = CorrelatedPosterior.condition(*some_data(6), some_hyper()), random(40, NI, seed=3)
    whole = posterior.predict(queries, loo=True)
    plain, seen = CorrelatedPosterior._predict, []

    def spy(self: CorrelatedPosterior, block: Tensor, *, loo: bool, blur: float) -> Marginals:
        seen.append(len(block))
        return plain(self, block, loo=loo, blur=blur)

    monkeypatch.setattr(marginals, "CHUNK", 17 * 6 * D * D)
    monkeypatch.setattr(CorrelatedPosterior, "_predict", spy)
    parts = posterior.predict(queries, loo=True)
    assert seen == [17, 17, 6]
    for x, y in zip(parts, whole, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)
    assert posterior.predict(queries).zeta is None


def test_predicting_never_waits_for_the_device() -> None:
    """Tensors without data fail wherever a value would be read."""
    posterior = CorrelatedPosterior.condition(*some_data(5), some_hyper())
    tensors = {f.name: getattr(posterior, f.name) for f in fields(posterior)}
    moved: dict[str, Any] = {name: value.to("meta") for name, value in tensors.items() if isinstance(value, Tensor)}
    hyper = CorrelatedHyper(*(getattr(posterior.hyper, f.name).to("meta") for f in fields(CorrelatedHyper)))
    found = replace(posterior, hyper=hyper, **moved).predict(random(4, NI).to("meta"), loo=True)
    assert found.mean.shape == found.variance.shape == (4, D)
    assert found.zeta is not None and found.zeta.shape == (4,)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(1, 8), scale=st.floats(0.0, 50.0))
def test_zeta_is_never_negative(seed: int, n: int, scale: float) -> None:
    posterior = CorrelatedPosterior.condition(*some_data(n, seed), some_hyper(seed))
    found = posterior.predict(scale * random(5, NI, seed=seed), loo=True)
    assert found.zeta is not None
    assert (found.zeta >= 0).all() and (found.variance > 0).all()
    assert torch.isfinite(found.zeta).all()


def test_far_from_the_data_it_is_the_prior() -> None:
    hyper = some_hyper()
    posterior = CorrelatedPosterior.condition(*some_data(10), hyper)
    found = posterior.predict(torch.tensor([[0.0, 0.0], [50.0, 50.0], [1e30, -1e30]]).double(), loo=True)
    assert found.zeta is not None
    assert found.zeta[0] > 1e-3 and found.zeta[1] < 1e-12 and found.zeta[2] < 1e-12
    torch.testing.assert_close(found.mean[1:], torch.zeros(2, D).double())
    torch.testing.assert_close(found.variance[2], hyper.mixing.sum(0).diagonal())


def test_one_point() -> None:
    hyper, (inputs, targets), queries = some_hyper(), some_data(1), random(3, NI, seed=3)
    found = CorrelatedPosterior.condition(inputs, targets, hyper).predict(queries, loo=True)
    cross = gram(queries, inputs, hyper)
    inverse = torch.linalg.inv(gram(inputs, inputs, hyper) + torch.diag(hyper.noise))
    mean = (cross @ inverse @ targets[0]).view(3, D)
    prior = hyper.mixing.sum(0).diagonal()
    variance = prior - (cross @ inverse * cross).sum(-1).view(3, D)
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.variance, variance)
    # Without its one point the posterior is the prior.
    zeta = 0.5 * (prior / variance - 1 + mean.square() / variance - (prior / variance).log())
    torch.testing.assert_close(found.zeta, zeta.sum(1))


def test_duplicates_and_jitter() -> None:
    inputs, targets = some_data(4)
    twice, both = inputs.repeat(5, 1), targets.repeat(5, 1)
    posterior = CorrelatedPosterior.condition(twice, both, some_hyper(noise=0.0))
    assert posterior.jitter > 0
    found = posterior.predict(inputs, loo=True)
    torch.testing.assert_close(found.mean, targets, rtol=1e-3, atol=1e-3)
    assert found.zeta is not None and torch.isfinite(found.zeta).all()
    with pytest.raises(UserError, match="not finite"):
        CorrelatedPosterior.condition(twice * math.nan, both, some_hyper())


def test_float32_is_near_float64() -> None:
    posterior, queries = CorrelatedPosterior.condition(*some_data(20), some_hyper(noise=0.3)), random(6, NI, seed=3)
    assert posterior.cast(torch.float64) is posterior
    exact = posterior.predict(queries, loo=True)
    single = posterior.cast(torch.float32)
    direct = CorrelatedPosterior.condition(posterior.inputs.float(), posterior.targets.float(), posterior.hyper)
    for other in (single, direct, direct.cast(torch.float32)):
        for x, y in zip(other.predict(queries.float(), loo=True), exact, strict=True):
            assert x is not None and y is not None and x.dtype == torch.float32
            torch.testing.assert_close(x.double(), y, rtol=5e-3, atol=1e-3)


def test_blocks_that_rounding_made_indefinite_stay_finite() -> None:
    inverse = torch.tensor([[1.0, 1.0], [1.0, 1.0 - 1e-6]])
    assert torch.linalg.eigvalsh(inverse)[0] < 0
    assert torch.isfinite(correlated._leave(inverse, torch.ones(2), 1)).all()


def test_fit_improves_and_reports_the_marginal_likelihood() -> None:
    inputs, targets = known_lcm(30)
    start = default_correlated_hyper(NI, D, Q)
    short = FitSettings(iterations=8)
    state = torch.random.get_rng_state()
    fit = fit_correlated(inputs, targets, None, short, latent=Q)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert fit.failed == () and fit.seconds > 0 and fit.evaluations > 8
    assert fit.hyper.lengthscales.shape == (Q, NI) and fit.hyper.mixing.shape == (Q, D, D)
    assert fit.likelihood[0] == pytest.approx(log_likelihood(inputs, targets, fit.hyper), abs=1e-6)
    assert fit.likelihood[0] > log_likelihood(inputs, targets, start) + 0.1
    assert (torch.linalg.eigvalsh(fit.hyper.mixing) > 0).all()
    again = fit_correlated(inputs, targets, fit.hyper, short)
    assert again.failed == () and again.likelihood[0] >= fit.likelihood[0] - 1e-6
    torch.manual_seed(1)
    same = fit_correlated(inputs.float(), targets.float(), None, short, latent=Q)
    torch.testing.assert_close(same.hyper.mixing, fit.hyper.mixing, rtol=1e-2, atol=1e-2)
    assert same.hyper.mixing.dtype == torch.float64


def test_warm_start_stays_at_the_optimum() -> None:
    inputs, targets = known_lcm(20)
    fit = fit_correlated(inputs, targets, None, FitSettings())
    stay = fit_correlated(inputs, targets, fit.hyper, FitSettings(iterations=0))
    assert stay.likelihood[0] >= fit.likelihood[0] - 1e-4
    torch.testing.assert_close(stay.hyper.lengthscales, fit.hyper.lengthscales, rtol=1e-1, atol=1e-2)


def test_correlation_is_found_and_helps() -> None:
    inputs, targets = known_lcm(110, seed=10)
    seen, rest = slice(0, 30), slice(30, None)
    fit = fit_correlated(inputs[seen], targets[seen], None, FitSettings())
    total = fit.hyper.mixing.sum(0)
    deviation = total.diagonal().sqrt()
    correlation = total / deviation / deviation[:, None]
    assert correlation[0, 1] > 0.9
    single = fit_hyper(inputs[seen], targets[seen], default_hyper(NI, D), FitSettings()).hyper
    alone = ExactPosterior.condition(inputs[seen], targets[seen], single).predict(inputs[rest])
    joint = CorrelatedPosterior.condition(inputs[seen], targets[seen], fit.hyper).predict(inputs[rest])

    def score(mean: Tensor, variance: Tensor) -> float:
        """Return the log density of the held-out points, without the constant."""
        return float(-0.5 * ((targets[rest] - mean).square() / variance + variance.log()).sum(1).mean())

    together = score(joint.mean, joint.variance + fit.hyper.noise)
    assert together > score(alone.mean, alone.variance + single.noise)


def test_fit_stays_inside_the_bounds() -> None:
    inputs, targets = known_lcm(15)
    narrow = FitSettings(iterations=10, lengthscale_bounds=(1.5, 1.7), noise_bounds=(0.2, 0.3))
    fit = fit_correlated(inputs, targets, default_correlated_hyper(NI, D, Q), narrow)
    slack = 1e-9
    assert fit.failed == ()
    assert (fit.hyper.lengthscales >= 1.5 - slack).all() and (fit.hyper.lengthscales <= 1.7 + slack).all()
    assert (fit.hyper.noise >= 0.2 - slack).all() and (fit.hyper.noise <= 0.3 + slack).all()


@pytest.mark.parametrize("by", ["settings", "numbers"])
def test_fit_uses_evenly_spread_points(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = known_lcm(21)
    quick = FitSettings(iterations=2, points=11 if by == "settings" else None)
    if by == "numbers":
        monkeypatch.setattr(correlated_fit, "FIT_NUMBERS", 11 * D + 2)
    fit = fit_correlated(inputs, targets, None, quick)
    assert fit.likelihood[0] == pytest.approx(log_likelihood(inputs[::2], targets[::2], fit.hyper), abs=1e-6)


@pytest.mark.parametrize("how", ["not finite", "worse", "raises"])
def test_a_fit_that_diverges_keeps_its_start(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = known_lcm(10)
    start = some_hyper(noise=0.01)

    def minimize(objective: Any, theta: Any, **_: Any) -> Any:
        if how == "raises":
            raise RuntimeError("no Cholesky factor")
        fun = objective(theta)[0]
        if how == "not finite":
            return SimpleNamespace(x=theta + np.nan, fun=fun - 1.0)
        return SimpleNamespace(x=theta + 0.1, fun=fun + 1.0)

    monkeypatch.setattr(scipy.optimize, "minimize", minimize)
    fit = fit_correlated(inputs, targets, start, FitSettings())
    assert ("no Cholesky factor" if how == "raises" else "objective went from") in fit.failed[0]
    for f in fields(CorrelatedHyper):
        torch.testing.assert_close(getattr(fit.hyper, f.name), getattr(start, f.name), rtol=0, atol=0)
    assert fit.likelihood[0] == pytest.approx(log_likelihood(inputs, targets, start), abs=1e-4)


def test_a_fit_to_data_that_are_not_finite_keeps_its_start() -> None:
    inputs, targets = known_lcm(10)
    fit = fit_correlated(inputs, targets * math.nan, None, FitSettings())
    assert fit.failed and fit.likelihood == (-math.inf,)
    torch.testing.assert_close(fit.hyper.mixing, default_correlated_hyper(NI, D, 2).mixing)


def test_a_step_to_a_singular_matrix_does_not_end_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = known_lcm(15)
    plain, calls = correlated_fit._Objective.likelihood, []

    def brittle(self: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("no Cholesky factor")
        return plain(self)

    monkeypatch.setattr(correlated_fit._Objective, "likelihood", brittle)
    fit = fit_correlated(inputs, targets, None, FitSettings(iterations=5))
    assert len(calls) > 5 and fit.failed == ()
    assert fit.likelihood[0] > log_likelihood(inputs, targets, default_correlated_hyper(NI, D, 2))


def test_constant_targets_and_one_point_can_be_fitted() -> None:
    inputs, targets = some_data(10)
    flat = fit_correlated(inputs, torch.zeros_like(targets), None, FitSettings(iterations=15))
    assert flat.failed == () and math.isfinite(flat.likelihood[0])
    found = CorrelatedPosterior.condition(inputs, torch.zeros_like(targets), flat.hyper).predict(inputs, loo=True)
    assert (found.mean == 0).all() and (found.variance < 0.1).all()
    assert found.zeta is not None and torch.isfinite(found.zeta).all()
    single = fit_correlated(inputs[:1], targets[:1], None, FitSettings(iterations=5))
    assert single.failed == () and math.isfinite(single.likelihood[0])


def test_the_default_start_has_different_latent_functions() -> None:
    for latent in (1, 2, 5):
        hyper = default_correlated_hyper(NI, D, latent)
        torch.testing.assert_close(hyper.mixing.sum(0), torch.eye(D).double())
        rows = torch.cat([hyper.lengthscales, hyper.mixing.flatten(1)], dim=1)
        assert len({tuple(row.tolist()) for row in rows}) == latent


def test_impossible_fits_are_rejected() -> None:
    inputs, targets = some_data(5)
    with pytest.raises(UserError, match="latent is 0"):
        fit_correlated(inputs, targets, None, FitSettings(), latent=0)
    with pytest.raises(UserError, match="3 outputs, but the data have 2 and 2"):
        fit_correlated(inputs, targets[:, :2], some_hyper(), FitSettings())


def test_leave_one_out_scores_against_refits() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    hyper = default_correlated_hyper(2, 2, 2)
    posterior = CorrelatedPosterior.condition(x, y, hyper)
    scores, errors = posterior.loo_scores(), posterior.loo_errors()
    for i in range(8):
        keep = torch.arange(8) != i
        without = CorrelatedPosterior.condition(x[keep], y[keep], hyper).predict(x[i : i + 1])
        expected = (y[i] - without.mean[0]) / (without.variance[0] + hyper.noise).sqrt()
        assert scores[i].tolist() == pytest.approx(expected.tolist(), rel=1e-8)
        assert errors[i].tolist() == pytest.approx((y[i] - without.mean[0]).tolist(), rel=1e-8)
