"""Rollouts: run a policy in a world and return the traces of a batch of episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.task import no_costs_yet, remember_cost
from samba_rl.tasks.world import World
from samba_rl.types import Choosing, Policy, Remembering, Scripted, Traces


class _Row(NamedTuple):
    """Fields of `Traces` that hold one entry per step, for one step of B episodes."""

    observation: Tensor
    u: Tensor
    cost: Tensor
    safety: Tensor
    violation: Tensor
    active: Tensor
    wanted: Tensor

    def idle(self, observation: Tensor, active: Tensor) -> _Row:
        """Return a later row in which no episode takes a step."""
        charged = torch.zeros_like(self.cost), torch.zeros_like(self.safety), torch.zeros_like(self.violation)
        return _Row(observation, self.u, *charged, active, self.u)


@torch.no_grad()
def rollout(world: World, policy: Policy, n: int, horizon: int | None = None, *, generator: Generator) -> Traces:
    """Run n episodes of at most `horizon` steps (None: the task's horizon) and return their traces."""
    task = world.task
    steps = task.horizon if horizon is None else horizon
    if n < 1 or steps < 1:
        raise UserError(f"rollout: {n} episodes of {steps} steps; both must be at least 1")
    return follow(world, policy, world.reset(n, generator), steps, generator)


@torch.no_grad()
def follow(world: World, policy: Policy, x: Tensor, steps: int, generator: Generator) -> Traces:
    """Follow the policy for so many steps from where the world's episodes have started, in states x [n, nx]."""
    task, n = world.task, len(x)
    look = policy.camera if isinstance(policy, Remembering) else None
    acting = policy.begin(n) if isinstance(policy, Remembering) else policy
    recent = no_costs_yet(task, x)
    active = torch.ones(n, dtype=torch.bool, device=x.device)
    terminated = torch.zeros_like(active)
    rows: list[_Row] = []
    states, zetas = [x], []
    for t in range(steps):
        observation = task.observe(x)
        # Skip planning once every episode has ended; it is expensive.
        if acting is not policy and rows and not bool(active.any()):
            rows += [rows[-1].idle(_noted(acting, observation), active)] * (steps - t)
            states += [x] * (steps - t)
            break
        wanted = acting(observation if look is None else look(x), generator)
        u = task.admit(wanted, n)
        step = world.step(x, u, active)
        if step.failed is not None:
            active = active & ~step.failed
        x = torch.where(active[:, None], step.x, x)
        cost, safety, violation = step.charges
        charged = cost.where(active, 0.0), safety.where(active[:, None], 0.0), violation & active[:, None]
        rows.append(_Row(_noted(acting, observation), u, *charged, active, wanted))
        states.append(x)
        if step.zeta is not None:
            zetas.append(step.zeta.where(active, 0.0))
        remember_cost(recent, cost, t)
        ended = step.terminated | task.done(x, recent)
        terminated = terminated | (active & ended)
        active = active & ~(ended | step.truncated)
    columns = _Row(*(torch.stack(column, dim=1) for column in zip(*rows, strict=True)))
    zeta = torch.stack(zetas, dim=1) if zetas else None
    return Traces(x=torch.stack(states, dim=1), terminated=terminated, zeta=zeta, **columns._asdict())


def _noted(acting: Policy, observation: Tensor) -> Tensor:
    return acting.noted(observation) if isinstance(acting, Choosing) else observation


@final
@dataclass(frozen=True)
class RealSource:
    """Source of traces that runs the policy on the real system."""

    world: World
    """World in which the real episodes run."""

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """Run n real trajectories, one after the other if the system is a rig."""
        parts = policies_by_part(policy, n, parallel=self.world.task.parallel)
        return Traces.joined([rollout(self.world, one, count, generator=generator) for one, count in parts])


def policies_by_part(policy: Policy, n: int, *, parallel: bool) -> list[tuple[Policy, int]]:
    """Split n episodes into (policy, episodes) parts: one part if they can run in parallel, else one per episode."""
    if parallel:
        return [(policy, n)]
    return [(policy.episode(i) if isinstance(policy, Scripted) else policy, 1) for i in range(n)]
