"""Scores of left-out blocks against brute-force refits, and the factor by hand and by simulation."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.models import calibration
from samba_rl.models.calibration import ENDS, LEVELS, blocks, conformal_factor, coverage, episode_scores
from samba_rl.models.correlated import CorrelatedHyper, CorrelatedPosterior
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.kernel import kernel, scaled
from samba_rl.models.likelihood import Hyper
from samba_rl.models.posterior import Posterior
from samba_rl.models.sparse import SparsePosterior

HYPER = Hyper(
    torch.tensor([[0.9, 1.3], [1.7, 0.6]], dtype=torch.float64),
    torch.tensor([1.2, 0.7], dtype=torch.float64),
    torch.tensor([2e-2, 5e-3], dtype=torch.float64),
)
MIXED = CorrelatedHyper(
    HYPER.lengthscales,
    torch.tensor([[[1.0, 0.4], [0.4, 0.5]], [[0.3, -0.2], [-0.2, 0.6]]], dtype=torch.float64),
    HYPER.noise,
)
ENOUGH = 40
"""Points of which every one can be an inducing point."""


def data(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = 1.5 * torch.randn(n, 2, dtype=torch.float64, generator=generator)
    noise = 0.1 * torch.randn(n, 2, dtype=torch.float64, generator=generator)
    return inputs, torch.stack([torch.sin(inputs.sum(1)), torch.cos(inputs[:, 0]) * inputs[:, 1]], dim=1) + noise


def made(kind: str, inputs: Tensor, targets: Tensor) -> Posterior:
    if kind == "correlated":
        return CorrelatedPosterior.condition(inputs, targets, MIXED)
    if kind == "sparse":
        return SparsePosterior.condition(inputs, targets, HYPER, inducing=ENOUGH)
    return ExactPosterior.condition(inputs, targets, HYPER)


def refitted(kind: str, inputs: Tensor, targets: Tensor, rows: slice) -> Tensor:
    """Compute the z-scores of a block [b, D] under a posterior that is conditioned on the other points alone."""
    kept = torch.ones(len(inputs), dtype=torch.bool)
    kept[rows] = False
    posterior = made("exact" if kind == "sparse" else kind, inputs[kept], targets[kept])
    mean, variance, _ = posterior.predict(inputs[rows])
    return (targets[rows] - mean) / (variance + HYPER.noise).sqrt()


@pytest.mark.parametrize("kind", ["exact", "correlated", "sparse"])
@given(cuts=st.sets(st.integers(1, ENOUGH - 1), min_size=1, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_block_scores_equal_conditioning_without_the_block(kind: str, cuts: set[int], seed: int) -> None:
    inputs, targets = data(ENOUGH, seed)
    edges = [0, *sorted(cuts), ENOUGH]
    some = [slice(a, b) for a, b in itertools.pairwise(edges)][: len(cuts)]
    expected = torch.cat([refitted(kind, inputs, targets, rows) for rows in some])
    # With an inducing input at every point, the sparse posterior is the exact one, but for its conditioning.
    tolerance = 1e-3 if kind == "sparse" else 1e-7
    scores = made(kind, inputs, targets).block_scores(some)
    assert scores.shape == expected.shape and torch.allclose(scores, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["exact", "correlated", "sparse"])
def test_blocks_of_one_step_give_leave_one_out_scores(kind: str) -> None:
    inputs, targets = data(30)
    posterior = made(kind, inputs, targets)
    single = posterior.block_scores([slice(i, i + 1) for i in range(30)])
    # The correlated model leaves out all outputs of a point at once, here as there.
    assert torch.allclose(single, posterior.loo_scores(), rtol=1e-6, atol=1e-8)


def test_sparse_blocks_equal_removing_their_statistics() -> None:
    """Compare with few inducing inputs, where only the posterior with the same inducing inputs is the right one."""
    inputs, targets = data(60)
    posterior = SparsePosterior.condition(inputs, targets, HYPER, inducing=12)
    rows = slice(20, 35)
    kept = torch.ones(60, dtype=torch.bool)
    kept[rows] = False
    s = posterior.statistics
    for d in range(2):
        signal, noise = s.hyper.signal[d], s.hyper.noise[d]
        points = scaled(inputs, HYPER.lengthscales)[d : d + 1]
        prior = kernel(s.z[d : d + 1], s.z[d : d + 1], signal[None])[0]
        cross = kernel(s.z[d : d + 1], points, signal[None])[0]
        inner = prior + cross[:, kept] @ cross[:, kept].T / noise
        here = cross[:, rows]
        mean = here.T @ torch.linalg.solve(inner, cross[:, kept] @ targets[kept, d]) / noise
        lost = (here * torch.linalg.solve(prior, here)).sum(0)
        variance = signal - lost + (here * torch.linalg.solve(inner, here)).sum(0) + noise
        expected = (targets[rows, d] - mean) / variance.sqrt()
        assert torch.allclose(posterior.block_scores([rows])[:, d], expected, rtol=1e-6, atol=1e-6)


def test_a_grown_posterior_scores_blocks_like_a_fresh_one() -> None:
    inputs, targets = data(40)
    grown = ExactPosterior.condition(inputs[:25], targets[:25], HYPER).extend(inputs[25:], targets[25:])
    some = [slice(0, 10), slice(20, 40)]
    fresh = ExactPosterior.condition(inputs, targets, HYPER).block_scores(some)
    assert torch.allclose(grown.block_scores(some), fresh, rtol=1e-8, atol=1e-8)


def test_coverage_by_hand() -> None:
    scores = torch.tensor([[0.0, -0.7], [0.6, 1.3], [-1.5, 1.7], [2.5, -3.0]])
    assert coverage(scores) == ((0.5, 0.0), (0.5, 0.25), (0.75, 0.5), (0.75, 0.75), (1.0, 0.75))
    for level, end in zip(LEVELS, ENDS, strict=True):
        assert math.erf(end / math.sqrt(2)) == pytest.approx(level, abs=1e-5)


def test_the_factor_by_hand() -> None:
    # 39 scores: the rank is ceil(0.95 * 40) = 38, so the second largest counts.
    scores = torch.arange(1.0, 40.0, dtype=torch.float64)[:, None] / 10
    assert conformal_factor(scores).tolist() == pytest.approx([3.8 / 1.95996])
    assert conformal_factor(-scores.flip(0)).tolist() == pytest.approx([3.8 / 1.95996])
    # With 38 the rank is ceil(37.05) = 38, the largest; with fewer than 19 the largest as well.
    assert conformal_factor(scores[:38]).tolist() == pytest.approx([3.8 / 1.95996])
    assert conformal_factor(torch.tensor([[1.0], [-4.0]])).tolist() == pytest.approx([4 / 1.95996])
    # The larger factor of several sets, by output, between the bounds.
    one, other = torch.tensor([[0.1, 3.0, 2.5, 99.0]]), torch.tensor([[0.2, 2.0, 3.5, 1.0]])
    assert conformal_factor(one, other).tolist() == pytest.approx([1.0, 3 / 1.95996, 3.5 / 1.95996, 5.0])


@given(
    scores=st.lists(st.floats(-20, 20), min_size=19, max_size=60),
    times=st.floats(1, 4),
)
def test_scaled_intervals_contain_their_share_of_the_scores(scores: list[float], times: float) -> None:
    column = torch.tensor(scores, dtype=torch.float64)[:, None]
    factor = conformal_factor(column)
    if float(factor) < 5:
        inside = column.abs() <= ENDS[3] * factor * (1 + 1e-12)
        assert float(inside.double().mean()) >= 0.95
    # Larger errors never give a smaller factor, and never one below 1.
    assert float(conformal_factor(times * column)) >= float(factor) >= 1


def test_fresh_scores_are_inside_as_often_as_promised() -> None:
    """Simulate scores with heavy tails and little spread: 39 of them decide where a fresh one has to be."""
    generator = torch.Generator().manual_seed(0)
    trials, m = 4000, 39
    normal = torch.randn(5, m + 1, trials, generator=generator, dtype=torch.float64)
    # Student's t with 4 degrees of freedom: the plain 95 % interval holds 88 % of it.
    student = normal[0] / (normal[1:].square().sum(0) / 4).sqrt()
    inside = student[m].abs() <= ENDS[3] * conformal_factor(student[:m])
    assert float((student[m].abs() < ENDS[3]).double().mean()) < 0.90
    assert 0.94 < float(inside.double().mean()) < 0.97


def test_episodes_of_the_model_itself_are_covered() -> None:
    """Draw functions from the prior: with the right hyper-parameters, fresh episodes are inside, and hardly wider."""
    generator = torch.Generator().manual_seed(1)
    shares, factors = [], []
    for _ in range(40):
        start = 1.5 * torch.randn(12, 1, 2, generator=generator, dtype=torch.float64)
        walk = 0.3 * torch.randn(12, 10, 2, generator=generator, dtype=torch.float64).cumsum(1)
        inputs = (start + walk).reshape(-1, 2)
        z = scaled(inputs, HYPER.lengthscales)
        gram = kernel(z, z, HYPER.signal)
        gram.diagonal(dim1=1, dim2=2).add_(HYPER.noise[:, None])
        drawn = torch.randn(2, len(inputs), 1, generator=generator, dtype=torch.float64)
        targets = (torch.linalg.cholesky(gram) @ drawn)[..., 0].T
        posterior = ExactPosterior.condition(inputs[:100], targets[:100], HYPER)
        scores = episode_scores(posterior, torch.arange(100) // 10)
        assert scores is not None
        factor = conformal_factor(posterior.loo_scores(), scores)
        mean, variance, _ = posterior.predict(inputs[100:])
        fresh = (targets[100:] - mean) / (variance + HYPER.noise).sqrt()
        shares.append((fresh.abs() < ENDS[3] * factor).double().mean())
        factors.append(factor)
    assert 0.94 < float(torch.stack(shares).mean()) < 0.985
    assert 1 <= float(torch.stack(factors).mean()) < 1.2


def test_blocks_are_episodes() -> None:
    episode = torch.tensor([7, 7, 7, 2, 2, 7, 7, 7, 9, 9, 9, 9])
    assert blocks(episode) == [slice(0, 3), slice(3, 5), slice(5, 8), slice(8, 10), slice(10, 12)]
    assert blocks(torch.zeros(1)) == [slice(0, 1)]
    assert blocks(torch.zeros(8)) == [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 8)]


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_blocks_cover_the_data_and_respect_episodes(lengths: list[int]) -> None:
    episode = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    found = blocks(episode)
    rows = [row for each in found for row in range(each.start, each.stop)]
    assert rows == list(range(len(episode)))
    assert all(len(set(episode[each].tolist())) == 1 for each in found)
    assert max(each.stop - each.start for each in found) <= max(1, len(episode) // 4)


def test_long_episodes_are_cut_and_many_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LONGEST", 5)
    assert {each.stop - each.start for each in blocks(torch.arange(60) // 12)} == {4}
    monkeypatch.setattr(calibration, "MOST_POINTS", 25)
    assert len(blocks(torch.arange(60) // 12)) == 5  # every third


def test_scores_that_are_not_finite_are_not_used() -> None:
    inputs, targets = data(20)
    targets[3, 1] = math.nan
    assert episode_scores(ExactPosterior.condition(inputs, targets, HYPER), torch.arange(20) // 5) is None
