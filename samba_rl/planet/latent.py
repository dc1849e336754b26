"""PlaNet's recurrent state-space model: a deterministic path and a stochastic latent state, with predictive heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, final

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from samba_rl.improve.policies import FARTHEST, tanh_
from samba_rl.planet.gaussian import Normal
from samba_rl.planet.networks import PICTURE, as_floats, initialise, layers, picture_decoder, picture_encoder
from samba_rl.ranges import Count, In, Rate, Units

LEAST_STD = 0.1
"""Least standard deviation of the latent state, whose scale is the model's own choice."""
FIRST_HEAD_STD = 0.3
"""Initial standard deviation of the heads' predictions, in standard deviations of the first data."""


@dataclass(frozen=True)
class LatentSettings:
    """PlaNet's latent model and its training."""

    observation: Literal["vector", "pixels"] = "vector"
    """Input of the model: the task's observation vector, or images of 64 x 64 pixels drawn from the state."""
    deterministic: Units = 48
    """Units of the recurrent path."""
    stochastic: Units = 8
    """Dimensions of the stochastic state."""
    hidden: Units = 48
    """Units of the hidden layers."""
    channels: Annotated[int, In("[1, 1000]")] = 8
    """Channels of the first of four convolutions, each of which doubles them; used for pixels only."""
    free_nats: Annotated[float, In("[0, 1e6]")] = 1.0
    """Divergence of posterior from prior, in nats per step, below which it is not penalised."""
    overshooting: Count = 1
    """Number of steps ahead over which the prior is matched with later posteriors. 1: no latent overshooting."""
    updates: Count = 100
    """Gradient steps after each real trial."""
    first_updates: Count = 300
    """Gradient steps before the planner's first trial."""
    batch: Annotated[int, In("[1, 1e6]")] = 50
    """Number of sequences in a gradient step."""
    length: Count = 30
    """Maximum number of steps in a sequence."""
    rate: Rate = 2e-3
    """Initial learning rate of Adam."""
    last_rate: Annotated[float, In("(0, 100]")] = 0.1
    """Share of the learning rate that is left at the end of the run, to which it falls geometrically; 1: constant."""
    max_gradient_norm: Annotated[float, In("(0, inf]")] = 10.0
    """Norm to which gradients are clipped; inf: never."""
    safety_weight: Annotated[float, In("[0, 1e6]")] = 1.5
    """Weight of the safety cost for a planner that minimises it too (planet-rs), in units of the mean absolute cost of
    a step in the first data."""


class Belief(NamedTuple):
    """Latent state of B systems."""

    h: Tensor
    """Deterministic path [B, nd]."""
    s: Tensor
    """Stochastic state [B, ns]."""


@final
class LatentModel(nn.Module):
    """Latent dynamics h' = GRU(h, s, u) with s' ~ prior(h') or posterior(h', observation), and predictive heads.

    A head sees the state that a step leads to. That is enough for the step's cost, because h' depends on where the step
    began and on the action.
    """

    centre: Tensor
    scale: Tensor
    outcome_mean: Tensor
    outcome_scale: Tensor

    def __init__(
        self, observations: int, actions: int, constraints: int, settings: LatentSettings, generator: Generator
    ) -> None:
        """Make a model of systems with these numbers of observations, actions and safety costs."""
        super().__init__()
        self.settings = settings
        self.actions = actions
        # Scales that normalise observations and outcomes.
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
        # Pixels have standard deviation 1, as in PlaNet; the standard deviations of vectors are learned.
        self.observation_log_std = nn.Parameter(torch.zeros(observations), requires_grad=not pixels)
        self.outcome_log_std = nn.Parameter(torch.zeros(1 + constraints))
        initialise(self, generator)
        with torch.no_grad():
            self.outcome_log_std.fill_(math.log(FIRST_HEAD_STD))
            if not pixels:
                self.observation_log_std.fill_(math.log(FIRST_HEAD_STD))

    # One step -------------------------------------------------------------------------------------------------------

    def begin(self, n: int) -> Tensor:
        """Return the deterministic path [n, nd] of n systems before the first observation."""
        return self.centre.new_zeros(n, self.settings.deterministic)

    def forward(self, belief: Belief, action: Tensor) -> Tensor:
        """Return the next deterministic path [B, nd] under actions [B, nu]."""
        joined = torch.cat([belief.s, action], dim=-1)
        h: Tensor = self.gru(functional.elu(self.embed(joined)), belief.h)
        return h

    def prior(self, h: Tensor) -> Normal:
        """Return the distribution of the stochastic state [B, ns] before an observation."""
        return _normal(self.prior_layers(h))

    def posterior(self, h: Tensor, encoded: Tensor) -> Normal:
        """Return the distribution of the stochastic state [B, ns] after an encoded observation [B, hidden]."""
        return _normal(self.posterior_layers(torch.cat([h, encoded], dim=-1)))

    def encode(self, observation: Tensor) -> Tensor:
        """Encode normalised observations [..., no], or images [..., 3, 64, 64] (uint8), as [..., hidden]."""
        if self.settings.observation == "vector":
            return functional.elu(self.encoder(observation))
        flat = as_floats(observation).reshape(-1, 3, PICTURE, PICTURE)
        return functional.elu(self.encoder(flat)).reshape(*observation.shape[:-3], -1)

    def normalised(self, observation: Tensor) -> Tensor:
        """Normalise observations [..., no]; leave images as they are."""
        if self.settings.observation == "pixels":
            return observation
        return ((observation - self.centre) / self.scale).float().clamp_(-FARTHEST, FARTHEST)

    def outcome(self, belief: Belief) -> Tensor:
        """Predict the normalised cost and safety costs [..., 1 + m] of the step that led to a belief."""
        features = torch.cat(belief, dim=-1)
        return torch.cat([self.cost_head(features), self.safety_head(features)], dim=-1)

    def decode(self, belief: Belief) -> Tensor:
        """Predict normalised observations [..., no], or images [..., 3, 64, 64] scaled as by `as_floats`."""
        features = torch.cat(belief, dim=-1)
        seen: Tensor = self.decoder(features.reshape(-1, features.shape[-1]))
        return seen.reshape(*features.shape[:-1], *seen.shape[1:])

    # Looking ahead --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def see(self, h: Tensor, observation: Tensor) -> Belief:
        """Return the belief after measured observations [B, no] or images: h with the posterior mean."""
        return Belief(h, self.posterior(h, self.encode(self.normalised(observation))).mean)

    @torch.no_grad()
    def imagine(self, belief: Belief, actions: Tensor, safety_weight: float = 0.0) -> Tensor:
        """Return the predicted cost [B, J] of action sequences [B, J, H, nu], following the prior means.

        It is summed over the steps, in the task's units: the cost plus `safety_weight` times the safety costs.
        """
        systems, sequences, horizon, _ = actions.shape
        h, s = (part.repeat_interleave(sequences, 0) for part in belief)
        size, weight_s = s.shape[-1], self.embed.weight[:, : s.shape[-1]].T
        # The part of the embedding that does not depend on the state is computed for all steps at once.
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
        """Compute `self.gru` with fewer passes over memory, but without gradients."""
        gru, size = self.gru, h.shape[-1]
        gates = torch.addmm(gru.bias_hh[: 2 * size], h, gru.weight_hh[: 2 * size].T)
        gates = gates.addmm_(x, gru.weight_ih[: 2 * size].T).add_(gru.bias_ih[: 2 * size]).sigmoid_()
        reset, keep = gates.chunk(2, dim=-1)
        inner = torch.addmm(gru.bias_hh[2 * size :], h, gru.weight_hh[2 * size :].T)
        new = torch.addmm(gru.bias_ih[2 * size :], x, gru.weight_ih[2 * size :].T).addcmul_(reset, inner)
        return tanh_(new).lerp_(h, keep)

    @torch.no_grad()
    def open_loop(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Predict the results of actions [B, L, nu] from the observations [B, ...] before the first of them.

        Returns observations [B, L, no] (or images) and outcomes [B, L, 1 + m] after each action, in the task's units.
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
