"""The loop of the paper's Algorithm 1: real trials, a model, a policy improved on what the model imagines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Generator

from samba_rl.agents.first import first_policy
from samba_rl.types import Policy

if TYPE_CHECKING:
    from samba_rl.agents.agent import AnyAgent, Learned
    from samba_rl.runs.trials import Trials

Watch = Callable[[int, Policy], None]
"""Is given the number of the trial that a policy follows, and the policy, before it makes a trial of its own."""


def train(agent: AnyAgent, trials: Trials, generator: Generator, watch: Watch | None = None) -> Learned:
    """Algorithm 1: spend the agent's budget of real samples, and give the policy that it ends with.

    An agent that has learned before goes on where it was.
    """
    task, settings = agent.task, agent.settings

    def affordable(episodes: int) -> int:
        return min(episodes, max(0, settings.real_samples - agent.real_samples) // task.horizon)

    def trial(policy: Policy, episodes: int) -> None:
        with agent.clock("real"):
            outcome = trials(policy, episodes, generator)
        agent.tell(*outcome)
        trials.pause_if_due(outcome)

    first = settings.first
    while agent.iteration < 0 and (episodes := affordable(-(-first.samples // task.horizon))):
        trial(first_policy(task, first.how, episodes, first.hold, generator), episodes)
    while episodes := affordable(settings.episodes):
        policy = agent.ask()
        if watch is not None:
            watch(agent.iteration, policy)
        trial(policy, episodes)
    agent.ask(last=True)
    return agent.policy
