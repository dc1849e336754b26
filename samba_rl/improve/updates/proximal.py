"""The proximal update (PPO): several passes over one batch, near the policy that made it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal, final

import torch
from torch import Generator, Tensor

from samba_rl.capture import Recorder, side_by_side
from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.density import density_of, surrogate
from samba_rl.improve.updates.minibatches import Order, mean, minibatches
from samba_rl.improve.updates.networks import Networks, adam, optimiser_state, rate_of, restore_optimiser, set_rate
from samba_rl.improve.updates.regression import CriticRegression, Regression
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
        self._actor = Networks([(layer.weight, layer.bias) for layer in policy.layers], policy.log_std)
        self.policy_optimiser = adam(policy.parameters(), settings.policy_rate)
        self.regression = CriticRegression(critics, settings)
        self.recorder = Recorder(policy.log_std.device)

    @torch.no_grad()
    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        settings, device = self.settings, batch.inputs.device
        regression = self.regression.of(batch.critic_inputs, batch.targets)
        advantage = batch.lagrangian
        if settings.standardise:
            advantage = advantage - advantage.mean()
            # Small beside the advantages themselves, so that their unit does not matter.
            advantage = advantage / (advantage.std(correction=0) + 1e-8 * advantage.abs().amax()).clamp(min=1e-30)
        parts = minibatches(len(batch.inputs), settings.minibatch, device, fill=self.recorder.records)
        steps = parts.filled([batch.inputs, batch.raw, advantage], 0)
        steps.append(self.recorder(self._log_density, *steps[:2]))
        regression = replace(regression, tensors=parts.filled(regression.tensors, 1))
        floor = torch.full((), math.log(self.std_floor) if self.std_floor > 0 else -math.inf, device=device)
        # One minibatch is the same in all passes; nothing is to be decided between them unless the policy may rest.
        alike = settings.epochs if parts.one and settings.kl_stop is None else 1
        moving, epochs = True, 0
        for _ in range(settings.epochs // alike):
            order = parts.draw(generator)
            if not moving:
                self.recorder(Regression.epoch, regression, order, times=alike)
                continue
            divergence = self.recorder(self._pass, steps, regression, order, floor, times=alike)
            moving = settings.kl_stop is None or not float(divergence) > settings.kl_stop
            epochs += alike
        # One transfer, so that the device is waited for once.
        kl, clipped, *critic_loss = self.recorder(self._outcome, steps, regression, parts.whole).tolist()
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
        rate = rate_of(self.policy_optimiser)
        set_rate(self.policy_optimiser, min(10 * first, max(first / 10, rate * factor)))

    def _pass(self, steps: list[Tensor], regression: Regression, order: Order, floor: Tensor) -> Tensor:
        """Move policy and critics once through the batch; return an estimate of the policy's divergence before."""

        def move() -> Tensor:
            each = [self._policy_step(floor, share, *part) for share, part in order.parts(steps, dim=0)]
            return torch.stack(each).mean()

        divergence, _ = side_by_side(move, lambda: regression.epoch(order))
        assert divergence is not None
        return divergence

    def _policy_step(
        self, floor: Tensor, share: Tensor | None, inputs: Tensor, raw: Tensor, advantage: Tensor, old: Tensor
    ) -> Tensor:
        """Take one gradient step and return an estimate of the divergence before it."""
        settings, actor, policy = self.settings, self._actor, self._policy
        divergence = surrogate(policy, actor, share, inputs, raw, advantage, old, settings.clip)
        if settings.entropy:
            actor.others[0].sub_(settings.entropy)
        actor.limit(settings.max_gradient_norm)
        self.policy_optimiser.step()
        policy.log_std.clamp_(min=floor)
        return divergence

    def _log_density(self, inputs: Tensor, raw: Tensor) -> Tensor:
        """Return the log density [N] of actions raw [N, nu] at inputs [N, no], up to a constant."""
        return density_of(self._policy, self._actor.forward(inputs[None])[0], raw).log

    def _outcome(self, steps: list[Tensor], regression: Regression, whole: Order) -> Tensor:
        """Return the divergence from the policy before, the share of clipped steps, and the critics' losses [K + 2]."""
        share = None if whole.share is None else whole.share[0]
        inputs, raw, _, old = steps
        log_ratio = self._log_density(inputs, raw) - old
        change = log_ratio.expm1()
        divergence, outside = change - log_ratio, (change.abs() > self.settings.clip).float()
        return torch.stack([mean(divergence, share), mean(outside, share), *regression.losses(share)])
