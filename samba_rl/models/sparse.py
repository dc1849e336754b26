"""An inducing-point posterior of D independent outputs, for more points than an exact GP can hold.

The variational posterior of Titsias (2009) in its collapsed form. With M inducing inputs, Kmm = LLᵀ, whitened features
φ(x) = L⁻¹ k_m(x), Φ [M, n] the features of the data, B = I + ΦΦᵀ/σ², S = B⁻¹ and c = SΦy/σ²:

    mean      μ  = φ·c
    variance  σ*² = s² - φ·φ + φᵀSφ
    leaving point i out:   μ⁽ⁱ⁾ - μ = -gᵢ eᵢ / (1 - hᵢ)    and    σ*⁽ⁱ⁾² - σ*² = σ² gᵢ² / (1 - hᵢ)

where gᵢ = φᵀSφᵢ/σ², hᵢ = φᵢᵀSφᵢ/σ² (the leverage) and eᵢ = yᵢ - φᵢ·c: without point i, B loses φᵢφᵢᵀ/σ², and the
Sherman-Morrison formula gives S⁽ⁱ⁾ = S + Sφᵢφᵢᵀ S / (σ² (1 - hᵢ)); the prior term s² - φ·φ does not know of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.likelihood import Hyper, factorise, kernel, scaled
from samba_rl.models.marginals import Marginals, chunk_rows, in_chunks, remaining_variance

CANDIDATES = 5000
"""Inducing inputs are chosen among at most this many points, evenly spread over the data."""
LEAVE_OUT = 2000
"""ζ_LOO is a mean over at most this many points left out, evenly spread over the data."""
NEGLIGIBLE = 1e-6
"""An output takes no more inducing inputs once no candidate's conditional variance exceeds this share of its noise."""


@final
@dataclass(frozen=True)
class Statistics:
    """What the data say of the inducing inputs; always float64, since B is far from well conditioned."""

    hyper: Hyper
    z: Tensor
    """Inducing inputs in length scales [D, M, ni]."""
    used: Tensor
    """1 for an inducing input, 0 for a filler [D, M]: outputs may need fewer than the largest of them."""
    factor: Tensor
    """L [D, M, M]; the identity times the prior deviation where fillers are."""
    gram: Tensor
    """ΦΦᵀ [D, M, M]."""
    projection: Tensor
    """Φy [D, M]."""
    jitter: float

    @staticmethod
    def begin(inputs: Tensor, hyper: Hyper, inducing: int) -> Statistics:
        """No data yet, and at most `inducing` inducing inputs chosen among inputs [n, ni] (float64)."""
        hyper = hyper.to(inputs)
        candidates = scaled(inputs[_spread(len(inputs), CANDIDATES, inputs)], hyper.lengthscales)
        picks, used = choose(candidates, hyper, inducing)
        z = candidates.gather(1, picks[..., None].expand(-1, -1, inputs.shape[1]))
        # Fillers are cut off from the rest, so that they have no features and never meet a data point.
        prior = kernel(z, z, hyper.signal) * (used[:, None] * used[:, :, None])
        prior.diagonal(dim1=-2, dim2=-1).copy_(hyper.signal[:, None].expand_as(used))
        factor, jitter = factorise(prior, torch.zeros_like(hyper.noise), hyper.signal)
        return Statistics(hyper, z, used, factor, torch.zeros_like(factor), torch.zeros_like(used), jitter)

    def features(self, inputs: Tensor) -> Tensor:
        """Φ [D, M, m] of inputs [m, ni]."""
        cross = kernel(self.z, scaled(inputs, self.hyper.lengthscales), self.hyper.signal)
        phi: Tensor = torch.linalg.solve_triangular(self.factor, cross.mul_(self.used[..., None]), upper=False)
        return phi

    def add(self, inputs: Tensor, targets: Tensor) -> Statistics:
        """With m more points [m, ni] and [m, D] in O(mM²), and with memory that does not grow with m."""
        gram, projection = self.gram.clone(), self.projection.clone()
        size = chunk_rows(self.used.numel(), inputs)
        for block, values in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
            phi = self.features(block)
            gram.baddbmm_(phi, phi.mT)
            projection += (phi @ values.T[..., None])[..., 0]
        return replace(self, gram=gram, projection=projection)


@final
@dataclass(frozen=True)
class SparsePosterior:
    """D variational GPs with a zero mean on n normalised points, seen through M inducing inputs.

    All that a query asks for comes from u = kR, where k are its covariances with the inducing inputs, R = L⁻ᵀC and
    CCᵀ = I - S: then σ*² = s² - |u|². The root matters in float32: the product of k with Q = RRᵀ loses the digits in
    which k Q k differs from s², hundreds of times as many as |u|² does.
    """

    hyper: Hyper
    inputs: Tensor
    """[n, ni]"""
    targets: Tensor
    """[n, D]"""
    z: Tensor
    """Inducing inputs in length scales [D, M, ni]; fillers too, which have no weight."""
    root: Tensor
    """R [D, M, M]."""
    weights: Tensor
    """C⁻¹c [D, M]: μ = u·weights."""
    leverage: Tensor
    """u ↦ gᵢ σ/√(1 - hᵢ), whose square is the growth of the variance without point i: [D, M, l] for l points."""
    surprise: Tensor
    """1 + eᵢ²/(σ² (1 - hᵢ)): the growth and the squared shift of the mean, together, by the growth [D, l]."""
    scores: Tensor
    """(yᵢ - μ⁽ⁱ⁾) in standard deviations of that prediction with noise [D, l]."""
    statistics: Statistics
    leave_out: int
    """Points left out for ζ_LOO at most."""
    jitter: float
    """What had to be added to the diagonal of Kmm, relative to the signal."""

    @staticmethod
    def condition(
        inputs: Tensor, targets: Tensor, hyper: Hyper, inducing: int = 500, leave_out: int = LEAVE_OUT
    ) -> SparsePosterior:
        """The posterior given inputs [n, ni] and targets [n, D], by at most `inducing` of the inputs for each output.

        ζ_LOO is the mean over all points while n <= leave_out, and over `leave_out` evenly spread ones beyond.
        """
        if inducing < 1 or leave_out < 1:
            raise UserError(
                f"a sparse posterior needs an inducing input and a point to leave out, "
                f"not inducing={inducing} and leave_out={leave_out}; give 1 or more"
            )
        _check(inputs, targets)
        statistics = Statistics.begin(inputs.double(), hyper, inducing).add(inputs.double(), targets.double())
        return _posterior(inputs, targets, statistics, leave_out)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def inducing(self) -> tuple[int, ...]:
        """How many inducing inputs each output has."""
        return tuple(int(count) for count in self.statistics.used.sum(1).tolist())

    @property
    def unexplained(self) -> tuple[float, ...]:
        """Share of the prior variance at the data that the inducing inputs miss, by output.

        It grows when `extend` brings points far from the inducing inputs, which stay: then condition anew.
        """
        s = self.statistics
        explained = s.gram.diagonal(dim1=-2, dim2=-1).sum(-1) / (len(self) * s.hyper.signal)
        return tuple((1 - explained).clamp(0, 1).tolist())

    def extend(self, inputs: Tensor, targets: Tensor) -> SparsePosterior:
        """The posterior with m more points [m, ni] and [m, D], with the same inducing inputs.

        O(mM²) for the statistics, which does not touch the old points, and a part that does not grow with n or m for
        what is derived from them: factors of M x M, and the points that are left out for ζ_LOO spread anew.
        """
        inputs, targets = inputs.to(self.inputs), targets.to(self.targets)
        _check(inputs, targets)
        statistics = self.statistics.add(inputs.double(), targets.double())
        whole = torch.cat([self.inputs, inputs]), torch.cat([self.targets, targets])
        return _posterior(*whole, statistics, self.leave_out)

    def cast(self, dtype: torch.dtype) -> SparsePosterior:
        """The same in another precision, for rollouts; the statistics stay in float64."""
        if self.inputs.dtype == dtype:
            return self
        return _narrow(self, dtype)

    def loo_scores(self) -> Tensor:
        """How far each left-out target [l, D] lies from what the others predict of it, in predictive deviations."""
        return self.scores.T

    def predict(self, queries: Tensor, loo: bool = False) -> Marginals:
        """Mean, variance and, if asked for, ζ_LOO at queries [B, ni], with bounded memory.

        ζ_LOO is the mean over at most `leave_out` evenly spread points left out, since all of n would cost B x n.
        """
        outputs, inducing, left = self.leverage.shape
        rows = chunk_rows(outputs * max(inducing, left if loo else 0), queries)
        return in_chunks(self._predict, queries, loo, rows)

    def _predict(self, queries: Tensor, loo: bool) -> Marginals:
        signal = self.hyper.signal
        k = kernel(scaled(queries, self.hyper.lengthscales), self.z, signal)
        u = k @ self.root
        mean = (u @ self.weights[..., None])[..., 0]
        explained = u.square().sum(-1)
        variance = remaining_variance(signal, explained)
        zeta = self._loo(u, variance) if loo else None
        return Marginals(mean.T, variance.T, zeta)

    def _loo(self, u: Tensor, variance: Tensor) -> Tensor:
        """ζ_LOO [B] = Σ over outputs of the mean over i of KL(without i ‖ with all), from u [D, B, M]."""
        growth = (u @ self.leverage).square_()
        quadratic = (growth @ self.surprise[..., None])[..., 0] / variance
        logarithms = growth.div_(variance[..., None]).log1p_().sum(-1)
        return (quadratic - logarithms).mul_(0.5 / growth.shape[-1]).sum(0).clamp_(min=0)


def _posterior(inputs: Tensor, targets: Tensor, statistics: Statistics, leave_out: int) -> SparsePosterior:
    """What predictions need, from the statistics of inputs [n, ni] and targets [n, D]; in the dtype of the inputs."""
    s, noise = statistics, statistics.hyper.noise[:, None, None]
    ones = torch.ones_like(s.hyper.noise)
    factor, _ = factorise(s.gram / noise, ones, ones)
    # I - S = SΦΦᵀ/σ², without the cancellation where the data say little. Fillers have a zero there, for now made one.
    gain = torch.cholesky_solve(s.gram / noise, factor)
    gain.diagonal(dim1=-2, dim2=-1).add_(1 - s.used)
    half, _ = factorise(gain, torch.zeros_like(ones), ones)
    root = torch.linalg.solve_triangular(s.factor.mT, half * s.used[:, None], upper=True)
    coefficients = torch.cholesky_solve(s.projection[..., None] / noise, factor)
    left = _spread(len(inputs), leave_out, inputs)
    phi = s.features(inputs[left].double())
    influence = torch.cholesky_solve(phi, factor) / noise
    # hᵢ < 1; the guard is for noise so small that rounding hides the difference.
    remainder = (1 - (phi * influence).sum(1)).clamp(min=16 * torch.finfo(phi.dtype).eps)
    error = targets[left].T.double() - (phi.mT @ coefficients)[..., 0]
    influence *= (noise / remainder[:, None]).sqrt()
    # Without point i: what its noise and the weights leave open, and what the inducing inputs miss of the prior.
    missed = (s.hyper.signal[:, None] - phi.square().sum(1)).clamp(min=0)
    open_variance = s.hyper.noise[:, None] / remainder + missed
    posterior = SparsePosterior(
        hyper=s.hyper,
        inputs=inputs,
        targets=targets,
        z=s.z,
        root=root,
        weights=torch.linalg.solve_triangular(half, coefficients, upper=False)[..., 0],
        leverage=torch.linalg.solve_triangular(half, influence, upper=False),
        surprise=1 + error.square() / (s.hyper.noise[:, None] * remainder),
        scores=error / remainder / open_variance.sqrt(),
        statistics=statistics,
        leave_out=leave_out,
        jitter=s.jitter,
    )
    return _narrow(posterior, inputs.dtype)


def _narrow(posterior: SparsePosterior, dtype: torch.dtype) -> SparsePosterior:
    """The same with all but the statistics in another precision."""
    p = posterior
    return replace(
        p,
        hyper=p.hyper.to(p.inputs.new_empty(0, dtype=dtype)),
        inputs=p.inputs.to(dtype),
        targets=p.targets.to(dtype),
        z=p.z.to(dtype),
        root=p.root.to(dtype),
        weights=p.weights.to(dtype),
        leverage=p.leverage.to(dtype),
        surprise=p.surprise.to(dtype),
        scores=p.scores.to(dtype),
    )


def choose(z: Tensor, hyper: Hyper, count: int) -> tuple[Tensor, Tensor]:
    """Among candidates in length scales [D, C, ni], by output, at most `count` greedily by the largest prior variance
    given those already chosen (a pivoted Cholesky factorisation; Burt, Rasmussen & van der Wilk, 2020).

    Returns their indices [D, M], M <= min(count, C), and which of them are used [D, M] (1 or 0): an output stops when
    what remains is negligible beside its noise, so near-copies are never chosen and Kmm stays well conditioned.
    """
    outputs, candidates, _ = z.shape
    count, every = min(count, candidates), torch.arange(outputs, device=z.device)
    residual = hyper.signal[:, None].repeat(1, candidates)
    floor = torch.maximum(NEGLIGIBLE * hyper.noise, 1e-12 * hyper.signal)
    rows = z.new_zeros(outputs, count, candidates)
    picks, alive = [], []
    for step in range(count):
        best, pick = residual.max(dim=1)
        live = best > floor
        if not bool(live.any()):
            break
        row = kernel(z[every, pick][:, None], z, hyper.signal)
        row -= rows[every, :step, pick][:, None] @ rows[:, :step]
        # An output that is done has nothing more to take away: its residual stays below the floor.
        rows[:, step] = torch.where(live[:, None], row[:, 0] / best.sqrt()[:, None], 0.0)
        # Zero by algebra at the pick itself; said outright, lest rounding have a point chosen twice.
        residual = (residual - rows[:, step].square()).scatter_(1, pick[:, None], 0.0)
        picks.append(pick)
        alive.append(live)
    if not picks:
        raise UserError("no inducing input could be chosen: the hyper-parameters hold numbers that are not finite")
    return torch.stack(picks, dim=1), torch.stack(alive, dim=1).to(z.dtype)


@dataclass(frozen=True)
class SparseAccuracy:
    """How far a sparse posterior is from the exact one."""

    mean_largest: float
    """Largest difference of the means, in standard deviations of the exact prediction with noise."""
    mean_rms: float
    """Root of the mean squared difference of the same."""
    ratio_largest: float
    """Largest ratio of the sparse variance to the exact one, of the function without noise."""
    ratio_median: float
    ratio_smallest: float
    """Below 1 the sparse posterior is surer than it should be."""


def accuracy(sparse: SparsePosterior, exact: ExactPosterior, queries: Tensor) -> SparseAccuracy:
    """How well `sparse` stands for `exact` at queries [B, ni], over all outputs."""
    ours, truth = sparse.predict(queries.to(sparse.inputs)), exact.predict(queries.to(exact.inputs))
    deviation = (truth.variance + exact.hyper.noise).double().sqrt()
    off = (ours.mean.double() - truth.mean.double()).abs() / deviation
    ratio = ours.variance.double() / truth.variance.double()
    numbers = (off.max(), off.square().mean().sqrt(), ratio.max(), ratio.median(), ratio.min())
    return SparseAccuracy(*(float(number) for number in numbers))


def _spread(n: int, count: int, like: Tensor) -> Tensor:
    """Indices of at most `count` points evenly spread over n."""
    return torch.linspace(0, n - 1, min(n, count), dtype=torch.float64, device=like.device).round().long()


def _check(inputs: Tensor, targets: Tensor) -> None:
    if not len(inputs) or len(inputs) != len(targets):
        raise UserError(
            f"{len(inputs)} inputs and {len(targets)} targets: a posterior needs one target for each input, and a point"
        )
    if not bool(torch.isfinite(inputs).all() & torch.isfinite(targets).all()):
        raise UserError("the data hold numbers that are not finite; leave those points out")
