"""The loop of the paper's Algorithm 1: real trials, a model, a policy improved on what the model imagines."""

from __future__ import annotations

from torch import Generator

from samba_rl.learning import AnyAgent, Learned
from samba_rl.sources import first_policy
from samba_rl.trials import Trials
from samba_rl.types import Policy


def train(agent: AnyAgent, trials: Trials, generator: Generator) -> Learned:
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
        trial(agent.ask(), episodes)
    agent.ask(last=True)
    return agent.policy
