"""Fitting the hyper-parameters of correlated outputs by maximum marginal likelihood, with GPyTorch's multitask GPs."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.correlated import CorrelatedHyper
from samba_rl.models.lbfgs import Vector, minimise
from samba_rl.models.likelihood import FitSettings, HyperFit, thinned

with warnings.catch_warnings():
    # GPyTorch imports deprecated parts of torch.
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch
    from linear_operator import to_linear_operator

FIT_NUMBERS = 1500
"""Largest number of values n·D that hyper-parameters are fitted to: an evaluation takes a multiple of its cube."""
RIDGE = 1e-8
"""Fixed part of the diagonal of each B_q, which keeps it positive definite; far below the smallest noise."""


def default_correlated_hyper(inputs: int, outputs: int, latent: int) -> CorrelatedHyper:
    """Return the start of a first fit: smooth independent outputs of unit variance with some noise."""
    # Latent functions that start equal have equal gradients and would stay equal. So each starts as the main source of
    # its own outputs, and the length scales differ slightly, for those that have no output of their own.
    owner = torch.arange(outputs) % latent == torch.arange(latent)[:, None]
    share = (
        torch.where(owner, 0.9, 0.1 / max(1, latent - 1)).double() if latent > 1 else torch.ones(1, outputs).double()
    )
    exponents = torch.arange(latent).double() - (latent - 1) / 2
    # With less noise the first gradients are so steep that the first step can lead to a poor optimum.
    noise = torch.full((outputs,), 0.1, dtype=torch.float64)
    return CorrelatedHyper((2.0 * 1.1**exponents)[:, None].repeat(1, inputs), torch.diag_embed(share), noise)


@final
class _Lcm(gpytorch.models.ExactGP):  # type: ignore[misc]
    """GPyTorch's model; length scales and noise are exponentials of its parameters, so that their bounds are boxes."""

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
        # GPyTorch draws the first mixing at random, which must not advance the caller's random numbers.
        with torch.random.fork_rng(devices=[]):
            self.covar_module = gpytorch.kernels.LCMKernel(bases, num_tasks=outputs, rank=outputs)
        self.to(inputs)
        for part in self.covar_module.covar_module_list:
            part.task_covar_module.var = torch.full_like(part.task_covar_module.raw_var, RIDGE)
            part.task_covar_module.raw_var.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Any:
        """Return the prior at inputs [n, ni]."""
        mean = inputs.new_zeros(len(inputs), self.likelihood.num_tasks)
        # Multiply out the Kronecker products here: the factorisation needs the dense matrix anyway, and GPyTorch would
        # form it by products with the identity, which take as long as the factorisation itself.
        parts = self.covar_module.covar_module_list
        kernels = torch.stack([part.data_covar_module(inputs).to_dense() for part in parts])
        mixing = torch.stack([part.task_covar_module.covar_matrix.to_dense() for part in parts])
        covariance = torch.einsum("qij,qde->idje", kernels, mixing).reshape(mean.numel(), -1)
        # GPyTorch would factorise a plain tensor at once, without the noise.
        return gpytorch.distributions.MultitaskMultivariateNormal(mean, to_linear_operator(covariance))

    def load(self, hyper: CorrelatedHyper) -> None:
        """Set the parameters to these hyper-parameters."""
        values, vectors = torch.linalg.eigh(hyper.mixing)
        # A factor without full rank could never gain the missing direction, because its gradient there is zero.
        root = vectors * (values - RIDGE).clamp(min=RIDGE).sqrt()[:, None] @ vectors.mT
        for q, part in enumerate(self.covar_module.covar_module_list):
            part.data_covar_module.lengthscale = hyper.lengthscales[q]
            part.task_covar_module.initialize(covar_factor=root[q])
        self.likelihood.task_noises = hyper.noise

    def read(self) -> CorrelatedHyper:
        """Return the parameters as hyper-parameters, on the CPU."""
        parts = self.covar_module.covar_module_list
        lengthscales = torch.cat([part.data_covar_module.lengthscale for part in parts])
        mixing = torch.stack([part.task_covar_module.covar_matrix.to_dense() for part in parts])
        found = CorrelatedHyper(lengthscales.detach(), mixing.detach(), self.likelihood.task_noises.detach())
        return found.to(torch.empty(0, dtype=torch.float64))


class _Objective:
    """The negative log marginal likelihood per point, with the penalties of the independent GPs, as L-BFGS needs it."""

    def __init__(self, model: _Lcm, settings: FitSettings) -> None:
        self._model, self._settings = model, settings
        self._likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._high = math.inf
        self.evaluations = 0

    def theta(self) -> Vector:
        """Return all parameters in one vector [k]."""
        return np.concatenate([parameter.detach().cpu().numpy().ravel() for parameter in self._parameters])

    def bounds(self) -> Vector:
        """Return the bounds of the parameters [k, 2]."""
        largest = math.sqrt(self._settings.signal_bounds[1])
        boxes = {
            "raw_lengthscale": np.log(self._settings.lengthscale_bounds),
            "raw_task_noises": np.log(self._settings.noise_bounds),
            "covar_factor": np.array([-largest, largest]),
        }
        names = [name.rsplit(".", 1)[-1] for name, p in self._model.named_parameters() if p.requires_grad]
        counts = [parameter.numel() for parameter in self._parameters]
        return np.concatenate([np.tile(boxes[name], (count, 1)) for name, count in zip(names, counts, strict=True)])

    def set(self, theta: Vector) -> None:
        """Set all parameters from one vector [k]."""
        vector = torch.from_numpy(theta)
        sizes = [parameter.numel() for parameter in self._parameters]
        for parameter, part in zip(self._parameters, torch.split(vector, sizes), strict=True):
            parameter.data.copy_(part.view_as(parameter))

    def likelihood(self) -> Tensor:
        """Compute the log marginal likelihood per point, summed over the outputs."""
        prior = self._model(*self._model.train_inputs)
        # GPyTorch divides by n·D.
        value: Tensor = self._likelihood(prior, self._model.train_targets) * self._model.likelihood.num_tasks
        return value

    def likelihood_at(self, theta: Vector) -> float:
        """Set all parameters from one vector [k] and return their likelihood; raise ValueError unless it is finite."""
        self.set(theta)
        with torch.no_grad():
            value = float(self.likelihood())
        if not math.isfinite(value):
            raise ValueError(f"the log marginal likelihood is {value}")
        return value

    def __call__(self, theta: Vector) -> tuple[float, Vector]:
        self.evaluations += 1
        self.set(theta)
        try:
            with torch.enable_grad():
                value = self._penalty() / len(self._model.train_targets) - self.likelihood()
                gradients = torch.autograd.grad(value, self._parameters)
        except RuntimeError:
            # The line search went too far, to a matrix without a Cholesky factor; a high value makes it turn back.
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
    """Have GPyTorch use Cholesky factors for every size of matrix, without its warnings about jitter."""
    with ExitStack() as stack:
        stack.enter_context(gpytorch.settings.fast_computations(False, False, False))
        stack.enter_context(gpytorch.settings.max_cholesky_size(10**9))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def fit_correlated(
    inputs: Tensor, targets: Tensor, start: CorrelatedHyper | None, settings: FitSettings, latent: int = 2
) -> HyperFit[CorrelatedHyper]:
    """Fit hyper-parameters to normalised inputs [n, ni] and targets [n, D] by maximum marginal likelihood.

    A first fit (`start` None) has `latent` latent functions; a later one has as many as its start. A fit that ends at
    values that are not finite, or worse than its start, keeps the start, moved inside the bounds.
    """
    begin = time.perf_counter()
    if start is None and latent < 1:
        raise UserError(f"latent is {latent}; a model with correlated outputs needs at least 1 latent function")
    first = start or default_correlated_hyper(inputs.shape[1], targets.shape[1], latent)
    if first.lengthscales.shape[1] != inputs.shape[1] or len(first.noise) != targets.shape[1]:
        raise UserError(
            f"the start is for {first.lengthscales.shape[1]} inputs and {len(first.noise)} outputs, but the data have "
            f"{inputs.shape[1]} and {targets.shape[1]}; fit without a start"
        )
    limit = max(1, FIT_NUMBERS // targets.shape[1])
    inputs, targets = thinned(inputs, targets, limit if settings.points is None else min(limit, settings.points))
    inputs, targets = inputs.detach().double(), targets.detach().double()
    cpu = CorrelatedHyper(first.lengthscales.cpu().double(), first.mixing.cpu().double(), first.noise.cpu().double())
    hyper = CorrelatedHyper(
        cpu.lengthscales.clamp(*settings.lengthscale_bounds), cpu.mixing, cpu.noise.clamp(*settings.noise_bounds)
    )
    likelihood, failed, objective = -math.inf, "", None
    try:
        with _exactly():
            model = _Lcm(inputs, targets, len(hyper.lengthscales))
            model.load(hyper.to(inputs))
            objective = _Objective(model, settings)
            bounds = objective.bounds()
            theta = objective.theta().clip(bounds[:, 0], bounds[:, 1])
            likelihood = objective.likelihood_at(theta)
            theta, _ = minimise(objective, theta, bounds, iterations=settings.iterations, tolerance=settings.tolerance)
            likelihood, hyper = objective.likelihood_at(theta), model.read()
    except (ValueError, RuntimeError) as error:  # GPyTorch's numerical errors are RuntimeErrors
        failed = str(error) or type(error).__name__
    evaluations = 0 if objective is None else objective.evaluations
    return HyperFit(hyper, (likelihood,), evaluations, time.perf_counter() - begin, (failed,) if failed else ())
