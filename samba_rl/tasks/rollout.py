"""Rollouts: a policy in a world, a batch of episodes, traces out; and the real system as a source of traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.tasks.task import World, no_costs_yet, remember_cost
from samba_rl.types import Policy, Remembering, Scripted, Traces


@torch.no_grad()
def rollout(world: World, policy: Policy, n: int, horizon: int | None = None, *, generator: Generator) -> Traces:
    """Run n episodes of at most `horizon` steps (None: the task's) and give their traces."""
    task = world.task
    steps = task.horizon if horizon is None else horizon
    if n < 1 or steps < 1:
        raise UserError(f"rollout: {n} episodes of {steps} steps; both must be at least 1")
    look = policy.camera if isinstance(policy, Remembering) else None
    acting = policy.begin(n) if isinstance(policy, Remembering) else policy
    x = world.reset(n, generator)
    recent = no_costs_yet(task, x)
    active = torch.ones(n, dtype=torch.bool, device=x.device)
    terminated = torch.zeros_like(active)
    rows: list[tuple[Tensor, ...]] = []
    states, zetas = [x], []
    for t in range(steps):
        observation = task.observe(x)
        # To plan is dear: nobody does it for episodes that have all ended.
        if acting is not policy and rows and not bool(active.any()):
            _, u, cost, safety, violation, _, _ = rows[-1]
            nothing = (torch.zeros_like(cost), torch.zeros_like(safety), torch.zeros_like(violation))
            rows += [(observation, u, *nothing, active, u)] * (steps - t)
            states += [x] * (steps - t)
            break
        wanted = acting(observation if look is None else look(x), generator)
        u = task.admit(wanted, n)
        step = world.step(x, u, active)
        if step.failed is not None:
            active = active & ~step.failed
        x = torch.where(active[:, None], step.x, x)
        cost, safety, violation = step.charges
        rows.append(
            (
                observation,
                u,
                cost.where(active, 0.0),
                safety.where(active[:, None], 0.0),
                violation & active[:, None],
                active,
                wanted,
            )
        )
        states.append(x)
        if step.zeta is not None:
            zetas.append(step.zeta.where(active, 0.0))
        remember_cost(recent, cost, t)
        ended = step.terminated | task.done(x, recent)
        terminated = terminated | (active & ended)
        active = active & ~(ended | step.truncated)
    observation_, u_, cost_, safety_, violation_, active_, wanted_ = (
        torch.stack(column, dim=1) for column in zip(*rows, strict=True)
    )
    zeta = torch.stack(zetas, dim=1) if zetas else None
    states_ = torch.stack(states, dim=1)
    return Traces(states_, observation_, u_, cost_, safety_, violation_, active_, terminated, wanted_, zeta)


@final
@dataclass(frozen=True)
class RealSource:
    """The real system as a source of traces."""

    world: World

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """Run n real trajectories; one after the other where there is a single system, such as a rig."""
        parts = policies_by_part(policy, n, parallel=self.world.task.parallel)
        return Traces.joined([rollout(self.world, one, count, generator=generator) for one, count in parts])


def policies_by_part(policy: Policy, n: int, *, parallel: bool) -> list[tuple[Policy, int]]:
    """Split n episodes into parts, each with its policy and its number of episodes: all at once, or one by one."""
    if parallel:
        return [(policy, n)]
    return [(policy.episode(i) if isinstance(policy, Scripted) else policy, 1) for i in range(n)]
