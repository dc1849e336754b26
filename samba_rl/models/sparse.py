"""An inducing-point posterior of D independent outputs, for more points than an exact GP can hold.

It is the variational posterior of Titsias (2009) in its collapsed form. With M inducing inputs, Kmm = LLᵀ, whitened
features φ(x) = L⁻¹ k_m(x), the features Φ [M, n] of the data, noise σ², B = I + ΦΦᵀ/σ², S = B⁻¹ and c = SΦy/σ²:

    mean      μ  = φ·c
    variance  σ*² = s² - φ·φ + φᵀSφ
    leaving point i out:   μ⁽ⁱ⁾ - μ = -gᵢ eᵢ / (1 - hᵢ)    and    σ*⁽ⁱ⁾² - σ*² = σ² gᵢ² / (1 - hᵢ)

where gᵢ = φᵀSφᵢ/σ², hᵢ = φᵢᵀSφᵢ/σ² (the leverage) and eᵢ = yᵢ - φᵢ·c. Without point i, B loses φᵢφᵢᵀ/σ², and the
Sherman-Morrison formula gives S⁽ⁱ⁾ = S + Sφᵢφᵢᵀ S / (σ² (1 - hᵢ)); the prior term s² - φ·φ does not depend on the data.
Without a block of points H = ΦᵀSΦ/σ² takes the place of hᵢ, and 1/(1 - hᵢ) becomes (I - H)⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.inducing import Statistics, spread
from samba_rl.models.kernel import factorise, kernel, remaining_covariance, scaled
from samba_rl.models.likelihood import Hyper
from samba_rl.models.marginals import Marginals, chunk_rows, in_chunks, in_dtype, remaining_variance
from samba_rl.models.zeta import observed, sparse_loo

LEAVE_OUT = 2000
"""ζ_LOO averages over at most this many left-out points, evenly spread over the data."""


@final
@dataclass(frozen=True)
class SparsePosterior:
    """D variational GPs with a zero mean on n normalised points, seen through M inducing inputs.

    Every prediction follows from u = kR, where k are the covariances of a query with the inducing inputs, R = L⁻ᵀC and
    CCᵀ = I - S: then σ*² = s² - |u|². In float32 this root is essential: the product of k with Q = RRᵀ loses the digits
    in which kQk differs from s², hundreds of times as many as |u|² does.
    """

    hyper: Hyper
    """Hyper-parameters of the D outputs."""
    inputs: Tensor
    """Normalised inputs [n, ni]."""
    targets: Tensor
    """Normalised targets [n, D]."""
    z: Tensor
    """Inducing inputs divided by the length scales [D, M, ni], with padding that has no weight."""
    root: Tensor
    """R [D, M, M]."""
    weights: Tensor
    """C⁻¹c [D, M]: μ = u·weights."""
    leverage: Tensor
    """Maps u to gᵢ σ/√(1 - hᵢ), whose square is the growth of the variance without point i [D, M, l], for l points."""
    surprise: Tensor
    """1 + eᵢ²/(σ² (1 - hᵢ)): the growth of the variance plus the squared shift of the mean, over the growth [D, l]."""
    scores: Tensor
    """Leave-one-out z-scores: yᵢ - μ⁽ⁱ⁾ in standard deviations of that prediction with noise [D, l]."""
    statistics: Statistics
    """Statistics of all n points, to which more can be added."""
    leave_out: int
    """Largest number of points left out for ζ_LOO."""
    jitter: float
    """Jitter added to the diagonal of Kmm, relative to the signal."""

    @staticmethod
    def condition(
        inputs: Tensor, targets: Tensor, hyper: Hyper, inducing: int = 500, leave_out: int = LEAVE_OUT
    ) -> SparsePosterior:
        """Condition on inputs [n, ni] and targets [n, D], with at most `inducing` inducing inputs for each output.

        ζ_LOO is the mean over all points while n <= leave_out, and over `leave_out` evenly spread ones beyond.
        """
        if inducing < 1 or leave_out < 1:
            raise UserError(f"inducing={inducing} and leave_out={leave_out}; both must be at least 1")
        _check(inputs, targets)
        statistics = Statistics.begin(inputs.double(), hyper, inducing).add(inputs.double(), targets.double())
        return _posterior(inputs, targets, statistics, leave_out)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def inducing(self) -> tuple[int, ...]:
        """Return the number of inducing inputs of each output."""
        return tuple(int(count) for count in self.statistics.used.sum(1).tolist())

    @property
    def unexplained(self) -> tuple[float, ...]:
        """Return the share of the prior variance at the data that the inducing inputs miss, by output.

        It grows when `extend` adds points far from the inducing inputs, which do not change; then condition anew.
        """
        s = self.statistics
        explained = s.gram.diagonal(dim1=-2, dim2=-1).sum(-1) / (len(self) * s.hyper.signal)
        return tuple((1 - explained).clamp(0, 1).tolist())

    def extend(self, inputs: Tensor, targets: Tensor) -> SparsePosterior:
        """Return the posterior with m more points [m, ni] and [m, D] and the same inducing inputs.

        The statistics take O(mM²) and do not touch the old points. Everything derived from them takes a time that
        depends on neither n nor m: factors of M x M, and a new spread of the points left out for ζ_LOO.
        """
        inputs, targets = inputs.to(self.inputs), targets.to(self.targets)
        _check(inputs, targets)
        statistics = self.statistics.add(inputs.double(), targets.double())
        whole = torch.cat([self.inputs, inputs]), torch.cat([self.targets, targets])
        return _posterior(*whole, statistics, self.leave_out)

    def cast(self, dtype: torch.dtype) -> SparsePosterior:
        """Return the posterior in another precision, for rollouts; the statistics stay in float64."""
        if self.inputs.dtype == dtype:
            return self
        return _in_precision(self, dtype)

    def loo_scores(self) -> Tensor:
        """Return the leave-one-out z-scores of the left-out targets, in predictive standard deviations [l, D]."""
        return self.scores.T

    def loo_errors(self) -> Tensor:
        """Return by how much the left-out targets miss their predictions [l, D], in proportion to the noise alone.

        With as many points as an inducing-point model has, what it does not know of the function is small beside that.
        """
        return (self.scores * self.hyper.noise[:, None].sqrt()).T

    def block_scores(self, blocks: Sequence[slice]) -> Tensor:
        """Return the z-scores [m, D] of the targets in blocks of rows, each block left out as a whole."""
        scores, s, noise = [], self.statistics, self.statistics.hyper.noise[:, None]
        factor, coefficients = _solved(s)
        for rows in blocks:
            phi = s.features(self.inputs[rows].double())
            remainder = -(phi.mT @ torch.cholesky_solve(phi, factor)) / noise[..., None]
            remainder.diagonal(dim1=1, dim2=2).add_(1)
            inverse = torch.linalg.inv_ex(remainder).inverse
            error = self.targets[rows].T.double() - (phi.mT @ coefficients)[..., 0]
            variance = noise * inverse.diagonal(dim1=1, dim2=2) + _missed(s, phi)
            scores.append((inverse @ error[..., None])[..., 0] / variance.sqrt())
        return torch.cat(scores, dim=1).T.to(self.inputs.dtype)

    def predict(self, queries: Tensor, *, loo: bool = False, blur: float = 0.0) -> Marginals:
        """Return the mean and variance, and with `loo` also ζ_LOO, at queries [B, ni], with bounded memory.

        ζ_LOO leaves out at most `leave_out` evenly spread points, since leaving out all n would cost B x n.
        """
        outputs, inducing, left = self.leverage.shape
        rows = chunk_rows(outputs * max(inducing, left if loo else 0), queries)
        return in_chunks(partial(self._predict, loo=loo, blur=blur), queries, rows)

    def covariance(self, queries: Tensor) -> Tensor:
        """Return the covariances [D, B, T, T] of the function among the steps of trajectories [B, T, ni]."""
        z = scaled(queries.flatten(0, 1), self.hyper.lengthscales)
        u = kernel(z, self.z, self.hyper.signal) @ self.root
        return remaining_covariance(z, u, self.hyper.signal, len(queries))

    def _predict(self, queries: Tensor, *, loo: bool, blur: float) -> Marginals:
        signal = self.hyper.signal
        k = kernel(scaled(queries, self.hyper.lengthscales), self.z, signal)
        u = k @ self.root
        mean = (u @ self.weights[..., None])[..., 0]
        explained = u.square().sum(-1)
        variance = remaining_variance(signal, explained)
        blurred = observed(variance, self.hyper.noise, blur)
        zeta = sparse_loo(u, blurred, self.leverage, self.surprise) if loo else None
        return Marginals(mean.T, variance.T, zeta)


def _solved(statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of B [D, M, M], and c [D, M, 1]."""
    noise, ones = statistics.hyper.noise[:, None, None], torch.ones_like(statistics.hyper.noise)
    factor, _ = factorise(statistics.gram / noise, ones, ones)
    return factor, torch.cholesky_solve(statistics.projection[..., None] / noise, factor)


def _missed(statistics: Statistics, phi: Tensor) -> Tensor:
    """Return the prior variance [D, m] that the inducing inputs miss at points with features Φ [D, M, m]."""
    return (statistics.hyper.signal[:, None] - phi.square().sum(1)).clamp(min=0)


def _posterior(inputs: Tensor, targets: Tensor, statistics: Statistics, leave_out: int) -> SparsePosterior:
    """Derive the posterior from the statistics of inputs [n, ni] and targets [n, D], in the dtype of the inputs."""
    s, noise = statistics, statistics.hyper.noise[:, None, None]
    ones = torch.ones_like(s.hyper.noise)
    factor, coefficients = _solved(s)
    # I - S = SΦΦᵀ/σ², which does not cancel where there are few data. Zeros on its diagonal, of padding, become ones.
    gain = torch.cholesky_solve(s.gram / noise, factor)
    gain.diagonal(dim1=-2, dim2=-1).add_(1 - s.used)
    half, _ = factorise(gain, torch.zeros_like(ones), ones)
    root = torch.linalg.solve_triangular(s.factor.mT, half * s.used[:, None], upper=True)
    left = spread(len(inputs), leave_out, inputs)
    phi = s.features(inputs[left].double())
    influence = torch.cholesky_solve(phi, factor) / noise
    # hᵢ < 1, but with very small noise rounding can hide the difference.
    remainder = (1 - (phi * influence).sum(1)).clamp(min=16 * torch.finfo(phi.dtype).eps)
    error = targets[left].T.double() - (phi.mT @ coefficients)[..., 0]
    influence *= (noise / remainder[:, None]).sqrt()
    # Predictive variance of point i: from its noise and the weights, and from the prior that the inducing inputs miss.
    open_variance = s.hyper.noise[:, None] / remainder + _missed(s, phi)
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
    return _in_precision(posterior, inputs.dtype)


def _in_precision(posterior: SparsePosterior, dtype: torch.dtype) -> SparsePosterior:
    """Return the posterior with everything but its statistics in another precision."""
    return replace(in_dtype(posterior, dtype), hyper=in_dtype(posterior.hyper, dtype))


@dataclass(frozen=True)
class SparseAccuracy:
    """Differences between a sparse posterior and the exact one."""

    mean_largest: float
    """Largest difference of the means, in standard deviations of the exact prediction with noise."""
    mean_rms: float
    """Root mean square of the differences of the means, in the same unit."""
    ratio_largest: float
    """Largest ratio of the sparse variance to the exact one, without noise."""
    ratio_median: float
    """Median of the ratios."""
    ratio_smallest: float
    """Smallest of the ratios; below 1 the sparse posterior is overconfident."""


def accuracy(sparse: SparsePosterior, exact: ExactPosterior, queries: Tensor) -> SparseAccuracy:
    """Compare `sparse` with `exact` at queries [B, ni], over all outputs."""
    ours, truth = sparse.predict(queries.to(sparse.inputs)), exact.predict(queries.to(exact.inputs))
    deviation = (truth.variance + exact.hyper.noise).double().sqrt()
    off = (ours.mean.double() - truth.mean.double()).abs() / deviation
    ratio = ours.variance.double() / truth.variance.double()
    numbers = (off.max(), off.square().mean().sqrt(), ratio.max(), ratio.median(), ratio.min())
    return SparseAccuracy(*(float(number) for number in numbers))


def _check(inputs: Tensor, targets: Tensor) -> None:
    if not len(inputs) or len(inputs) != len(targets):
        raise UserError(
            f"{len(inputs)} inputs and {len(targets)} targets; give one target for each input, and at least one of each"
        )
    if not bool(torch.isfinite(inputs).all() & torch.isfinite(targets).all()):
        raise UserError("the data contain values that are not finite; remove those points")
