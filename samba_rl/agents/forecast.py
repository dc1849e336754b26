"""The forecast of a trial: what the model expects of a policy that has not made it yet."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import Generator

from samba_rl.agents.agent import AnyAgent
from samba_rl.agents.policy_gradient import Agent
from samba_rl.improve.constraints import estimate
from samba_rl.improve.experts import MixturePolicy
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.types import Policy, Traces

TRAJECTORIES = 500
"""Number of imagined trajectories."""
QUANTILES = (0.05, 0.95)
"""Range of the return that is given beside its mean."""


@dataclass(frozen=True)
class LimitForecast:
    """What the model expects of one limit."""

    words: str
    """Description of the constrained value."""
    value: float
    """Its value on imagined trajectories."""
    limit: float
    """Its limit."""
    bound: float | None = None
    """Upper confidence bound by which the gate judged the policy; None if nothing was judged."""
    accepted: float | None = None
    """Value that the bound may reach."""


@dataclass(frozen=True)
class Forecast:
    """What the model expects of the next trial."""

    return_mean: float
    """Mean return."""
    return_low: float
    """Return that 5 % of the imagined trajectories do not reach."""
    return_high: float
    """Return that 5 % of them exceed."""
    limits: tuple[LimitForecast, ...]
    """Each limit."""
    passes: bool | None
    """Verdict of the gate: whether every bound is within what is accepted; None if nothing was judged."""
    start: tuple[float, ...]
    """Mean of the states in which episodes have started."""
    first_action: tuple[float, ...]
    """Action of the policy there, of the likeliest expert if there are several, without noise and inside the bounds."""


def imagined(agent: AnyAgent, policy: Policy) -> Traces | None:
    """Return trajectories of a policy on the agent's model; None without a model. The agent stays as it is.

    First trials, whose actions are fixed in advance, are not imagined, though earlier data may have made a model.
    """
    if not (isinstance(agent, Agent) and agent.model is not None and len(agent.model)):
        return None
    imagine = agent._experience.imagine
    if imagine is None or not isinstance(policy, GaussianPolicy | MixturePolicy):
        return None
    moved = copy.deepcopy(policy).to(agent.device)
    return imagine(None)(moved, TRAJECTORIES, Generator(agent.device).manual_seed(0))


def forecast(agent: AnyAgent, policy: Policy, traces: Traces) -> Forecast:
    """Return what the agent expects of a policy, of which `imagined` returned trajectories."""
    assert isinstance(agent, Agent) and isinstance(policy, GaussianPolicy | MixturePolicy)
    low, high = traces.returns.quantile(traces.returns.new_tensor(QUANTILES)).tolist()
    verdict = agent.verdict
    bounds = (None,) * len(agent.constraints) if verdict is None else verdict.bounds
    accepted = (None,) * len(agent.constraints) if verdict is None else verdict.ceilings
    steps = agent.data.transitions
    start = steps.x[steps.step == 0].mean(0, keepdim=True)
    action = agent.task.clip(policy.still()(agent.task.observe(start), Generator()))
    return Forecast(
        return_mean=float(traces.returns.mean()),
        return_low=low,
        return_high=high,
        limits=tuple(
            LimitForecast(one.in_words(), estimate(one, traces).value, one.limit, bound, most)
            for one, bound, most in zip(agent.constraints, bounds, accepted, strict=True)
        ),
        passes=None if verdict is None else verdict.passes,
        start=tuple(start[0].tolist()),
        first_action=tuple(action[0].tolist()),
    )
