"""The trust-region step (TRPO): one natural-gradient step per batch, as long as the divergence allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, final

import torch
from torch import Tensor

from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch
from samba_rl.improve.updates.fisher import FisherProduct, conjugate_gradient, spread
from samba_rl.improve.updates.min_norm import policy_gradients
from samba_rl.improve.updates.natural import NaturalStep
from samba_rl.ranges import Count, In


@dataclass(frozen=True)
class TrustRegionSettings:
    """Natural-gradient steps within a trust region (TRPO and CPO)."""

    kl: Annotated[float, In("(0, 10]")] = 0.01
    """Upper bound of the mean KL divergence between the policies before and after an update."""
    damping: Annotated[float, In("[0, 1e6]")] = 0.01
    """Number added to the diagonal of the Fisher matrix, which limits directions that hardly change the policy."""
    cg_iterations: Annotated[int, In("[1, 10000]")] = 10
    """Number of conjugate-gradient iterations that approximate the inverse of the Fisher matrix."""
    backtracks: Annotated[int, In("[0, 1000]")] = 10
    """Number of times that a step is shortened before it is given up."""
    shrink: Annotated[float, In("(0, 1)")] = 0.8
    """Factor by which a step is shortened each time."""
    fisher_samples: Count | None = 5_000
    """Maximum number of steps, evenly spread over the batch, in the Fisher matrix. It is most of the work and need not
    be as exact as the gradient. None: all steps."""


class StepReport(NamedTuple):
    """The outcome of a trust-region step."""

    kl: float
    """Divergence between the policies before and after."""
    improvement: float
    """Decrease of the surrogate, in standard deviations of the advantage."""
    accepted: bool
    """Whether the policy moved."""
    backtracks: int
    """Number of times that the step was shortened."""


@final
class TrustRegionStep:
    """Takes the natural-gradient step that lowers the surrogate as far as the divergence allows."""

    def __init__(self, policy: GaussianPolicy, settings: TrustRegionSettings) -> None:
        self.settings = settings
        self.std_floor = policy.settings.std_floor
        """Lower bound of the policy's standard deviation after a step, in half widths of the action range."""
        self._policy = policy

    def __call__(self, inputs: Tensor, raw: Tensor, advantage: Tensor) -> StepReport:
        """Take one step, given advantages [N] (lower is better) of actions in half widths [N, nu] at inputs [N, no]."""
        settings, policy = self.settings, self._policy
        advantages = standardised(advantage)[None]
        (gradient,) = gradients(policy, inputs, raw, advantages)
        fisher = FisherProduct(policy, spread(inputs, settings.fisher_samples), settings.damping)
        direction = conjugate_gradient(fisher, gradient, settings.cg_iterations)
        # Conjugate gradients that start from zero make directionᵀ F direction equal to this, converged or not.
        length = float(direction @ gradient)
        if not 0 < length < math.inf:
            return StepReport(0.0, 0.0, accepted=False, backtracks=0)
        step = -math.sqrt(2 * settings.kl / length) * direction
        search = LineSearch(policy, settings, self.std_floor)
        found = search(inputs, raw, advantages, step, lambda changes: changes[0] < 0)
        if found is None:
            return StepReport(0.0, 0.0, accepted=False, backtracks=settings.backtracks)
        return StepReport(found.kl, -found.changes[0], accepted=True, backtracks=found.backtracks)

    def step(self, batch: Batch) -> NaturalStep:
        """Take one step on the Lagrangian of a batch."""
        step = self(batch.inputs, batch.raw, batch.lagrangian)
        return NaturalStep(step.kl, step.accepted)


class Found(NamedTuple):
    """The step that a line search accepted."""

    kl: float
    """Divergence between the policies before and after."""
    changes: tuple[float, ...]
    """Changes of the surrogates [K]."""
    backtracks: int
    """Number of times that the step was shortened."""


@final
@dataclass(frozen=True)
class LineSearch:
    """Shortens a step until it is acceptable; if it never is, every parameter stays as it was."""

    policy: GaussianPolicy
    settings: TrustRegionSettings
    std_floor: float
    """Lower bound of the policy's standard deviation, in half widths of the action range."""

    @torch.no_grad()
    def __call__(
        self,
        inputs: Tensor,
        raw: Tensor,
        advantages: Tensor,
        step: Tensor,
        acceptable: Callable[[Sequence[float]], bool],
    ) -> Found | None:
        """Move by the longest fraction of `step` [P] that keeps within the divergence and is `acceptable`.

        `acceptable` is called with the changes of the surrogates of `advantages` [K, N], all finite.
        """
        policy, settings = self.policy, self.settings
        before = flat(policy)
        if not bool((before + step).isfinite().all()):
            return None
        floor = self._floor()
        mean, log_std = policy.mean_of(inputs), policy.log_std.clone()
        square = ((raw - mean) * (-log_std).exp()).square().sum(-1)
        for backtracks in range(settings.backtracks + 1):
            set_flat(policy, before + settings.shrink**backtracks * step)
            policy.floor_std(floor)
            new, new_log_std = policy.mean_of(inputs), policy.log_std
            new_square = ((raw - new) * (-new_log_std).exp()).square().sum(-1)
            change = (0.5 * (square - new_square) - (new_log_std - log_std).sum()).double().expm1()
            divergence = mean_kl(mean, log_std, new, new_log_std)
            # One transfer, so that the device is waited for once.
            kl, *changes = torch.cat([divergence[None], advantages @ change / len(change)]).tolist()
            if kl <= settings.kl and all(map(math.isfinite, changes)) and acceptable(changes):
                return Found(kl, tuple(changes), backtracks)
        set_flat(policy, before)
        return None

    def _floor(self) -> float:
        """Return the floor, or as much of the way up to it as half of the divergence allows; σ → e^d σ takes d²."""
        log_std = self.policy.log_std
        return min(self.std_floor, math.exp(float(log_std.min()) + math.sqrt(self.settings.kl / 2 / len(log_std))))


def mean_kl(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Compute KL(old ‖ new) between Gaussians of means [N, nu] and log σ [nu], averaged over N, in float64."""
    growth = log_std.double() - old_log_std.double()
    shift = (mean.double() - old_mean.double()) * (-log_std.double()).exp()
    return (growth + 0.5 * torch.expm1(-2 * growth)).sum() + 0.5 * shift.square().sum(-1).mean()


def gradients(policy: GaussianPolicy, inputs: Tensor, raw: Tensor, advantages: Tensor) -> Tensor:
    """Compute the gradients [K, P] of the surrogates mean(ratio · advantage) at ratio 1, in float64.

    `advantages` [K, N] are those of actions raw [N, nu] at inputs [N, no].
    """
    return policy_gradients(policy, inputs, raw, advantages.to(inputs.dtype)).double()


def standardised(advantage: Tensor) -> Tensor:
    """Return advantages [N] with mean 0 and standard deviation 1, in float64; zeros if they hardly differ."""
    out = centred(advantage)
    spread = out.square().mean().sqrt()
    return torch.where(spread == 0, out, out / spread)


def centred(advantage: Tensor) -> Tensor:
    """Return advantages [N] with mean 0, in float64; zeros if they differ only by the rounding of a float32.

    The length of a step does not depend on that of the gradient, so a rounding error would be followed just as far.
    """
    advantage = advantage.double()
    out = advantage - advantage.mean()
    return torch.where(out.square().mean().sqrt() <= 1e-6 * advantage.abs().amax(), 0, out)


def flat(policy: GaussianPolicy) -> Tensor:
    """Return the parameters as one vector [P], in float64."""
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()]).double()


@torch.no_grad()
def set_flat(policy: GaussianPolicy, vector: Tensor) -> None:
    """Set the parameters from a vector [P]."""
    parameters = list(policy.parameters())
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))
