"""The proximal update: several passes over one batch of traces, held near the policy that made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from torch import Generator, Tensor, nn

from samba_rl.advantages import Critics
from samba_rl.policies import GaussianPolicy
from samba_rl.types import State, UserError


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


class Batch(NamedTuple):
    """N steps with what there is to learn from them."""

    inputs: Tensor
    """Normalised observations [N, no]."""
    raw: Tensor
    """Actions in half widths [N, nu]."""
    advantage: Tensor
    """[N]; lower is better."""
    critic_inputs: Tensor
    """[K, N, nc]"""
    targets: Tensor
    """What the critics should have said [K, N]."""


class UpdateReport(NamedTuple):
    """How an update went."""

    kl: float
    """How far the policy moved."""
    clipped: float
    """Share of steps whose probability has changed by more than `clip` in the end."""
    epochs: int
    """Passes in which the policy moved."""
    critic_loss: tuple[float, ...]
    """In variances of the targets, by critic."""


@final
class ProximalUpdate:
    """PPO's clipped surrogate for the policy and regression for the critics, with Adam.

    Gradients are in closed form: with networks this small autograd takes longer than the sums themselves.
    """

    def __init__(self, policy: GaussianPolicy, critics: Critics, settings: ProximalSettings) -> None:
        self.settings = settings
        self.std_floor = policy.settings.std_floor
        """The policy's standard deviation is lifted to this after every step."""
        self._policy, self._critics = policy, critics
        self.policy_optimiser = torch.optim.Adam(policy.parameters(), lr=settings.policy_rate, fused=True)
        self.critic_optimiser = torch.optim.Adam(critics.parameters(), lr=settings.critic_rate, fused=True)

    @torch.no_grad()
    def __call__(self, batch: Batch, generator: Generator) -> UpdateReport:
        """Learn from a batch."""
        settings, count = self.settings, len(batch.inputs)
        self._critics.renormalise(batch.targets)
        targets = self._critics.normalised(batch.targets)
        advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std(correction=0) + 1e-8)
        linear = [layer for layer in self._policy.network if isinstance(layer, nn.Linear)]
        actor = _Networks([(layer.weight, layer.bias) for layer in linear], self._policy.log_std)
        critics = _Networks(list(zip(self._critics.weights, self._critics.biases, strict=True)))
        old = self._density(actor.forward(batch.inputs[None])[0], batch.raw).log
        old_values = [critics.forward(batch.critic_inputs)[..., 0]] if settings.critic_loss == "clipped" else []
        parts = max(1, round(count / settings.minibatch))
        sizes = [(part + 1) * count // parts - part * count // parts for part in range(parts)]
        moving, epochs = True, 0
        for _ in range(settings.epochs):
            steps, estimates = [batch.inputs, batch.raw, advantage, old], [batch.critic_inputs, targets, *old_values]
            if parts > 1:
                order = torch.randperm(count, generator=generator, device=advantage.device)
                steps = [each.index_select(0, order) for each in steps]
                estimates = [each.index_select(1, order) for each in estimates]
            if moving:
                divergences = [self._policy_step(actor, *part) for part in _cut(steps, sizes, dim=0)]
                moving = not float(torch.stack(divergences).mean()) > settings.kl_stop
                epochs += 1
            for part in _cut(estimates, sizes, dim=1):
                self._critic_step(critics, *part)
        log_ratio = self._density(actor.forward(batch.inputs[None])[0], batch.raw).log - old
        change = log_ratio.expm1()
        divergence, outside = (change - log_ratio).mean(), (change.abs() > settings.clip).float().mean()
        losses = (critics.forward(batch.critic_inputs)[..., 0] - targets).square().mean(1)
        # Together, so that the device is waited for once.
        kl, clipped, *critic_loss = torch.stack([divergence, outside, *losses]).tolist()
        self._adapt_rate(kl)
        return UpdateReport(kl, clipped, epochs, tuple(critic_loss))

    def state_dict(self) -> State:
        """What the optimisers remember."""
        return {
            "policy": _optimiser_state(self.policy_optimiser),
            "critics": _optimiser_state(self.critic_optimiser),
            "std_floor": self.std_floor,
        }

    def load_state_dict(self, state: State) -> None:
        """Go on as the one that gave this state would have."""
        _restore_optimiser(self.policy_optimiser, state["policy"])
        _restore_optimiser(self.critic_optimiser, state["critics"])
        self.std_floor = float(state["std_floor"])

    def _adapt_rate(self, kl: float) -> None:
        target, first = self.settings.kl_target, self.settings.policy_rate
        if target is None or target / 2 <= kl <= 2 * target:
            return
        factor = 1.5 if kl < target / 2 else 1 / 1.5
        for group in self.policy_optimiser.param_groups:
            group["lr"] = min(10 * first, max(first / 10, group["lr"] * factor))

    def _policy_step(self, actor: _Networks, inputs: Tensor, raw: Tensor, advantage: Tensor, old: Tensor) -> Tensor:
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

    def _critic_step(self, critics: _Networks, inputs: Tensor, targets: Tensor, *old: Tensor) -> None:
        """One gradient step; of the clipped loss if there are old values."""
        settings = self.settings
        values = critics.forward(inputs)[..., 0]
        error = values - targets
        # Of the sum over critics: each has its own parameters, so they meet in the limit on the gradient's norm alone.
        slope = error * (2 / error.shape[1])
        for before in old:
            held = values.clamp(before - settings.clip, before + settings.clip)
            slope.masked_fill_(error.abs() < (held - targets).abs(), 0)
        critics.backward(slope[..., None])
        critics.limit(settings.max_gradient_norm)
        self.critic_optimiser.step()

    def _density(self, outputs: Tensor, raw: Tensor) -> _Density:
        """Of actions raw [N, nu] where the policy's network says outputs [N, nu]."""
        policy = self._policy
        bound = policy.settings.mean_bound
        precision = (-policy.log_std).exp()
        mean = outputs if bound is None else bound * _tanh_(outputs / bound)
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


@final
class _Networks:
    """K tanh networks of one shape side by side, with their gradients in closed form; for use without autograd."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], *others: Tensor) -> None:
        """Weights [K, ni, no] and biases [K, 1, no] by layer, or those of `nn.Linear`; `others` are parameters too."""
        parameters = [*others, *(parameter for layer in layers for parameter in layer)]
        sizes = [parameter.numel() for parameter in parameters]
        self.gradient = torch.zeros(sum(sizes), device=parameters[0].device)
        """Of all parameters, one vector, so that its norm is one operation; their own gradients are views of it."""
        views = [part.view_as(p) for part, p in zip(torch.split(self.gradient, sizes), parameters, strict=True)]
        for parameter, view in zip(parameters, views, strict=True):
            parameter.grad = view
        self.others = views[: len(others)]
        rest = views[len(others) :]
        self._weights, self._biases = _stacked([w for w, _ in layers], [b for _, b in layers])
        self._weight_gradients, self._bias_gradients = _stacked(rest[::2], rest[1::2])
        self._activations: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs [K, N, no] at inputs [K, N, ni]."""
        self._activations = [inputs]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            self._activations.append(_tanh_(torch.baddbmm(bias, self._activations[-1], weight)))
        return torch.baddbmm(self._biases[-1], self._activations[-1], self._weights[-1])

    def backward(self, slope: Tensor) -> None:
        """Set the gradient, from the loss's derivative by the outputs [K, N, no] of the last call; once for each."""
        for i in reversed(range(len(self._weights))):
            before = self._activations.pop()
            self._weight_gradients[i].copy_(before.mT @ slope)
            torch.sum(slope, 1, keepdim=True, out=self._bias_gradients[i])
            if i:
                slope = slope @ self._weights[i].mT
                # In place: on a CPU new memory would cost more than the multiplication by 1 - tanh².
                torch.ops.aten.tanh_backward.grad_input(slope, before, grad_input=slope)

    def limit(self, norm: float) -> None:
        """Shorten the gradient to this norm."""
        self.gradient *= (norm / (self.gradient.norm() + 1e-6)).clamp(max=1)


def _optimiser_state(optimiser: torch.optim.Adam) -> State:
    (group,) = optimiser.param_groups
    moments = [{name: value.clone() for name, value in optimiser.state.get(p, {}).items()} for p in group["params"]]
    return {"rate": group["lr"], "moments": moments}


def _restore_optimiser(optimiser: torch.optim.Adam, state: State) -> None:
    (group,) = optimiser.param_groups
    group["lr"] = float(state["rate"])
    for parameter, moments in zip(group["params"], state["moments"], strict=True):
        optimiser.state.pop(parameter, None)
        if moments:
            kept = {"step": (), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            if {name: tuple(value.shape) for name, value in moments.items()} != kept:
                raise UserError(f"an optimiser's state does not fit a parameter of shape {list(parameter.shape)}")
            optimiser.state[parameter] = {name: value.to(parameter, copy=True) for name, value in moments.items()}


def _stacked(weights: list[Tensor], biases: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Views [K, ni, no] and [K, 1, no], also of one `nn.Linear`'s [no, ni] and [no]."""
    weights = [weight.T[None] if weight.dim() == 2 else weight for weight in weights]
    return weights, [bias.view(len(weight), 1, -1) for weight, bias in zip(weights, biases, strict=True)]


def _tanh_(x: Tensor) -> Tensor:
    """tanh(x) in place, on a CPU as 2 σ(2 x) - 1: PyTorch's sigmoid takes a sixth of the time of its tanh there."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1) if x.device.type == "cpu" else x.tanh_()


def _cut(tensors: list[Tensor], sizes: list[int], dim: int) -> Iterator[tuple[Tensor, ...]]:
    """Tensors of the same length along a dimension, part by part."""
    return zip(*(torch.split(tensor, sizes, dim) for tensor in tensors), strict=True)
