"""Fits the correlated GP with GPyTorch's multitask machinery, by maximum marginal likelihood."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.correlated import CorrelatedHyper
from samba_rl.models.likelihood import FitSettings

with warnings.catch_warnings():
    # GPyTorch's own imports use parts of torch that are deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch
    from linear_operator import to_linear_operator

FIT_NUMBERS = 1500
"""Hyper-parameters are fitted to at most this many numbers n·D: one evaluation costs a multiple of their cube."""
RIDGE = 1e-8
"""Fixed part of the diagonal of each B_q, which keeps it positive definite: far below the least noise."""


@dataclass(frozen=True)
class CorrelatedFit:
    """What came of fitting hyper-parameters."""

    hyper: CorrelatedHyper
    likelihood: float
    """Log marginal likelihood per fitted point, of all outputs together; -inf where even the start has none."""
    seconds: float
    failed: str
    """What happened if the fit failed and the start was kept, else empty."""


def default_correlated_hyper(inputs: int, outputs: int, latent: int) -> CorrelatedHyper:
    """Where a first fit starts: independent outputs of unit variance, smooth, with some noise."""
    # Latent functions that begin alike have equal gradients and would stay alike for ever. So each begins as the main
    # source of its own outputs, and length scales differ a little for those without outputs of their own.
    owner = torch.arange(outputs) % latent == torch.arange(latent)[:, None]
    share = (
        torch.where(owner, 0.9, 0.1 / max(1, latent - 1)).double() if latent > 1 else torch.ones(1, outputs).double()
    )
    exponents = torch.arange(latent).double() - (latent - 1) / 2
    # With less noise the first gradients are so steep that the first step can end far off, at a poor optimum.
    noise = torch.full((outputs,), 0.1, dtype=torch.float64)
    return CorrelatedHyper((2.0 * 1.1**exponents)[:, None].repeat(1, inputs), torch.diag_embed(share), noise)


@final
class _Lcm(gpytorch.models.ExactGP):  # type: ignore[misc]
    """GPyTorch's model; length scales and noise are exponentials of its parameters, so that bounds are simple boxes."""

    def __init__(self, inputs: Tensor, targets: Tensor, latent: int) -> None:
        outputs = targets.shape[1]
        likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(
            num_tasks=outputs, noise_constraint=_positive(), has_global_noise=False
        )
        super().__init__(inputs, targets, likelihood)
        bases = [
            gpytorch.kernels.RBFKernel(ard_num_dims=inputs.shape[1], lengthscale_constraint=_positive())
            for _ in range(latent)
        ]
        # GPyTorch draws the first mixing at random: the caller's random numbers must not depend on that.
        with torch.random.fork_rng(devices=[]):
            self.covar_module = gpytorch.kernels.LCMKernel(bases, num_tasks=outputs, rank=outputs)
        self.to(inputs)
        for part in self.covar_module.covar_module_list:
            part.task_covar_module.var = torch.full_like(part.task_covar_module.raw_var, RIDGE)
            part.task_covar_module.raw_var.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Any:
        """The prior at inputs [n, ni]."""
        mean = inputs.new_zeros(len(inputs), self.likelihood.num_tasks)
        # Its Kronecker products are multiplied out here: a factorisation needs the dense matrix anyway, and GPyTorch
        # makes it by products with the identity, which costs as much as the factorisation itself.
        parts = self.covar_module.covar_module_list
        kernels = torch.stack([part.data_covar_module(inputs).to_dense() for part in parts])
        mixing = torch.stack([part.task_covar_module.covar_matrix.to_dense() for part in parts])
        covariance = torch.einsum("qij,qde->idje", kernels, mixing).reshape(mean.numel(), -1)
        # A plain tensor would be factorised at once, without the noise.
        return gpytorch.distributions.MultitaskMultivariateNormal(mean, to_linear_operator(covariance))

    def load(self, hyper: CorrelatedHyper) -> None:
        """Set the parameters."""
        values, vectors = torch.linalg.eigh(hyper.mixing)
        # A factor without full rank could never gain the missing direction, as the gradient there is zero.
        root = vectors * (values - RIDGE).clamp(min=RIDGE).sqrt()[:, None] @ vectors.mT
        for q, part in enumerate(self.covar_module.covar_module_list):
            part.data_covar_module.lengthscale = hyper.lengthscales[q]
            part.task_covar_module.initialize(covar_factor=root[q])
        self.likelihood.task_noises = hyper.noise

    def read(self) -> CorrelatedHyper:
        """What the parameters say now, on the CPU."""
        parts = self.covar_module.covar_module_list
        lengthscales = torch.cat([part.data_covar_module.lengthscale for part in parts])
        mixing = torch.stack([part.task_covar_module.covar_matrix.to_dense() for part in parts])
        found = CorrelatedHyper(lengthscales.detach(), mixing.detach(), self.likelihood.task_noises.detach())
        return found.to(torch.empty(0, dtype=torch.float64))


class _Objective:
    """Negative log marginal likelihood per point with the penalties of the independent GPs; as SciPy wants it."""

    def __init__(self, model: _Lcm, settings: FitSettings) -> None:
        self._model, self._settings = model, settings
        self._likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._high = math.inf

    def theta(self) -> NDArray[np.float64]:
        """All parameters in one vector."""
        return np.concatenate([parameter.detach().cpu().numpy().ravel() for parameter in self._parameters])

    def bounds(self) -> NDArray[np.float64]:
        """Boxes [len(theta), 2]."""
        largest = math.sqrt(self._settings.signal_bounds[1])
        boxes = {
            "raw_lengthscale": np.log(self._settings.lengthscale_bounds),
            "raw_task_noises": np.log(self._settings.noise_bounds),
            "covar_factor": np.array([-largest, largest]),
        }
        names = [name.rsplit(".", 1)[-1] for name, p in self._model.named_parameters() if p.requires_grad]
        counts = [parameter.numel() for parameter in self._parameters]
        return np.concatenate([np.tile(boxes[name], (count, 1)) for name, count in zip(names, counts, strict=True)])

    def set(self, theta: NDArray[np.float64]) -> None:
        """Write one vector into all parameters."""
        vector = torch.from_numpy(theta)
        sizes = [parameter.numel() for parameter in self._parameters]
        for parameter, part in zip(self._parameters, torch.split(vector, sizes), strict=True):
            parameter.data.copy_(part.view_as(parameter))

    def likelihood(self) -> Tensor:
        """Log marginal likelihood per point, summed over outputs."""
        prior = self._model(*self._model.train_inputs)
        # GPyTorch divides by n·D.
        value: Tensor = self._likelihood(prior, self._model.train_targets) * self._model.likelihood.num_tasks
        return value

    def __call__(self, theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        self.set(theta)
        try:
            with torch.enable_grad():
                value = self._penalty() / len(self._model.train_targets) - self.likelihood()
                gradients = torch.autograd.grad(value, self._parameters)
        except RuntimeError:
            # A step of the line search too far, to a matrix without a Cholesky factor: high ground makes it turn back.
            if math.isinf(self._high):
                raise
            return self._high, np.zeros_like(theta)
        number = float(value.detach())
        self._high = min(self._high, number + 1e3)
        return number, np.concatenate([gradient.cpu().numpy().ravel() for gradient in gradients])

    def _penalty(self) -> Tensor:
        mean, deviation = self._settings.lengthscale_prior
        parts = self._model.covar_module.covar_module_list
        lengths = torch.cat([part.data_covar_module.raw_lengthscale for part in parts])
        factors = torch.stack([part.task_covar_module.covar_factor for part in parts])
        signal = factors.square().sum((0, 2)) + RIDGE
        ratio = signal.log() - self._model.likelihood.raw_task_noises
        share = (ratio / (2 * math.log(self._settings.max_snr))).clamp(min=0)
        penalty: Tensor = 0.5 * ((lengths - mean) / deviation).square().sum() + (share**30).sum()
        return penalty


def _positive() -> Any:
    return gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)


@contextmanager
def _exactly() -> Iterator[None]:
    """GPyTorch with Cholesky factors whatever the size; its notes on jitter are of no use to the caller."""
    with ExitStack() as stack:
        stack.enter_context(gpytorch.settings.fast_computations(False, False, False))
        stack.enter_context(gpytorch.settings.max_cholesky_size(10**9))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def fit_correlated(
    inputs: Tensor, targets: Tensor, start: CorrelatedHyper | None, settings: FitSettings, latent: int = 2
) -> CorrelatedFit:
    """Hyper-parameters for normalised inputs [n, ni] and targets [n, D] by maximum marginal likelihood.

    A first fit (`start` None) has `latent` latent functions; a later one has as many as its start. A fit that ends in
    numbers that are not finite, or worse than it began, keeps the start, moved inside the bounds.
    """
    from scipy.optimize import minimize

    begin = time.perf_counter()
    if start is None and latent < 1:
        raise UserError(f"a correlated model needs at least one latent function, but latent is {latent}")
    first = start or default_correlated_hyper(inputs.shape[1], targets.shape[1], latent)
    if first.lengthscales.shape[1] != inputs.shape[1] or len(first.noise) != targets.shape[1]:
        raise UserError(
            f"the start is for {first.lengthscales.shape[1]} inputs and {len(first.noise)} outputs, but the data has "
            f"{inputs.shape[1]} and {targets.shape[1]}; fit without a start"
        )
    limit = max(1, FIT_NUMBERS // targets.shape[1])
    limit = limit if settings.points is None else min(limit, settings.points)
    if len(inputs) > limit:
        chosen = torch.linspace(0, len(inputs) - 1, limit, device=inputs.device).round().long()
        inputs, targets = inputs[chosen], targets[chosen]
    inputs, targets = inputs.detach().double(), targets.detach().double()
    cpu = CorrelatedHyper(first.lengthscales.cpu().double(), first.mixing.cpu().double(), first.noise.cpu().double())
    kept = CorrelatedHyper(
        cpu.lengthscales.clamp(*settings.lengthscale_bounds), cpu.mixing, cpu.noise.clamp(*settings.noise_bounds)
    )
    likelihood, problem, hyper = -math.inf, "", kept
    try:
        with _exactly():
            model = _Lcm(inputs, targets, len(kept.lengthscales))
            model.load(kept.to(inputs))
            objective = _Objective(model, settings)
            bounds = objective.bounds()
            begin_at = objective.theta().clip(bounds[:, 0], bounds[:, 1])
            before = objective(begin_at)[0]
            likelihood = _evaluate(objective)
            options = {"maxiter": settings.iterations, "ftol": settings.tolerance, "gtol": 1e-5}
            result = minimize(objective, begin_at, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            if np.isfinite(result.x).all() and result.fun <= before:
                objective.set(result.x)
                likelihood, hyper = _evaluate(objective), model.read()
            else:
                problem = f"the objective went from {before:.4g} to {result.fun:.4g}"
    except (UserError, ValueError, RuntimeError) as error:  # GPyTorch's numerical errors are RuntimeErrors
        problem = str(error) or type(error).__name__
    return CorrelatedFit(hyper, likelihood, time.perf_counter() - begin, problem)


def _evaluate(objective: _Objective) -> float:
    with torch.no_grad():
        value = float(objective.likelihood())
    if not math.isfinite(value):
        raise ValueError(f"the log marginal likelihood is {value}")
    return value
