"""Traces made by hand, and a point on a line that a policy can learn to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.types import Policy, Traces

Rows = Sequence[Sequence[float]] | Tensor
"""Numbers [B, T]."""


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def double(numbers: Any) -> Tensor:
    return torch.as_tensor(numbers, dtype=torch.float64)


def by_hand(
    cost: Rows | None = None,
    *,
    safety: Rows | Sequence[Rows] | None = None,
    violation: Rows | Sequence[Rows] | None = None,
    zeta: Rows | None = None,
    lengths: Sequence[int] | None = None,
    observation: Tensor | None = None,
    wanted: Tensor | None = None,
) -> Traces:
    """Return traces with these numbers [B, T], zeros elsewhere and actions within ±1; safety costs may be a list.

    After an episode's length all costs are set to zero, as a rollout would.
    """
    given = next(double(numbers) for numbers in (cost, safety, violation, zeta) if numbers is not None)
    n, horizon = given.shape[-2:]
    ends = torch.full((n,), horizon) if lengths is None else torch.tensor(lengths)
    active = torch.arange(horizon) < ends[:, None]

    def columns(numbers: Rows | Sequence[Rows] | None) -> Tensor:
        """Return a tensor [B, T, m]."""
        if numbers is None:
            return torch.zeros(n, horizon, 1, dtype=torch.float64)
        out = double(numbers)
        return (out[None] if out.dim() == 2 else out).movedim(0, -1) * active[..., None]

    seen = torch.zeros(n, horizon, 1, dtype=torch.float64) if observation is None else observation
    asked = torch.zeros(n, horizon, 1, dtype=torch.float64) if wanted is None else wanted
    return Traces(
        x=torch.cat([seen, seen[:, -1:]], dim=1),
        observation=seen,
        u=asked.clamp(-1, 1),
        cost=torch.zeros(n, horizon, dtype=torch.float64) if cost is None else double(cost) * active,
        safety=columns(safety),
        violation=columns(violation) > 0,
        active=active,
        terminated=active.sum(1) < horizon,
        wanted=asked,
        zeta=None if zeta is None else double(zeta) * active,
    )


def simple_policy(
    observations: int = 1,
    actions: int = 1,
    *,
    hidden: tuple[int, ...] = (),
    std: float = 0.6,
    mean_bound: float | None = None,
    seed: int = 0,
) -> GaussianPolicy:
    """Make a policy for actions within ±1 and raw observations; without hidden layers its mean is linear."""
    settings = PolicySettings(hidden=hidden, std=std, mean_bound=mean_bound)
    centre, scale = torch.zeros(observations), torch.ones(observations)
    return GaussianPolicy([-1.0] * actions, [1.0] * actions, centre, scale, settings, seeded(seed))


def last_layer(policy: GaussianPolicy) -> nn.Linear:
    layer = policy.network[-1]
    assert isinstance(layer, nn.Linear)
    return layer


def on_a_line(policy: Policy, n: int, horizon: int, seed: int, *, stop_within: float = 0.0) -> Traces:
    """Run a policy on a point that starts within ±1 and moves by half the action.

    The cost of a step is the square of the position it reaches, the safety cost the positive part of the position,
    which is unsafe beyond 0.05, and ζ its distance from 0. An episode ends within `stop_within` of 0.
    """
    generator = seeded(seed)
    x = 2 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 1
    active = torch.ones(n, dtype=torch.bool)
    states, wanted, on = [x], [], []
    for _ in range(horizon):
        asked = policy(x, generator)
        x = torch.where(active[:, None], x + 0.5 * asked.clamp(-1, 1), x)
        states.append(x)
        wanted.append(asked)
        on.append(active)
        active = active & (x[:, 0].abs() >= stop_within)
    places, took_place = torch.stack(states, dim=1), torch.stack(on, dim=1)
    reached = places[:, 1:, 0]
    return by_hand(
        reached.square(),
        safety=reached.clamp(min=0),
        violation=(reached > 0.05).double(),
        zeta=reached.abs(),
        lengths=took_place.sum(1).tolist(),
        observation=places[:, :-1],
        wanted=torch.stack(wanted, dim=1),
    )
