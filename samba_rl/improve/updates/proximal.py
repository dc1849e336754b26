"""The proximal update: several passes over one batch of traces, held near the policy that made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

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
from samba_rl.types import State


@dataclass(frozen=True)
class ProximalSettings:
    """How far and how fast the policy moves."""

    epochs: int = 10
    """Passes over the batch at most."""
    minibatch: int = 3_000
    """Steps in one gradient."""
    policy_rate: float = 2e-3
    """Adam's learning rate of the policy, at first."""
    kl_target: float | None = 0.01
    """After each update the rate grows or shrinks by half, within a tenth and ten times the first one, if the policy
    moved by less than half or more than twice this divergence. None: it stays."""
    critic_rate: float = 3e-3
    """Adam's learning rate of the critics."""
    clip: float = 0.2
    """How far the probability of an action may change, as a share, before its gradient is cut off."""
    kl_stop: float = 0.1
    """The policy rests for the remaining passes once its divergence from where it began exceeds this."""
    max_gradient_norm: float = 0.5
    """Of the policy and of the critics."""
    entropy: float = 0.0
    """Weight of the policy's entropy, in standard deviations of the advantage."""
    critic_loss: Literal["squared", "clipped"] = "squared"


@final
class ProximalUpdate:
    """PPO's clipped surrogate for the policy and regression for the critics, with Adam.

    Gradients are in closed form: with networks this small autograd takes longer than the sums themselves.
    """

    def __init__(self, policy: GaussianPolicy, critics: Critics, settings: ProximalSettings) -> None:
        self.settings = settings
        self.std_floor = policy.settings.std_floor
        """The policy's standard deviation is lifted to this after every step."""
        self._policy = policy
        self.policy_optimiser = torch.optim.Adam(policy.parameters(), lr=settings.policy_rate, fused=True)
        self.regression = CriticRegression(critics, settings)

    @torch.no_grad()
    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        settings, count = self.settings, len(batch.inputs)
        regression = self.regression.of(batch.critic_inputs, batch.targets)
        advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std(correction=0) + 1e-8)
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
                moving = not float(torch.stack(divergences).mean()) > settings.kl_stop
                epochs += 1
            regression.epoch(order, sizes)
        log_ratio = self._density(actor.forward(batch.inputs[None])[0], batch.raw).log - old
        change = log_ratio.expm1()
        divergence, outside = (change - log_ratio).mean(), (change.abs() > settings.clip).float().mean()
        # Together, so that the device is waited for once.
        kl, clipped, *critic_loss = torch.stack([divergence, outside, *regression.losses()]).tolist()
        self._adapt_rate(kl)
        return UpdateReport(kl, clipped, epochs, tuple(critic_loss))

    @property
    def optimisers(self) -> tuple[torch.optim.Adam, ...]:
        """What remembers past gradients."""
        return self.policy_optimiser, self.regression.optimiser

    def state_dict(self) -> State:
        """What the optimisers remember."""
        return {
            "policy": optimiser_state(self.policy_optimiser),
            "critics": optimiser_state(self.regression.optimiser),
            "std_floor": self.std_floor,
        }

    def load_state_dict(self, state: State) -> None:
        """Go on as the one that gave this state would have."""
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
        """One gradient step; gives an estimate of the divergence before it."""
        settings = self.settings
        density = self._density(actor.forward(inputs[None])[0], raw)
        log_ratio = density.log - old
        ratio = log_ratio.exp()
        # Costs are minimised: the larger of the two is the pessimistic one. Where that is the held one the policy has
        # no influence; elsewhere the derivative by the log density is ratio · advantage itself.
        free, held = ratio * advantage, ratio.clamp(1 - settings.clip, 1 + settings.clip) * advantage
        slope = torch.where(free < held, 0, free)[:, None] / len(inputs)
        actor.backward((slope * density.by_output)[None])
        actor.others[0].copy_((slope * density.by_log_std).sum(0) - settings.entropy)
        actor.limit(settings.max_gradient_norm)
        self.policy_optimiser.step()
        self._policy.floor_std(self.std_floor)
        return (ratio - 1 - log_ratio).mean()

    def _density(self, outputs: Tensor, raw: Tensor) -> _Density:
        """Of actions raw [N, nu] where the policy's network says outputs [N, nu]."""
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
    """How likely actions are, and how that changes."""

    log: Tensor
    """The logarithm [N], up to a constant."""
    by_output: Tensor
    """Its derivative by the outputs of the policy's network [N, nu],"""
    by_log_std: Tensor
    """and by the logarithm of the standard deviation [N, nu]."""
