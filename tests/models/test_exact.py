import dataclasses
from typing import Any

import gpytorch
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.models import exact, marginals
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.kernel import triangular_product
from samba_rl.models.likelihood import Hyper


def hyper(noise: float = 0.05) -> Hyper:
    return Hyper(
        torch.tensor([[0.7, 1.5, 3.0], [2.0, 1.0, 0.8]]).double(),
        torch.tensor([1.3, 0.6]).double(),
        torch.tensor([noise, 2 * noise]).double(),
    )


def data(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return x, torch.randn(n, 2, generator=generator, dtype=torch.float64)


def gaussian_kl(mean_p: Tensor, var_p: Tensor, mean_q: Tensor, var_q: Tensor) -> Tensor:
    p, q = (torch.distributions.Normal(m, v.sqrt()) for m, v in ((mean_p, var_p), (mean_q, var_q)))
    return torch.distributions.kl_divergence(p, q)


def gpytorch_posterior(x: Tensor, y: Tensor, h: Hyper, output: int, queries: Tensor) -> tuple[Tensor, Tensor]:
    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(x, y[:, output], gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))

        def forward(self, inputs: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model = Model().double()
    model.covar_module.base_kernel.lengthscale = h.lengthscales[output]
    model.covar_module.outputscale = float(h.signal[output])
    model.likelihood.noise = float(h.noise[output])
    model.eval()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        answer = model(queries)
    return answer.mean, answer.variance


def test_mean_and_variance_match_gpytorch() -> None:
    x, y = data(60)
    queries, _ = data(40, seed=1)
    ours = ExactPosterior.condition(x, y, hyper()).predict(queries)
    for output in range(2):
        mean, variance = gpytorch_posterior(x, y, hyper(), output, queries)
        assert ours.mean[:, output].tolist() == pytest.approx(mean.tolist(), abs=1e-6)
        assert ours.variance[:, output].tolist() == pytest.approx(variance.tolist(), abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 12), st.integers(0, 1000), st.floats(1e-3, 1.0))
def test_zeta_loo_against_brute_force_refits(n: int, seed: int, noise: float) -> None:
    """Condition the GP anew without each point i, which shares no algebra with the closed form."""
    x, y = data(n, seed)
    queries = torch.cat([data(5, seed + 1)[0], x[:2]])
    h = hyper(noise)
    full = ExactPosterior.condition(x, y, h).predict(queries, loo=True)
    total = torch.zeros(len(queries), dtype=torch.float64)
    for i in range(n):
        keep = torch.arange(n) != i
        without = ExactPosterior.condition(x[keep], y[keep], h).predict(queries)
        total += gaussian_kl(without.mean, without.variance, full.mean, full.variance).sum(-1)
    assert full.zeta is not None
    assert full.zeta.tolist() == pytest.approx((total / n).tolist(), rel=1e-6, abs=1e-9)


def test_zeta_loo_is_never_negative_and_vanishes_far_from_the_data() -> None:
    x, y = data(50)
    posterior = ExactPosterior.condition(x, y, hyper())
    near, far = data(200, seed=2)[0], data(200, seed=3)[0] + 40
    zeta_near, zeta_far = posterior.predict(near, loo=True).zeta, posterior.predict(far, loo=True).zeta
    assert zeta_near is not None and zeta_far is not None
    assert float(zeta_near.min()) >= 0 and float(zeta_near.mean()) > 1e-3
    # Where every covariance with the data is zero, leaving any point out changes nothing.
    assert zeta_far.tolist() == [0.0] * 200
    assert torch.allclose(posterior.predict(far).variance, torch.tensor([1.3, 0.6]).double(), atol=1e-6)


def test_points_without_covariance_add_nothing() -> None:
    """Leaving out i changes nothing exactly when, given the others, the query has no covariance with it.

    So of two clusters far apart only the near one counts: the mean over both is its mean, diluted.
    """
    x, y = data(10)
    far_x, far_y = data(30, seed=1)
    near = ExactPosterior.condition(x, y, hyper())
    both = ExactPosterior.condition(torch.cat([x, far_x + 100]), torch.cat([y, far_y]), hyper())
    queries, _ = data(20, seed=2)
    alone, diluted = near.predict(queries, loo=True).zeta, both.predict(queries, loo=True).zeta
    assert alone is not None and diluted is not None
    assert torch.allclose(diluted, alone * 10 / 40, rtol=1e-10, atol=0)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(30)
    queries, _ = data(101, seed=4)
    posterior = ExactPosterior.condition(x, y, hyper())
    whole = posterior.predict(queries, loo=True)
    monkeypatch.setattr(marginals, "CHUNK", 30 * 17)
    monkeypatch.setattr(exact, "LEAST_ROWS", 1)
    chunked = posterior.predict(queries, loo=True)
    assert whole.zeta is not None and chunked.zeta is not None
    for a, b in ((whole.mean, chunked.mean), (whole.variance, chunked.variance), (whole.zeta, chunked.zeta)):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("noise", [0.05, 1e-6])
def test_growing_equals_conditioning_afresh(noise: float) -> None:
    """Grow by blocks, by a single point, and by a point that is already there."""
    x, y = data(40)
    x[35] = x[3]
    h = hyper(noise)
    queries = torch.cat([data(30, seed=5)[0], x])
    fresh = ExactPosterior.condition(x, y, h).predict(queries, loo=True)
    grown = ExactPosterior.condition(x[:10], y[:10], h)
    for start, end in ((10, 11), (11, 25), (25, 40)):
        grown = grown.extend(x[start:end], y[start:end])
    after = grown.predict(queries, loo=True)
    assert len(grown) == 40 and fresh.zeta is not None and after.zeta is not None
    assert torch.allclose(after.mean, fresh.mean, rtol=0, atol=1e-8)
    assert torch.allclose(after.variance, fresh.variance, rtol=0, atol=1e-8)
    assert torch.allclose(after.zeta, fresh.zeta, rtol=1e-4, atol=1e-8)
    assert (fresh.zeta.dtype == torch.float64) and ((grown.inverse is None) == (noise < 1e-3))


def test_both_ways_to_compute_the_variance_agree() -> None:
    """Compare the direct product with the triangular ones, where both are precise."""
    x, y = data(60)
    direct = ExactPosterior.condition(x, y, hyper())
    assert direct.inverse is not None
    queries, _ = data(40, seed=8)
    a, b = (posterior.predict(queries, loo=True) for posterior in (direct, dataclasses.replace(direct, inverse=None)))
    assert a.zeta is not None and b.zeta is not None
    assert torch.allclose(a.variance, b.variance, rtol=1e-9, atol=1e-12) and torch.allclose(a.mean, b.mean)
    assert torch.allclose(a.zeta, b.zeta, rtol=1e-9, atol=1e-12)


def test_triangular_product() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 5, 37, generator=generator)
    lower = torch.randn(2, 37, 37, generator=generator).tril()
    assert torch.allclose(triangular_product(rows, lower), rows @ lower, atol=1e-5)
    assert torch.allclose(triangular_product(rows, lower, transpose=True), rows @ lower.mT, atol=1e-5)
    one = torch.ones(1, 2, 1)
    assert torch.equal(triangular_product(one, torch.full((1, 1, 1), 3.0)), 3 * one)


@pytest.mark.parametrize("case", ["one point", "duplicates", "constant inputs", "constant targets"])
def test_degenerate_data(case: str) -> None:
    x, y = data(20)
    if case == "one point":
        x, y = x[:1], y[:1]
    elif case == "duplicates":
        x, y = x[:1].expand(20, 3).clone(), y
    elif case == "constant inputs":
        x[:, 1] = 0.0
    else:
        y = torch.zeros_like(y)
    posterior = ExactPosterior.condition(x, y, hyper(1e-6))
    answer = posterior.predict(torch.cat([x, data(10, seed=7)[0]]), loo=True)
    assert answer.zeta is not None
    for value in answer:
        assert value is not None and bool(torch.isfinite(value).all())
    assert float(answer.variance.min()) > 0


def test_leave_one_out_scores_against_refits() -> None:
    x, y = data(12)
    posterior = ExactPosterior.condition(x, y, hyper())
    scores, errors = posterior.loo_scores(), posterior.loo_errors()
    for i in range(12):
        keep = torch.arange(12) != i
        without = ExactPosterior.condition(x[keep], y[keep], hyper()).predict(x[i : i + 1])
        expected = (y[i] - without.mean[0]) / (without.variance[0] + hyper().noise).sqrt()
        assert scores[i].tolist() == pytest.approx(expected.tolist(), rel=1e-8)
        assert errors[i].tolist() == pytest.approx((y[i] - without.mean[0]).tolist(), rel=1e-8)


def test_condition_number() -> None:
    x, y = data(15)
    posterior = ExactPosterior.condition(x, y, hyper())
    assert posterior.inverse is not None
    expected = max(float(torch.linalg.cond(torch.linalg.inv(a), 1)) for a in posterior.inverse)
    assert posterior.condition_number() == pytest.approx(expected, rel=1e-6)


def test_single_precision_is_close_where_the_noise_is_not_tiny() -> None:
    x, y = data(80)
    queries, _ = data(50, seed=6)
    double = ExactPosterior.condition(x, y, hyper())
    single = double.cast(torch.float32).predict(queries.float(), loo=True)
    full = double.predict(queries, loo=True)
    assert single.mean.dtype == torch.float32 and single.zeta is not None and full.zeta is not None
    assert torch.allclose(single.mean.double(), full.mean, atol=1e-4)
    assert torch.allclose(single.variance.double(), full.variance, atol=1e-4)
    assert torch.allclose(single.zeta.double(), full.zeta, rtol=2e-2, atol=1e-4)
    assert double.cast(torch.float64) is double


def test_predictions_at_extreme_queries_stay_finite() -> None:
    x, y = data(20)
    queries = torch.tensor([[1e308, -1e308, 0.0], [1e6, 1.0, 1.0], [0.0, 0.0, 0.0]]).double()
    for value in ExactPosterior.condition(x, y, hyper()).predict(queries, loo=True):
        assert value is not None and bool(torch.isfinite(value).all())
