"""The trust-region update: one natural-gradient step per batch, no further than the divergence allows (TRPO)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from samba_rl.errors import UserError
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.multi_gradient import policy_gradients


@dataclass(frozen=True)
class TrustRegionSettings:
    """How far the policy moves, and how carefully the way is found."""

    kl: float = 0.01
    """The mean divergence of the new policy from the old one is at most this."""
    damping: float = 0.01
    """Added to the diagonal of the Fisher matrix: directions that hardly change the policy are not followed far."""
    cg_iterations: int = 10
    """Of the conjugate gradients that stand for the inverse of the Fisher matrix."""
    backtracks: int = 10
    """How often the step is shortened before it is given up."""
    shrink: float = 0.8
    """By this factor each time."""
    fisher_samples: int | None = 5_000
    """The Fisher matrix is that of at most so many steps, evenly spread over the batch: it need not be as exact as the
    gradient, and is most of the work. None: all."""

    def __post_init__(self) -> None:
        def check(name: str, fine: bool, must: str) -> None:
            if not fine:
                raise UserError(f"trust_region.{name} = {getattr(self, name)}; it must be {must}")

        check("kl", 0 < self.kl < math.inf, "positive; 0.01 is usual")
        check("damping", 0 <= self.damping < math.inf, "at least zero; 0.01 is usual")
        check("cg_iterations", self.cg_iterations >= 1, "at least 1; 10 is usual")
        check("backtracks", self.backtracks >= 0, "at least zero; 10 is usual")
        check("shrink", 0 < self.shrink < 1, "between zero and one; 0.8 is usual")
        check("fisher_samples", self.fisher_samples is None or self.fisher_samples >= 1, "at least 1, or none for all")


class StepReport(NamedTuple):
    """How a step went."""

    kl: float
    """How far the policy moved."""
    improvement: float
    """How far the surrogate fell, in standard deviations of the advantage."""
    accepted: bool
    """If not, the policy is what it was."""
    backtracks: int
    """How often the step was shortened."""


@final
class TrustRegion:
    """Steps that make the surrogate fall as far as the divergence allows."""

    def __init__(self, policy: GaussianPolicy, settings: TrustRegionSettings) -> None:
        self.settings = settings
        self.std_floor = policy.settings.std_floor
        """A step leaves the policy's standard deviation no lower than this."""
        self._policy = policy

    def __call__(self, inputs: Tensor, raw: Tensor, advantage: Tensor) -> StepReport:
        """One step, from the advantages [N], lower is better, of actions [N, nu] in half widths at inputs [N, no]."""
        settings, policy = self.settings, self._policy
        advantages = standardised(advantage)[None]
        (gradient,) = gradients(policy, inputs, raw, advantages)
        fisher = FisherProduct(policy, spread(inputs, settings.fisher_samples), settings.damping)
        direction = conjugate_gradient(fisher, gradient, settings.cg_iterations)
        # Conjugate gradients from zero end where directionᵀ F direction is this product, converged or not.
        length = float(direction @ gradient)
        if not 0 < length < math.inf:
            return StepReport(0.0, 0.0, accepted=False, backtracks=0)
        step = -math.sqrt(2 * settings.kl / length) * direction
        search = LineSearch(policy, settings, self.std_floor)
        found = search(inputs, raw, advantages, step, lambda changes: changes[0] < 0)
        if found is None:
            return StepReport(0.0, 0.0, accepted=False, backtracks=settings.backtracks)
        return StepReport(found.kl, -found.changes[0], accepted=True, backtracks=found.backtracks)


class Found(NamedTuple):
    """Where a line search ended."""

    kl: float
    changes: tuple[float, ...]
    """Of the surrogates [K]."""
    backtracks: int


@final
@dataclass(frozen=True)
class LineSearch:
    """Shortens a step until it may be taken; a step that never may leaves every parameter as it was."""

    policy: GaussianPolicy
    settings: TrustRegionSettings
    std_floor: float

    @torch.no_grad()
    def __call__(
        self,
        inputs: Tensor,
        raw: Tensor,
        advantages: Tensor,
        step: Tensor,
        acceptable: Callable[[Sequence[float]], bool],
    ) -> Found | None:
        """Take the longest of the steps along `step` [P] within the divergence that is `acceptable`.

        That one is asked with the changes of the surrogates of `advantages` [K, N], all finite.
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
            # Together, so that the device is waited for once.
            kl, *changes = torch.cat([divergence[None], advantages @ change / len(change)]).tolist()
            if kl <= settings.kl and all(map(math.isfinite, changes)) and acceptable(changes):
                return Found(kl, tuple(changes), backtracks)
        set_flat(policy, before)
        return None

    def _floor(self) -> float:
        """The floor, or as much of the way up to it as takes half of the divergence: raising σ to e^d σ takes d²."""
        log_std = self.policy.log_std
        return min(self.std_floor, math.exp(float(log_std.min()) + math.sqrt(self.settings.kl / 2 / len(log_std))))


@final
class FisherProduct:
    """v [P] -> (F + damping I) v, F the Hessian of the mean divergence of a policy from itself as it was at first.

    For a Gaussian with the same σ everywhere F is the mean of Jᵀ diag(1/σ²) J, J the Jacobian of the mean, and 2 I for
    log σ. J v and Jᵀ v are in closed form: no tanh is computed more than once, and nothing is recorded.
    """

    @torch.no_grad()
    def __init__(self, policy: GaussianPolicy, inputs: Tensor, damping: float) -> None:
        """At inputs [N, no]."""
        self._damping = damping
        self._sizes = {name: parameter.shape for name, parameter in policy.named_parameters()}
        layers = {f"network.{i}": layer for i, layer in policy.network.named_children() if isinstance(layer, nn.Linear)}
        self._names = list(layers)
        self._weights = [layer.weight.detach().clone() for layer in layers.values()]
        self._before = [inputs]
        """What each layer sees [N, ni]."""
        self._slopes: list[Tensor] = []
        """The derivative of tanh before each layer but the first [N, ni]."""
        for layer in list(layers.values())[:-1]:
            out = layer(self._before[-1]).tanh_()
            self._before.append(out)
            self._slopes.append(1 - out.square())
        last = list(layers.values())[-1]
        self._scale = (-2 * policy.log_std).exp() / len(inputs)
        """Weight of the outputs of the last layer [nu] or, where the mean is squashed, [N, nu]."""
        if policy.settings.mean_bound is not None:
            squashed = (last(self._before[-1]) / policy.settings.mean_bound).tanh()
            self._scale = self._scale * (1 - squashed.square()).square()

    @torch.no_grad()
    def __call__(self, vector: Tensor) -> Tensor:
        """(F + damping I) v for v [P], in float64."""
        shapes = self._sizes.values()
        parts = torch.split(vector.to(self._scale.dtype), [shape.numel() for shape in shapes])
        along = {name: part.view(shape) for (name, shape), part in zip(self._sizes.items(), parts, strict=True)}
        products = {"log_std": 2 * along["log_std"]}
        # How the outputs change along v, layer by layer,
        change = torch.empty(0)
        for i, (name, before) in enumerate(zip(self._names, self._before, strict=True)):
            new = torch.addmm(along[f"{name}.bias"], before, along[f"{name}.weight"].T)
            if i:
                new.addmm_(change.mul_(self._slopes[i - 1]), self._weights[i].T)
            change = new
        # and back.
        change *= self._scale
        for i in reversed(range(len(self._names))):
            products[f"{self._names[i]}.weight"] = change.T @ self._before[i]
            products[f"{self._names[i]}.bias"] = change.sum(0)
            if i:
                change = (change @ self._weights[i]).mul_(self._slopes[i - 1])
        return torch.cat([products[name].flatten() for name in self._sizes]).double() + self._damping * vector.double()


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, iterations: int, tolerance: float = 1e-10
) -> Tensor:
    """x [P] for which product(x) is nearly b [P], in float64; NaN if a product is not finite.

    It ends early once the squared residual is below `tolerance` times that of x = 0.
    """
    b = b.double()
    x, residual = torch.zeros_like(b), b.clone()
    search, square = residual.clone(), float(b @ b)
    enough = tolerance * square
    for _ in range(iterations):
        if square <= enough:
            break
        image = product(search)
        curvature = float(search @ image)
        if not math.isfinite(curvature):
            return torch.full_like(b, math.nan)
        if curvature <= 0:  # by rounding alone: there is no more to gain
            break
        x += square / curvature * search
        residual -= square / curvature * image
        square, last = float(residual @ residual), square
        search = residual + square / last * search
    return x


def mean_kl(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(old ‖ new) between Gaussians of means [N, nu] and log σ [nu], averaged over N, in float64."""
    growth = log_std.double() - old_log_std.double()
    shift = (mean.double() - old_mean.double()) * (-log_std.double()).exp()
    return (growth + 0.5 * torch.expm1(-2 * growth)).sum() + 0.5 * shift.square().sum(-1).mean()


def surrogate(policy: GaussianPolicy, inputs: Tensor, raw: Tensor, advantage: Tensor, old_log: Tensor) -> Tensor:
    """The mean of ratio · advantage [N]: what the policy would make of the cost, judged by the old one's steps.

    `old_log` [N] is the log density that the actions raw [N, nu] had at inputs [N, no]. To be minimised.
    """
    return ((policy.log_density(inputs, raw) - old_log).exp() * advantage).mean()


def gradients(policy: GaussianPolicy, inputs: Tensor, raw: Tensor, advantages: Tensor) -> Tensor:
    """Gradients [K, P] of the surrogates of advantages [K, N] where the policy is the old one, in float64."""
    return policy_gradients(policy, inputs, raw, advantages.to(inputs.dtype)).double()


def standardised(advantage: Tensor) -> Tensor:
    """Advantages [N] with mean 0 and standard deviation 1, in float64; zeros if they hardly differ."""
    out = centred(advantage)
    spread = out.square().mean().sqrt()
    return torch.where(spread == 0, out, out / spread)


def centred(advantage: Tensor) -> Tensor:
    """Advantages [N] with mean 0, in float64; zeros if they differ by the rounding of a float32 alone.

    The length of a step does not depend on that of the gradient: a rounding error would be followed as far.
    """
    advantage = advantage.double()
    out = advantage - advantage.mean()
    return torch.where(out.square().mean().sqrt() <= 1e-6 * advantage.abs().amax(), 0, out)


def spread(inputs: Tensor, most: int | None) -> Tensor:
    """At most so many of inputs [N, no], evenly spread."""
    if most is None or len(inputs) <= most:
        return inputs
    return inputs[torch.arange(most, device=inputs.device) * len(inputs) // most]


def flat(policy: GaussianPolicy) -> Tensor:
    """The parameters as one vector [P], in float64."""
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()]).double()


@torch.no_grad()
def set_flat(policy: GaussianPolicy, vector: Tensor) -> None:
    """Set the parameters to those of a vector [P]."""
    parameters = list(policy.parameters())
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))
