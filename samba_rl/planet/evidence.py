"""Training loss of the latent model: the negative evidence bound of real sequences."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from samba_rl.planet.gaussian import Normal, kl_normal, negative_log_normal
from samba_rl.planet.latent import Belief, LatentModel
from samba_rl.planet.networks import as_floats
from samba_rl.planet.replay import Sequences

LEAST_HEAD_STD = 0.02
"""Least standard deviation of the heads' predictions, in standard deviations of the first data. Without a lower bound
the loss would reward precision that no planner needs."""


class Evidence(NamedTuple):
    """The negative evidence bound and its parts, in nats per step."""

    loss: Tensor
    """Loss to minimise, with free nats and latent overshooting."""
    observation: Tensor
    """Negative log-likelihood of the observations."""
    cost: Tensor
    """Negative log-likelihood of the cost."""
    safety: Tensor
    """Negative log-likelihood of the safety costs."""
    kl: Tensor
    """Divergence of posterior from prior."""


def negative_evidence(model: LatentModel, sequences: Sequences, generator: Generator) -> Evidence:
    """Compute the negative evidence bound of normalised sequences, on states drawn from the posterior."""
    encoded = model.encode(sequences.observation)
    count, steps = sequences.active.shape
    noise = torch.randn(
        steps + 1, count, model.settings.stochastic, generator=generator, device=encoded.device, dtype=encoded.dtype
    )
    h = model.begin(count)
    paths: list[Tensor] = []
    states: list[Tensor] = []
    priors, posteriors = [], []
    for t in range(steps + 1):
        if t:
            h = model(Belief(paths[-1], states[-1]), sequences.action[:, t - 1])
        posterior = model.posterior(h, encoded[:, t])
        paths.append(h)
        priors.append(model.prior(h))
        posteriors.append(posterior)
        states.append(posterior.sample(noise[t]))
    belief = Belief(torch.stack(paths, 1), torch.stack(states, 1))
    prior = Normal(*(torch.stack(parts, 1) for parts in zip(*priors, strict=True)))
    posterior = Normal(*(torch.stack(parts, 1) for parts in zip(*posteriors, strict=True)))
    # The first observation always exists; a later one if the step that led to it took place.
    exists = torch.cat([sequences.active.new_ones(count, 1), sequences.active], dim=1)
    return _bound(model, sequences, belief, prior, posterior, exists)


def _bound(
    model: LatentModel, sequences: Sequences, belief: Belief, prior: Normal, posterior: Normal, exists: Tensor
) -> Evidence:
    total = exists.sum()

    def mean(values: Tensor, mask: Tensor) -> Tensor:
        return values.where(mask, 0.0).sum() / total

    observed = mean(_observation_loss(model, sequences.observation, model.decode(belief)), exists)
    after = Belief(belief.h[:, 1:], belief.s[:, 1:])
    log_std = model.outcome_log_std.clamp(min=math.log(LEAST_HEAD_STD))
    charged = negative_log_normal(sequences.outcome - model.outcome(after), log_std)
    cost, safety = mean(charged[..., 0], sequences.active), mean(charged[..., 1:].sum(-1), sequences.active)
    divergence = kl_normal(posterior, prior)
    kept = mean(divergence.clamp(min=model.settings.free_nats), exists)
    loss = observed + cost + safety + kept
    if model.settings.overshooting > 1:
        loss = loss + _overshooting(model, sequences.action, belief, posterior.detached(), exists)
    return Evidence(loss, observed, cost, safety, mean(divergence, exists))


def _observation_loss(model: LatentModel, observation: Tensor, predicted: Tensor) -> Tensor:
    """Compute the negative log-likelihood of observations or images [B, L + 1, ...]: [B, L + 1]."""
    if model.settings.observation == "pixels":
        error = as_floats(observation) - predicted
        return negative_log_normal(error, error.new_zeros(())).flatten(2).sum(-1)
    log_std = model.observation_log_std.clamp(min=math.log(LEAST_HEAD_STD))
    return negative_log_normal(observation - predicted, log_std).sum(-1)


def _overshooting(model: LatentModel, action: Tensor, belief: Belief, posterior: Normal, exists: Tensor) -> Tensor:
    """Compute the mean divergence of posteriors from the prior 2..D steps ahead of earlier beliefs.

    The steps in between follow the prior means.
    """
    settings = model.settings
    count, steps = action.shape[:2]
    total = exists.sum()
    now, losses = Belief(belief.h[:, :-1], belief.s[:, :-1]), []
    for distance in range(1, min(settings.overshooting, steps) + 1):
        starts = steps + 1 - distance
        flat = Belief(*(part[:, :starts].reshape(count * starts, -1) for part in now))
        h = model(flat, action[:, distance - 1 :].reshape(count * starts, -1))
        prior = model.prior(h)
        now = Belief(h.view(count, starts, -1), prior.mean.view(count, starts, -1))
        if distance > 1:
            later = Normal(posterior.mean[:, distance:], posterior.std[:, distance:])
            shape = (count, starts, -1)
            divergence = kl_normal(later, Normal(prior.mean.view(shape), prior.std.view(shape)))
            free = divergence.clamp(min=settings.free_nats)
            losses.append(free.where(exists[:, distance:], 0.0).sum() / total)
    return torch.stack(losses).mean() if losses else total.new_zeros((), dtype=torch.float32)
