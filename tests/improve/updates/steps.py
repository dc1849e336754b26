"""Policies, steps and reference quantities for the tests of natural-gradient steps."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.trust_region import flat
from tests.traces import last_layer, seeded, simple_policy


def a_policy(
    *, hidden: tuple[int, ...] = (6,), mean_bound: float | None = 1.1, std: float = 0.6, seed: int = 0
) -> GaussianPolicy:
    """Make a policy from three observations to two actions whose mean varies strongly."""
    policy = simple_policy(3, 2, hidden=hidden, mean_bound=mean_bound, std=std, seed=seed)
    with torch.no_grad():
        last_layer(policy).weight.mul_(50)
        policy.log_std.add_(torch.tensor([0.0, 0.2]))
    return policy


def steps(policy: GaussianPolicy, n: int = 64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, on-policy actions and random advantages."""
    generator = seeded(seed)
    inputs = torch.randn(n, 3, generator=generator)
    with torch.no_grad():
        mean = policy.mean_of(inputs)
        raw = mean + policy.std * torch.randn(mean.shape, generator=generator)
    return inputs, raw, 3 + 5 * torch.randn(n, generator=generator)


def standardised(advantage: Tensor) -> Tensor:
    return (advantage - advantage.mean()) / advantage.std(correction=0)


KINDS = ("random", "outlier", "zero", "constant", "rounding", "nan", "inf")


def random_advantage(kind: str, n: int, seed: int) -> Tensor:
    advantage = torch.randn(n, generator=seeded(seed))
    if kind == "outlier":
        advantage[0] = 1e4
    elif kind in ("nan", "inf"):
        advantage[n // 2] = float(kind)
    elif kind in ("zero", "constant"):
        advantage = torch.full((n,), 0.0 if kind == "zero" else 0.1 * (1 + seed))
    elif kind == "rounding":  # only the last digits differ
        advantage = torch.full((n,), 0.1 * (1 + seed)) * (1 + 1e-7 * advantage.sign())
    return advantage


def unchanged(policy: GaussianPolicy, before: GaussianPolicy) -> bool:
    return all(torch.equal(a, b) for a, b in zip(policy.parameters(), before.parameters(), strict=True))


def surrogate(policy: GaussianPolicy, inputs: Tensor, raw: Tensor, advantage: Tensor, old_log: Tensor) -> Tensor:
    """Compute mean(ratio · advantage [N]), where the actions raw [N, nu] had the log density `old_log` [N] before."""
    return ((policy.log_density(inputs, raw) - old_log).exp() * advantage).mean()


def hessian_of_divergence(policy: GaussianPolicy, inputs: Tensor) -> Tensor:
    """Compute the Hessian [P, P] of the mean divergence of a policy from itself, by autograd."""
    shapes = [parameter.shape for parameter in policy.parameters()]
    old_mean, old_std = policy.mean_of(inputs).detach(), policy.std.detach()

    def divergence(vector: Tensor) -> Tensor:
        parts = torch.split(vector, [shape.numel() for shape in shapes])
        log_std, *layers = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        out = inputs
        for i in range(0, len(layers), 2):
            out = (out.tanh() if i else out) @ layers[i].T + layers[i + 1]
        bound = policy.settings.mean_bound
        mean = out if bound is None else bound * (out / bound).tanh()
        return kl_divergence(Normal(old_mean, old_std), Normal(mean, log_std.exp())).sum(-1).mean()

    hessian = torch.autograd.functional.hessian(divergence, flat(policy))  # type: ignore[no-untyped-call]
    assert isinstance(hessian, Tensor)
    return hessian
