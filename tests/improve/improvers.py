"""Improvers with critics that predict a constant, and control iterations by hand."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.constraints import Constraint, CVaR, Expectation
from samba_rl.improve.objectives import Cost, Information, Objective
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.batch import Batch
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.rules import Proximal, UpdateSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.types import Traces
from tests.traces import on_a_line, seeded, simple_policy

COST, INFORMATION = Cost(), Information(LeaveOneOut())
SAFE = Expectation(name="hazard", limit=0.1)
TAIL = CVaR(name="hazard", limit=0.1, alpha=0.5)
PLAIN = AdvantageSettings(gamma=1.0, lam=1.0, hidden=(8,), time=True, tail_critic=True)
UPDATE = ProximalSettings(epochs=5, minibatch=10**6, policy_rate=0.01, kl_target=None, critic_rate=0.01)
FAST = ProximalSettings(epochs=10, minibatch=10**6, policy_rate=0.02, kl_target=None, kl_stop=0.03, critic_rate=0.02)


def improver_of(
    objectives: tuple[Objective, ...] = (COST,),
    constraints: tuple[Constraint, ...] = (),
    advantage: AdvantageSettings = PLAIN,
    update: ProximalSettings = UPDATE,
    *,
    spread: bool = True,
    expects: float = 0.0,
    seed: int = 0,
) -> Improver:
    """Make an improver whose critics all predict `expects` everywhere."""
    policy = simple_policy(hidden=(8,), mean_bound=1.1, seed=seed)
    numbers = UpdateSettings(update, TrustRegionSettings())
    improver = Improver(
        policy, objectives, constraints, advantage, Proximal(), numbers, seeded(seed), spread=spread
    )  # fmt: skip
    with torch.no_grad():
        improver.critics.weights[-1].zero_()
        improver.critics.biases[-1].fill_(expects)
        improver.critics.std.fill_(1)
    return improver


def batch_of(
    improver: Improver,
    traces: Traces,
    multipliers: tuple[float, ...] = (),
    units: tuple[float, ...] | None = None,
    least: float = 0.0,
) -> tuple[Batch, tuple[float, ...]]:
    """Return the batch that the update would learn from, and the weights of the objectives."""
    advantages = improver.advantages(traces)
    weights = improver.min_norm(advantages, least)
    return advantages.combined(weights, multipliers, units or (1.0,) * len(multipliers)), weights


def iterate(
    improver: Improver,
    traces: Traces,
    multipliers: tuple[float, ...],
    generator: Generator,
    units: tuple[float, ...] | None = None,
    least: float = 0.5,
) -> tuple[float, ...]:
    """Make one control iteration and return the weights of the objectives."""
    batch, weights = batch_of(improver, traces, multipliers, units, least)
    improver.update(batch, generator)
    return weights


def some_traces(seed: int = 0, stop_within: float = 0.0) -> Traces:
    return on_a_line(simple_policy(seed=seed), 20, 6, seed, stop_within=stop_within)


def numbers(improver: Improver) -> Tensor:
    """Return all parameters of the policy and the critics [P]."""
    parameters = [*improver.policy.parameters(), *improver.critics.parameters()]
    return torch.cat([parameter.detach().flatten() for parameter in parameters])
