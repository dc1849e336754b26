"""Fitting the hyper-parameters of independent GPs by maximum marginal likelihood, with gradients in closed form."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Generic, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from samba_rl.models.kernel import factorise, kernel, scaled
from samba_rl.models.lbfgs import Vector, minimise
from samba_rl.ranges import Count, In, Rate

Bound: TypeAlias = Annotated[float, In("[1e-12, 1e12]")]
"""A bound of a hyper-parameter."""
LogMean: TypeAlias = Annotated[float, In("[-100, 100]")]
"""The mean of a prior, on a logarithmic scale."""
Deviation: TypeAlias = Annotated[float, In("[1e-6, inf]")]
"""The standard deviation of a prior."""

HyperT_co = TypeVar("HyperT_co", covariant=True)


@dataclass(frozen=True)
class Hyper:
    """The hyper-parameters of D independent GPs on normalised data."""

    lengthscales: Tensor
    """Length scales [D, ni]."""
    signal: Tensor
    """Prior variances [D]."""
    noise: Tensor
    """Noise variances [D]."""

    def to(self, target: Tensor) -> Hyper:
        """Return a copy on the device and in the dtype of `target`."""
        return Hyper(self.lengthscales.to(target), self.signal.to(target), self.noise.to(target))


@dataclass(frozen=True)
class FitSettings:
    """Settings of the hyper-parameter fit."""

    iterations: Count = 60
    """Largest number of L-BFGS iterations for each output."""
    points: Annotated[int, In("[2, 1e9]")] | None = 1000
    """Largest number of points that hyper-parameters are fitted to, evenly spread over the data; none: all of them. The
    model itself always uses all points."""
    lengthscale_bounds: tuple[Bound, Bound] = (0.05, 100.0)
    """Bounds of the length scales, in standard deviations of the input."""
    signal_bounds: tuple[Bound, Bound] = (1e-3, 1e3)
    """Bounds of the prior variance, in variances of the target."""
    noise_bounds: tuple[Bound, Bound] = (1e-6, 1.0)
    """Bounds of the noise variance, in variances of the target."""
    max_snr: Annotated[float, In("[1.1, inf]")] = 1000.0
    """Ratio of signal to noise, as standard deviations, above which a penalty grows steeply; inf: no penalty."""
    lengthscale_prior: tuple[Annotated[float, In("[-100, 100]")], Annotated[float, In("[1e-6, inf]")]] = (
        math.log(2.0),
        2.0,
    )
    """Mean and standard deviation of a weak prior on log length scales; it keeps those of irrelevant inputs finite. An
    infinite deviation: no prior."""
    tolerance: Rate = 1e-7
    """Relative improvement of the objective per point below which L-BFGS stops."""

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Yield bounds that leave nothing between them."""
        for name in ("lengthscale_bounds", "signal_bounds", "noise_bounds"):
            low, high = getattr(self, name)
            if low > high:
                yield name, "in ascending order"


@dataclass(frozen=True)
class HyperFit(Generic[HyperT_co]):
    """Result of fitting hyper-parameters."""

    hyper: HyperT_co
    """Hyper-parameters found, or those of the start where the fit failed."""
    likelihood: tuple[float, ...]
    """Log marginal likelihood per fitted point, by output (one value for correlated outputs); -inf where it failed."""
    evaluations: int
    """Number of evaluations of the likelihood and its gradient."""
    seconds: float
    """Duration of the fit in seconds."""
    failed: tuple[str, ...]
    """Why a fit failed and its start was kept, one entry for each failure."""


class _Objective:
    """The negative log marginal likelihood of one output per point, with penalties, as L-BFGS needs it."""

    def __init__(self, inputs: Tensor, target: Tensor, settings: FitSettings) -> None:
        self._inputs, self._target, self._settings = inputs, target, settings
        self.evaluations = 0

    def __call__(self, theta: Vector) -> tuple[float, Vector]:
        self.evaluations += 1
        value, gradient = negative_log_likelihood(self._inputs, self._target, torch.from_numpy(theta))
        n, count = len(self._target), self._inputs.shape[1]
        value, gradient = value / n, gradient / n
        # The penalties are divided by n as well, so that they fade as data accumulate.
        mean, deviation = self._settings.lengthscale_prior
        off = (theta[:count] - mean) / deviation
        value += float(0.5 * (off**2).sum()) / n
        gradient[:count] += off / deviation / n
        limit = 2 * math.log(self._settings.max_snr)
        share = max(0.0, (theta[count] - theta[count + 1]) / limit)
        value += share**30 / n
        slope = 30 * share**29 / limit / n
        gradient[count] += slope
        gradient[count + 1] -= slope
        return value, gradient


def negative_log_likelihood(inputs: Tensor, target: Tensor, theta: Tensor) -> tuple[float, Vector]:
    """Compute -log p(y | X) of one output [n] at theta = (log ℓ [ni], log s², log σ²), and its gradient.

    With A = (K + σ²I)⁻¹, α = Ay and W = A - ααᵀ the gradient is ½ tr(W ∂K/∂θ). For a length scale, ∂K/∂log ℓ is K times
    the squared scaled distance, whose sum against W ∘ K needs only matrix-vector products.
    """
    count = inputs.shape[1]
    device_theta = theta.to(inputs)
    lengthscales, signal, noise = (
        device_theta[:count].exp(),
        device_theta[count : count + 1].exp(),
        device_theta[-1:].exp(),
    )
    z = scaled(inputs, lengthscales[None])
    gram = kernel(z, z, signal)
    factor, _ = factorise(gram, noise, signal)
    alpha = torch.cholesky_solve(target[:, None], factor[0])
    value = 0.5 * target @ alpha[:, 0] + factor[0].diagonal().log().sum() + 0.5 * len(target) * math.log(2 * math.pi)
    w = torch.cholesky_inverse(factor[0])
    w.addmm_(alpha, alpha.T, alpha=-1)
    noise_slope = 0.5 * noise * w.diagonal().sum()
    m = w.mul_(gram[0])
    rows = m.sum(1)
    length_slope = (rows @ z[0].square()) - (z[0] * (m @ z[0])).sum(0)
    gradient = torch.cat([length_slope, 0.5 * rows.sum()[None], noise_slope])
    return float(value), gradient.cpu().numpy().astype(np.float64)


def default_hyper(inputs: int, outputs: int) -> Hyper:
    """Return the start of a first fit: smooth functions with little noise."""
    ones = torch.ones(outputs, dtype=torch.float64)
    return Hyper(torch.full((outputs, inputs), 2.0, dtype=torch.float64), ones, 1e-2 * ones)


def thinned(inputs: Tensor, targets: Tensor, points: int | None) -> tuple[Tensor, Tensor]:
    """Return at most `points` of the inputs [n, ni] and targets [n, D], evenly spread; None: all of them."""
    if points is None or len(inputs) <= points:
        return inputs, targets
    chosen = torch.linspace(0, len(inputs) - 1, points, device=inputs.device).round().long()
    return inputs[chosen], targets[chosen]


def fit_hyper(inputs: Tensor, targets: Tensor, start: Hyper, settings: FitSettings) -> HyperFit[Hyper]:
    """Fit hyper-parameters to normalised inputs [n, ni] and targets [n, D] by maximum marginal likelihood.

    An output whose fit ends at values that are not finite, or worse than its start, keeps the values of `start`.
    """
    begin = time.perf_counter()
    inputs, targets = thinned(inputs, targets, settings.points)
    count = inputs.shape[1]
    boxes = [settings.lengthscale_bounds] * count + [settings.signal_bounds, settings.noise_bounds]
    bounds = np.log(np.array(boxes))
    first = torch.cat([start.lengthscales, start.signal[:, None], start.noise[:, None]], dim=1).cpu().double().log()
    found, likelihood, failed, evaluations = [], [], [], 0
    for output in range(targets.shape[1]):
        objective = _Objective(inputs, targets[:, output].contiguous(), settings)
        theta, value = first[output].numpy().clip(bounds[:, 0], bounds[:, 1]), math.inf
        try:
            theta, value = minimise(
                objective, theta, bounds, iterations=settings.iterations, tolerance=settings.tolerance
            )
        except (ValueError, RuntimeError) as error:
            failed.append(f"output {output}: {error}")
        evaluations += objective.evaluations
        found.append(theta)
        likelihood.append(-value)
    theta_all = torch.from_numpy(np.stack(found)).exp()
    hyper = Hyper(theta_all[:, :count], theta_all[:, count], theta_all[:, count + 1])
    return HyperFit(hyper, tuple(likelihood), evaluations, time.perf_counter() - begin, tuple(failed))
