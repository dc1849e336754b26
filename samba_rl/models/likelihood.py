"""The kernel, the marginal likelihood of an exact GP with its gradient in closed form, and its maximisation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError

FAR = 1e3
"""Scaled inputs are clamped to ± this: so far out the kernel is exactly zero, and nothing overflows."""
JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
"""What is added to the diagonal, relative to the signal variance, until the Cholesky factorisation succeeds."""


@dataclass(frozen=True)
class Hyper:
    """The hyper-parameters of D independent GPs on normalised data."""

    lengthscales: Tensor
    """[D, ni]"""
    signal: Tensor
    """Prior variances [D]."""
    noise: Tensor
    """Noise variances [D]."""

    def to(self, target: Tensor) -> Hyper:
        """The same on the device and in the dtype of `target`."""
        return Hyper(self.lengthscales.to(target), self.signal.to(target), self.noise.to(target))


@dataclass(frozen=True)
class FitSettings:
    """How hyper-parameters are fitted."""

    iterations: int = 60
    """L-BFGS iterations at most, for each output."""
    points: int | None = 1000
    """Hyper-parameters are fitted to at most this many points, evenly spread (None: all). The model has all."""
    lengthscale_bounds: tuple[float, float] = (0.05, 100.0)
    """In standard deviations of the input."""
    signal_bounds: tuple[float, float] = (1e-3, 1e3)
    """Prior variance, in variances of the target."""
    noise_bounds: tuple[float, float] = (1e-6, 1.0)
    """Noise variance, in variances of the target."""
    max_snr: float = 1000.0
    """Ratio of signal to noise (standard deviations) beyond which a penalty grows steeply."""
    lengthscale_prior: tuple[float, float] = (math.log(2.0), 2.0)
    """Mean and standard deviation of the logarithm of a length scale: a weak prior that keeps idle inputs finite."""
    tolerance: float = 1e-7
    """L-BFGS stops when the objective per point improves by less than this share."""


def scaled(inputs: Tensor, lengthscales: Tensor) -> Tensor:
    """Inputs [N, ni] in length scales [D, ni]: [D, N, ni]."""
    return (inputs / lengthscales[:, None]).clamp(-FAR, FAR)


def kernel(a: Tensor, b: Tensor, signal: Tensor) -> Tensor:
    """RBF kernel between scaled inputs [D, N, ni] and [D, M, ni]: [D, N, M]."""
    # The exponent -|a - b|²/2 + log s² as one product and one sum, then the exponential in place.
    half_a = a.square().sum(-1, keepdim=True).mul_(-0.5)
    half_b = b.square().sum(-1).mul_(-0.5).add_(signal.log()[:, None])
    return torch.baddbmm(half_b[:, None], a, b.mT).add_(half_a).exp_()


def factorise(gram: Tensor, noise: Tensor, signal: Tensor) -> tuple[Tensor, float]:
    """Cholesky factors [D, n, n] of gram + noise I, and the relative jitter that it took."""
    for jitter in JITTERS:
        factor = factor_with(jitter, gram, noise, signal)
        if factor is not None:
            return factor, jitter
    raise no_factor(gram.shape[-1])


def factor_with(jitter: float, gram: Tensor, noise: Tensor, signal: Tensor) -> Tensor | None:
    """Cholesky factors [D, n, n] of gram + noise I with this relative jitter, if there are any."""
    matrix = gram.clone()
    matrix.diagonal(dim1=-2, dim2=-1).add_((noise + jitter * signal)[:, None])
    factor, info = torch.linalg.cholesky_ex(matrix)
    return factor if not bool(info.any()) and bool(torch.isfinite(factor).all()) else None


def no_factor(points: int) -> UserError:
    """What to say if there is none with any jitter."""
    return UserError(
        f"the covariance of {points} points has no Cholesky factor even with jitter {JITTERS[-1]}; "
        "the data or the hyper-parameters hold numbers that are not finite"
    )


class _Objective:
    """Negative log marginal likelihood of one output, per point, with penalties; as SciPy wants it."""

    def __init__(self, inputs: Tensor, target: Tensor, settings: FitSettings) -> None:
        self._inputs, self._target, self._settings = inputs, target, settings
        self.evaluations = 0

    def __call__(self, theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        self.evaluations += 1
        value, gradient = negative_log_likelihood(self._inputs, self._target, torch.from_numpy(theta))
        n, count = len(self._target), self._inputs.shape[1]
        value, gradient = value / n, gradient / n
        # The penalties are divided by n as well: with more data the likelihood speaks alone.
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


def negative_log_likelihood(inputs: Tensor, target: Tensor, theta: Tensor) -> tuple[float, NDArray[np.float64]]:
    """-log p(y | X) of one output [n] at theta = (log ℓ [ni], log s², log σ²), and its gradient.

    With A = (K + σ²I)⁻¹, α = Ay and W = A - ααᵀ the gradient is ½ tr(W ∂K/∂θ); for a length scale ∂K/∂log ℓ is K times
    the squared scaled distance, whose sum against W ∘ K needs matrix-vector products only.
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


@dataclass(frozen=True)
class HyperFit:
    """What came of fitting hyper-parameters."""

    hyper: Hyper
    likelihood: tuple[float, ...]
    """Log marginal likelihood per fitted point, by output."""
    evaluations: int
    seconds: float
    failed: tuple[str, ...]
    """For each output whose fit failed and was replaced by the start: what happened."""


def default_hyper(inputs: int, outputs: int) -> Hyper:
    """Where a first fit starts: smooth functions with little noise."""
    ones = torch.ones(outputs, dtype=torch.float64)
    return Hyper(torch.full((outputs, inputs), 2.0, dtype=torch.float64), ones, 1e-2 * ones)


def fit_hyper(inputs: Tensor, targets: Tensor, start: Hyper, settings: FitSettings) -> HyperFit:
    """Hyper-parameters for normalised inputs [n, ni] and targets [n, D] by maximum marginal likelihood.

    An output whose fit ends in numbers that are not finite, or worse than it began, keeps what `start` has for it.
    """
    from scipy.optimize import minimize

    begin = time.perf_counter()
    if settings.points is not None and len(inputs) > settings.points:
        chosen = torch.linspace(0, len(inputs) - 1, settings.points, device=inputs.device).round().long()
        inputs, targets = inputs[chosen], targets[chosen]
    count = inputs.shape[1]
    boxes = [settings.lengthscale_bounds] * count + [settings.signal_bounds, settings.noise_bounds]
    bounds = np.log(np.array(boxes))
    first = torch.cat([start.lengthscales, start.signal[:, None], start.noise[:, None]], dim=1).cpu().double().log()
    found, likelihood, failed, evaluations = [], [], [], 0
    for output in range(targets.shape[1]):
        objective = _Objective(inputs, targets[:, output].contiguous(), settings)
        begin_at = first[output].numpy().clip(bounds[:, 0], bounds[:, 1])
        theta, value, problem = begin_at, math.inf, ""
        try:
            before = objective(begin_at)[0]
            options = {"maxiter": settings.iterations, "ftol": settings.tolerance, "gtol": 1e-5}
            result = minimize(objective, begin_at, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            if np.isfinite(result.x).all() and result.fun <= before:
                theta, value = result.x, float(result.fun)
            else:
                problem = f"the objective went from {before:.4g} to {result.fun:.4g}"
        except (UserError, ValueError, RuntimeError) as error:
            problem = str(error)
        if problem:
            failed.append(f"output {output}: {problem}")
        evaluations += objective.evaluations
        found.append(theta)
        likelihood.append(-value)
    theta_all = torch.from_numpy(np.stack(found)).exp()
    hyper = Hyper(theta_all[:, :count], theta_all[:, count], theta_all[:, count + 1])
    seconds = time.perf_counter() - begin
    return HyperFit(hyper, tuple(likelihood), evaluations, seconds, tuple(failed))
