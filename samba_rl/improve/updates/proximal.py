"""The proximal update (PPO): several passes over one batch, near the policy that made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, final

import torch
from torch import Generator, Tensor, nn

from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy, tanh_
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.networks import (
    Networks,
    cut,
    optimiser_state,
    part_sizes,
    random_order,
    restore_optimiser,
    shuffled,
)
from samba_rl.improve.updates.regression import CriticRegression
from samba_rl.ranges import Count, In, Rate
from samba_rl.types import State


@dataclass(frozen=True)
class ProximalSettings:
    """Clipped policy steps (PPO), and the regression of the critics."""

    epochs: Annotated[int, In("[1, 100000]")] = 10
    """Maximum number of passes over the batch."""
    minibatch: Count = 3_000
    """Number of steps in one minibatch."""
    policy_rate: Rate = 2e-3
    """Initial learning rate of the policy (Adam)."""
    kl_target: Annotated[float, In("(0, 10]")] | None = 0.01
    """KL divergence that one update should cause. The learning rate is multiplied by 1.5 if the policy moved by less
    than half of it, divided by 1.5 if by more than twice of it, and stays within a tenth and ten times `policy_rate`.
    None: constant learning rate."""
    critic_rate: Rate = 3e-3
    """Learning rate of the critics (Adam)."""
    clip: Annotated[float, In("(0, 10]")] = 0.2
    """Relative change of an action's probability beyond which its gradient is cut off."""
    kl_stop: Annotated[float, In("(0, 1e9]")] | None = 0.1
    """KL divergence from the policy before the update beyond which it rests for the remaining passes. None: never."""
    standardise: bool = True
    """Whether advantages are shifted and scaled to mean 0 and standard deviation 1 before the policy's steps."""
    max_gradient_norm: Annotated[float, In("(0, inf]")] = 0.5
    """Norm to which longer gradients of the policy or the critics are shortened; inf: never."""
    entropy: Annotated[float, In("[-100, 100]")] = 0.0
    """Weight of the policy's entropy, in standard deviations of the advantage; below 0 noise is penalised."""
    critic_loss: Literal["squared", "clipped"] = "squared"
    """Loss of the critics. squared: the squared error. clipped: values stay within `clip` of old ones, as in PPO."""


@final
class ProximalUpdate:
    """PPO's clipped surrogate for the policy and regression for the critics, with Adam.

    Gradients are in closed form: for networks this small, autograd takes longer than the arithmetic.
    """

    def __init__(self, policy: GaussianPolicy, critics: Critics, settings: ProximalSettings) -> None:
        self.settings = settings
        self.std_floor = policy.settings.std_floor
        """Lower bound of the policy's standard deviation after every step, in half widths of the action range."""
        self._policy = policy
        self.policy_optimiser = torch.optim.Adam(policy.parameters(), lr=settings.policy_rate, fused=True)
        self.regression = CriticRegression(critics, settings)

    @torch.no_grad()
    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        settings, count = self.settings, len(batch.inputs)
        regression = self.regression.of(batch.critic_inputs, batch.targets)
        advantage = batch.lagrangian
        if settings.standardise:
            advantage = advantage - advantage.mean()
            # Small beside the advantages themselves, so that their unit does not matter.
            advantage = advantage / (advantage.std(correction=0) + 1e-8 * advantage.abs().amax()).clamp(min=1e-30)
        linear = [layer for layer in self._policy.network if isinstance(layer, nn.Linear)]
        actor = Networks([(layer.weight, layer.bias) for layer in linear], self._policy.log_std)
        old = self._density(actor.forward(batch.inputs[None])[0], batch.raw).log
        sizes = part_sizes(count, settings.minibatch)
        moving, epochs = True, 0
        for _ in range(settings.epochs):
            order = random_order(count, len(sizes), generator, advantage.device)
            if moving:
                steps = shuffled([batch.inputs, batch.raw, advantage, old], 0, order)
                divergences = [self._policy_step(actor, *part) for part in cut(steps, sizes, dim=0)]
                moving = settings.kl_stop is None or not float(torch.stack(divergences).mean()) > settings.kl_stop
                epochs += 1
            regression.epoch(order, sizes)
        log_ratio = self._density(actor.forward(batch.inputs[None])[0], batch.raw).log - old
        change = log_ratio.expm1()
        divergence, outside = (change - log_ratio).mean(), (change.abs() > settings.clip).float().mean()
        # One transfer, so that the device is waited for once.
        kl, clipped, *critic_loss = torch.stack([divergence, outside, *regression.losses()]).tolist()
        self._adapt_rate(kl)
        return UpdateReport(kl, clipped, epochs, tuple(critic_loss))

    @property
    def optimisers(self) -> tuple[torch.optim.Adam, ...]:
        """Return the optimisers of the policy and the critics."""
        return self.policy_optimiser, self.regression.optimiser

    def state_dict(self) -> State:
        """Return the state of both optimisers."""
        return {
            "policy": optimiser_state(self.policy_optimiser),
            "critics": optimiser_state(self.regression.optimiser),
            "std_floor": self.std_floor,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        restore_optimiser(self.policy_optimiser, state["policy"])
        restore_optimiser(self.regression.optimiser, state["critics"])
        self.std_floor = float(state["std_floor"])

    def _adapt_rate(self, kl: float) -> None:
        target, first = self.settings.kl_target, self.settings.policy_rate
        if target is None or target / 2 <= kl <= 2 * target:
            return
        factor = 1.5 if kl < target / 2 else 1 / 1.5
        for group in self.policy_optimiser.param_groups:
            group["lr"] = min(10 * first, max(first / 10, group["lr"] * factor))

    def _policy_step(self, actor: Networks, inputs: Tensor, raw: Tensor, advantage: Tensor, old: Tensor) -> Tensor:
        """Take one gradient step and return an estimate of the divergence before it."""
        settings = self.settings
        density = self._density(actor.forward(inputs[None])[0], raw)
        log_ratio = density.log - old
        ratio = log_ratio.exp()
        # Costs are minimised, so the larger of the two is the pessimistic one. Where that is the clipped one, the
        # gradient is zero; elsewhere the derivative by the log density is ratio · advantage.
        free, held = ratio * advantage, ratio.clamp(1 - settings.clip, 1 + settings.clip) * advantage
        slope = torch.where(free < held, 0, free)[:, None] / len(inputs)
        actor.backward((slope * density.by_output)[None])
        actor.others[0].copy_((slope * density.by_log_std).sum(0) - settings.entropy)
        actor.limit(settings.max_gradient_norm)
        self.policy_optimiser.step()
        self._policy.floor_std(self.std_floor)
        return (ratio - 1 - log_ratio).mean()

    def _density(self, outputs: Tensor, raw: Tensor) -> _Density:
        """Compute the density of actions raw [N, nu] where the policy's network outputs [N, nu]."""
        policy = self._policy
        bound = policy.settings.mean_bound
        precision = (-policy.log_std).exp()
        mean = outputs if bound is None else bound * tanh_(outputs / bound)
        z = (raw - mean) * precision
        by_output = z * precision
        if bound is not None:
            by_output *= 1 - (mean / bound).square()
        square = z.square()
        return _Density(-0.5 * square.sum(-1) - policy.log_std.sum(), by_output, square - 1)


class _Density(NamedTuple):
    """Log density of actions, and its derivatives."""

    log: Tensor
    """Log density [N], up to a constant."""
    by_output: Tensor
    """Derivative of the log density by the outputs of the policy's network [N, nu]."""
    by_log_std: Tensor
    """Derivative of the log density by the logarithm of the standard deviation [N, nu]."""
