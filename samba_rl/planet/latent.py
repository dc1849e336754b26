"""PlaNet's recurrent state-space model: a deterministic path and a stochastic latent state, learned from sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from samba_rl.errors import UserError
from samba_rl.improve.policies import tanh_
from samba_rl.planet.networks import PICTURE, as_floats, initialise, layers, picture_decoder, picture_encoder

LEAST_STD = 0.1
"""Of the latent state; its scale is the model's own choice."""
LEAST_HEAD_STD = 0.02
"""Of what the heads predict, in standard deviations of the first data: better than this is not worth any nats."""
FIRST_HEAD_STD = 0.3
"""The same before anything is learned."""


@dataclass(frozen=True)
class LatentSettings:
    """The latent model of PlaNet, and how it is learned."""

    observation: Literal["vector", "pixels"] = "vector"
    """What the model sees: the task's observation, or pictures of 64 x 64 pixels that are drawn from the state."""
    deterministic: int = 48
    """Units of the recurrent path."""
    stochastic: int = 8
    """Dimensions of the stochastic state."""
    hidden: int = 48
    """Units of the hidden layers."""
    channels: int = 8
    """Of the first of four convolutions, if pixels are seen; each further one has twice as many."""
    free_nats: float = 1.0
    """A divergence of posterior from prior below this many nats a step costs nothing."""
    overshooting: int = 1
    """Steps ahead over which the prior is held against later posteriors; 1: none but the usual one."""
    updates: int = 100
    """Gradient steps after each real trial."""
    first_updates: int = 300
    """Gradient steps before the first trial of the planner."""
    batch: int = 50
    """Sequences in a gradient step."""
    length: int = 30
    """Steps of a sequence at most."""
    rate: float = 2e-3
    """Adam's learning rate at first; it falls to a tenth by the end of the run."""
    max_gradient_norm: float = 10.0
    safety_weight: float = 1.5
    """Where the planner minimises the safety cost too (planet-rs): what a unit of it weighs, in units of the mean size
    of a step's cost in the first data."""

    def __post_init__(self) -> None:
        for name in (
            "deterministic", "stochastic", "hidden", "channels", "overshooting", "updates", "first_updates", "batch",
            "length",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise UserError(f"latent.{name} = {getattr(self, name)}; it must be at least 1")
        for name in ("rate", "max_gradient_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"latent.{name} = {getattr(self, name)}; it must be positive")
        for name in ("free_nats", "safety_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"latent.{name} = {getattr(self, name)}; it must be at least zero")


class Normal(NamedTuple):
    """Independent Gaussians."""

    mean: Tensor
    std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """A draw, from standard normal noise of the same shape."""
        return self.mean + self.std * noise

    def detached(self) -> Normal:
        """The same, through which no gradient goes."""
        return Normal(self.mean.detach(), self.std.detach())


class Belief(NamedTuple):
    """What is thought of B systems."""

    h: Tensor
    """The deterministic path [B, nd]."""
    s: Tensor
    """The stochastic state [B, ns]."""


class Sequences(NamedTuple):
    """Parts of B real episodes, of up to L steps, as the model sees them."""

    observation: Tensor
    """Before each step and after the last: normalised [B, L + 1, no], or pictures [B, L + 1, 3, 64, 64] (uint8)."""
    action: Tensor
    """In half widths of their range [B, L, nu]."""
    outcome: Tensor
    """What the steps cost, normalised: the cost first, then each safety cost [B, L, 1 + m]."""
    active: Tensor
    """Whether the step took place [B, L] (bool)."""


class Evidence(NamedTuple):
    """The negative evidence bound and its parts, in nats a step."""

    loss: Tensor
    """What is minimised: with free nats, and overshooting where there is any."""
    observation: Tensor
    """Negative log likelihood of the observations,"""
    cost: Tensor
    """of the cost"""
    safety: Tensor
    """and of the safety costs."""
    kl: Tensor
    """Divergence of posterior from prior."""


def kl_normal(p: Normal, q: Normal) -> Tensor:
    """KL(p ‖ q) [...] of Gaussians with means and standard deviations [..., n]."""
    ratio = p.std / q.std
    return 0.5 * (ratio.square() + ((p.mean - q.mean) / q.std).square() - 1 - 2 * ratio.log()).sum(-1)


def negative_log_normal(error: Tensor, log_std: Tensor) -> Tensor:
    """-log N(error; 0, e^(2 log_std)), elementwise; the two broadcast."""
    return 0.5 * (error * (-log_std).exp()).square() + log_std + 0.5 * math.log(2 * math.pi)


@final
class LatentModel(nn.Module):
    """h' = GRU(h, s, u) and s' ~ prior(h'), or posterior(h', observation); heads for all that is seen and charged.

    What a step costs is predicted from where it leads: h' has seen where it began and what was done.
    """

    centre: Tensor
    scale: Tensor
    outcome_mean: Tensor
    outcome_scale: Tensor

    def __init__(
        self, observations: int, actions: int, constraints: int, settings: LatentSettings, generator: Generator
    ) -> None:
        super().__init__()
        self.settings = settings
        self.actions = actions
        # What observations and outcomes are normalised by.
        self.register_buffer("centre", torch.zeros(observations))
        self.register_buffer("scale", torch.ones(observations))
        self.register_buffer("outcome_mean", torch.zeros(1 + constraints))
        self.register_buffer("outcome_scale", torch.ones(1 + constraints))
        nd, ns, hidden = settings.deterministic, settings.stochastic, settings.hidden
        pixels = settings.observation == "pixels"
        self.encoder = picture_encoder(settings.channels, hidden) if pixels else layers(observations, hidden, hidden)
        self.embed = nn.Linear(ns + actions, hidden)
        self.gru = nn.GRUCell(hidden, nd)
        self.prior_layers = layers(nd, hidden, 2 * ns)
        self.posterior_layers = layers(nd + hidden, hidden, 2 * ns)
        self.decoder = picture_decoder(nd + ns, settings.channels) if pixels else layers(nd + ns, hidden, observations)
        self.cost_head = layers(nd + ns, hidden, 1)
        self.safety_head = layers(nd + ns, hidden, constraints)
        # A picture's pixels count as in PlaNet, with standard deviation one; the others' are learned.
        self.observation_log_std = nn.Parameter(torch.zeros(observations), requires_grad=not pixels)
        self.outcome_log_std = nn.Parameter(torch.zeros(1 + constraints))
        initialise(self, generator)
        with torch.no_grad():
            self.outcome_log_std.fill_(math.log(FIRST_HEAD_STD))
            if not pixels:
                self.observation_log_std.fill_(math.log(FIRST_HEAD_STD))

    # One step -------------------------------------------------------------------------------------------------------

    def begin(self, n: int) -> Tensor:
        """The deterministic path of n systems of which nothing is known [n, nd]."""
        return self.centre.new_zeros(n, self.settings.deterministic)

    def forward(self, belief: Belief, action: Tensor) -> Tensor:
        """Where actions [B, nu] lead the deterministic path [B, nd]."""
        joined = torch.cat([belief.s, action], dim=-1)
        h: Tensor = self.gru(functional.elu(self.embed(joined)), belief.h)
        return h

    def prior(self, h: Tensor) -> Normal:
        """The stochastic state [B, ns], before anything is seen."""
        return _normal(self.prior_layers(h))

    def posterior(self, h: Tensor, encoded: Tensor) -> Normal:
        """The stochastic state [B, ns] once it is seen what `encode` made of [B, hidden]."""
        return _normal(self.posterior_layers(torch.cat([h, encoded], dim=-1)))

    def encode(self, observation: Tensor) -> Tensor:
        """Normalised observations [..., no], or pictures [..., 3, 64, 64] (uint8), as the posterior sees them."""
        if self.settings.observation == "vector":
            return functional.elu(self.encoder(observation))
        flat = as_floats(observation).reshape(-1, 3, PICTURE, PICTURE)
        return functional.elu(self.encoder(flat)).reshape(*observation.shape[:-3], -1)

    def normalised(self, observation: Tensor) -> Tensor:
        """Observations [..., no] as the model sees them; pictures are left as they are."""
        if self.settings.observation == "pixels":
            return observation
        return ((observation - self.centre) / self.scale).float()

    def outcome(self, belief: Belief) -> Tensor:
        """What the step that led there cost, normalised: the cost first, then each safety cost [..., 1 + m]."""
        features = torch.cat(belief, dim=-1)
        return torch.cat([self.cost_head(features), self.safety_head(features)], dim=-1)

    def decode(self, belief: Belief) -> Tensor:
        """What is seen there: normalised [..., no], or pictures [..., 3, 64, 64] as `as_floats` gives them."""
        features = torch.cat(belief, dim=-1)
        seen: Tensor = self.decoder(features.reshape(-1, features.shape[-1]))
        return seen.reshape(*features.shape[:-1], *seen.shape[1:])

    # Learning -------------------------------------------------------------------------------------------------------

    def evidence(self, seen: Sequences, generator: Generator) -> Evidence:
        """The negative evidence bound of sequences, by states drawn from the posterior."""
        encoded = self.encode(seen.observation)
        count, steps = seen.active.shape
        noise = torch.randn(
            steps + 1, count, self.settings.stochastic, generator=generator, device=encoded.device, dtype=encoded.dtype
        )
        h = self.begin(count)
        paths: list[Tensor] = []
        states: list[Tensor] = []
        priors, posteriors = [], []
        for t in range(steps + 1):
            if t:
                h = self(Belief(paths[-1], states[-1]), seen.action[:, t - 1])
            posterior = self.posterior(h, encoded[:, t])
            paths.append(h)
            priors.append(self.prior(h))
            posteriors.append(posterior)
            states.append(posterior.sample(noise[t]))
        belief = Belief(torch.stack(paths, 1), torch.stack(states, 1))
        prior = Normal(*(torch.stack(parts, 1) for parts in zip(*priors, strict=True)))
        posterior = Normal(*(torch.stack(parts, 1) for parts in zip(*posteriors, strict=True)))
        # The first observation is always there; each later one if the step that led to it was.
        there = torch.cat([seen.active.new_ones(count, 1), seen.active], dim=1)
        return self._bound(seen, belief, prior, posterior, there)

    def _bound(self, seen: Sequences, belief: Belief, prior: Normal, posterior: Normal, there: Tensor) -> Evidence:
        total = there.sum()

        def mean(values: Tensor, mask: Tensor) -> Tensor:
            return values.where(mask, 0.0).sum() / total

        observed = mean(self._observation_loss(seen.observation, self.decode(belief)), there)
        after = Belief(belief.h[:, 1:], belief.s[:, 1:])
        log_std = self.outcome_log_std.clamp(min=math.log(LEAST_HEAD_STD))
        charged = negative_log_normal(seen.outcome - self.outcome(after), log_std)
        cost, safety = mean(charged[..., 0], seen.active), mean(charged[..., 1:].sum(-1), seen.active)
        divergence = kl_normal(posterior, prior)
        kept = mean(divergence.clamp(min=self.settings.free_nats), there)
        loss = observed + cost + safety + kept
        if self.settings.overshooting > 1:
            loss = loss + self._overshot(seen.action, belief, posterior.detached(), there)
        return Evidence(loss, observed, cost, safety, mean(divergence, there))

    def _observation_loss(self, observation: Tensor, seen: Tensor) -> Tensor:
        """[B, L + 1]"""
        if self.settings.observation == "pixels":
            error = as_floats(observation) - seen
            return negative_log_normal(error, error.new_zeros(())).flatten(2).sum(-1)
        log_std = self.observation_log_std.clamp(min=math.log(LEAST_HEAD_STD))
        return negative_log_normal(observation - seen, log_std).sum(-1)

    def _overshot(self, action: Tensor, belief: Belief, posterior: Normal, there: Tensor) -> Tensor:
        """The mean divergence of later posteriors from what the prior alone makes of earlier beliefs, over 2..D steps.

        Steps in between are the prior's means.
        """
        count, steps = action.shape[:2]
        total = there.sum()
        now, losses = Belief(belief.h[:, :-1], belief.s[:, :-1]), []
        for distance in range(1, min(self.settings.overshooting, steps) + 1):
            starts = steps + 1 - distance
            flat = Belief(*(part[:, :starts].reshape(count * starts, -1) for part in now))
            h = self(flat, action[:, distance - 1 :].reshape(count * starts, -1))
            prior = self.prior(h)
            now = Belief(h.view(count, starts, -1), prior.mean.view(count, starts, -1))
            if distance > 1:
                later = Normal(posterior.mean[:, distance:], posterior.std[:, distance:])
                shape = (count, starts, -1)
                divergence = kl_normal(later, Normal(prior.mean.view(shape), prior.std.view(shape)))
                free = divergence.clamp(min=self.settings.free_nats)
                losses.append(free.where(there[:, distance:], 0.0).sum() / total)
        return torch.stack(losses).mean() if losses else total.new_zeros((), dtype=torch.float32)

    # Looking ahead --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def see(self, h: Tensor, observation: Tensor) -> Belief:
        """The belief once observations [B, no], as they are measured, or pictures are seen; the posterior's mean."""
        return Belief(h, self.posterior(h, self.encode(self.normalised(observation))).mean)

    @torch.no_grad()
    def imagine(self, belief: Belief, actions: Tensor, safety_weight: float = 0.0) -> Tensor:
        """What action sequences [B, J, H, nu] would cost from there on, by the prior's means: [B, J].

        In the units of the task, summed over the steps: the cost, and `safety_weight` times the safety costs.
        """
        systems, sequences, horizon, _ = actions.shape
        h, s = (part.repeat_interleave(sequences, 0) for part in belief)
        size, weight_s = s.shape[-1], self.embed.weight[:, : s.shape[-1]].T
        # What does not depend on the state is computed for all steps at once.
        flat = actions.reshape(systems * sequences, horizon, -1).transpose(0, 1)
        pushed = functional.linear(flat, self.embed.weight[:, size:], self.embed.bias)
        first, _, last = self.prior_layers
        mean_weight, mean_bias = last.weight[:size], last.bias[:size]  # type: ignore[index]
        heads = [(self.cost_head, self.outcome_scale[:1])]
        if safety_weight:
            heads.append((self.safety_head, safety_weight * self.outcome_scale[1:]))
        total = actions.new_zeros(systems * sequences)
        for t in range(horizon):
            h = self._gru(functional.elu_(torch.addmm(pushed[t], s, weight_s)), h)
            s = functional.linear(functional.elu_(first(h)), mean_weight, mean_bias)
            features = torch.cat([h, s], dim=-1)
            for head, scale in heads:
                total += head(features) @ scale
        always = self.outcome_mean[0] + safety_weight * self.outcome_mean[1:].sum()
        return (total + horizon * always).view(systems, sequences)

    def _gru(self, x: Tensor, h: Tensor) -> Tensor:
        """As `self.gru`, with fewer passes over memory; no gradient goes through it."""
        gru, size = self.gru, h.shape[-1]
        gates = torch.addmm(gru.bias_hh[: 2 * size], h, gru.weight_hh[: 2 * size].T)
        gates = gates.addmm_(x, gru.weight_ih[: 2 * size].T).add_(gru.bias_ih[: 2 * size]).sigmoid_()
        reset, keep = gates.chunk(2, dim=-1)
        inner = torch.addmm(gru.bias_hh[2 * size :], h, gru.weight_hh[2 * size :].T)
        new = torch.addmm(gru.bias_ih[2 * size :], x, gru.weight_ih[2 * size :].T).addcmul_(reset, inner)
        return tanh_(new).lerp_(h, keep)

    @torch.no_grad()
    def open_loop(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """What is expected after each of the actions [B, L, nu], having seen observations [B, ...] before the first.

        The observations [B, L, no] (or pictures) and outcomes [B, L, 1 + m], in the units of the task.
        """
        belief = self.see(self.begin(len(observation)), observation)
        beliefs = []
        for t in range(action.shape[1]):
            h = self(belief, action[:, t])
            belief = Belief(h, self.prior(h).mean)
            beliefs.append(belief)
        path = Belief(*(torch.stack(parts, 1) for parts in zip(*beliefs, strict=True)))
        seen, outcome = self.decode(path), self.outcome(path)
        if self.settings.observation == "vector":
            seen = seen * self.scale + self.centre
        return seen, outcome * self.outcome_scale + self.outcome_mean


def _normal(parameters: Tensor) -> Normal:
    mean, raw = parameters.chunk(2, dim=-1)
    return Normal(mean, functional.softplus(raw) + LEAST_STD)
