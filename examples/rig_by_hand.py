"""Learn on a rig that your own program runs: ask for a policy, run an episode, tell what was measured.

The rig is simulated here by `measure`. Replace it with a function that moves your hardware and returns its next state.

Usage:
    python examples/rig_by_hand.py           # about three minutes on two cores
    python examples/rig_by_hand.py smoke     # seconds: checks that everything works, learns little
"""

from __future__ import annotations

import sys

import torch
from torch import Generator, Tensor

from samba_rl import Policy, SafePendulum, Task, Traces, UniformPolicy, make_agent, make_settings


def measure(task: Task, x: Tensor, u: Tensor) -> Tensor:
    """Apply action u [1, nu] in state x [1, nx] and return the measured next state [1, nx]."""
    return task.step(x, u) + 0.001 * torch.randn(x.shape, dtype=x.dtype)


def run_episode(task: Task, policy: Policy, generator: Generator) -> Traces:
    """Run one episode on the rig and return its trace; cost and safety cost follow from the measured states."""
    states, actions, wanted = [task.start(1, generator)], [], []
    for _ in range(task.horizon):
        wanted.append(policy(task.observe(states[-1]), generator))
        actions.append(task.clip(wanted[-1]))
        states.append(measure(task, states[-1], actions[-1]))
    x, u = torch.cat(states), torch.cat(actions)
    cost, safety, violation = task.charge(x[:-1], u, x[1:])
    return Traces(
        x=x[None],
        observation=task.observe(x[:-1])[None],
        u=u[None],
        cost=cost[None],
        safety=safety[None],
        violation=violation[None],
        active=torch.ones(1, task.horizon, dtype=torch.bool),
        terminated=torch.zeros(1, dtype=torch.bool),
        wanted=torch.cat(wanted)[None],
    )


def main(preset: str = "default") -> None:
    """Spend the budget of real steps, one trial after the other."""
    task, generator = SafePendulum(), torch.Generator().manual_seed(0)
    agent = make_agent(task, "samba", make_settings(task.name, "samba", preset), seed=0)
    agent.tell(run_episode(task, UniformPolicy((-2.0,), (2.0,)), generator))  # the first trial: random torques [Nm]
    while episodes := agent.episodes_due():  # 0 once the budget is spent
        policy = agent.ask()
        traces = Traces.joined([run_episode(task, policy, generator) for _ in range(episodes)])
        agent.tell(traces)
        print(f"{agent.real_samples:4d} of {agent.settings.real_samples} steps: return {traces.returns.mean():.1f}")
    policy = agent.ask(last=True)
    final = Traces.joined([run_episode(task, policy, generator) for _ in range(10)])
    print(f"final policy: mean return {final.returns.mean():.1f} of ten more episodes")


if __name__ == "__main__":
    main(*sys.argv[1:])
