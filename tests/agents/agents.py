"""Agents on the line, small enough for tests, and what they log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from samba_rl.agents.agent import AnyAgent, Learned
from samba_rl.agents.first import FirstSettings
from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.settings import ModelBasedSettings, Settings
from samba_rl.data.packing import pack
from samba_rl.events import Event, ImprovementReport, LatentReport, Notice, Signal, TrialReport
from samba_rl.improve.policies import PolicySettings, UniformPolicy
from samba_rl.improve.step import WeightSettings
from samba_rl.learners import LEARNERS, Learner
from samba_rl.models.gp import GPDynamics
from samba_rl.presets import make_agent, make_settings
from samba_rl.tasks.rollout import rollout
from samba_rl.types import Traces, Transitions
from tests.line import Line
from tests.traces import seeded

RANDOM = UniformPolicy((-1.0,), (1.0,))
_SMOKE = make_settings("line", preset="smoke")
assert isinstance(_SMOKE, ModelBasedSettings)
QUICK = replace(
    _SMOKE,
    real_samples=40,
    first=FirstSettings(samples=20, how="uniform"),
    policy=PolicySettings(hidden=(8,)),
)
"""Settings for learners on a GP model, for a run of a second."""
PLAIN = replace(
    QUICK,
    feasibility_iterations=0,
    shield="off",
    imagination=replace(QUICK.imagination, starts=0, confirm="off"),
    weights=WeightSettings(explore=0),
)  # fmt: skip
"""The same without feasibility, gates, fresh starts and exploring copies: two control iterations after each trial, the
last one included."""
COST_ALONE = LEARNERS["samba"].with_zeta(None)


def agent_of(
    task: Line | None = None, learner: str | Learner = COST_ALONE, settings: Settings = PLAIN, seed: int = 0
) -> tuple[Agent, list[Event]]:
    """Return an agent and the list that it logs to."""
    events: list[Event] = []
    agent = make_agent(task or Line(), learner, settings, seed=seed, log=events.append)
    assert isinstance(agent, Agent)
    return agent, events


def model_of(agent: Agent) -> GPDynamics:
    assert agent.model is not None
    return agent.model


def real(episodes: int, seed: int = 0) -> Traces:
    """Return random real episodes."""
    return rollout(Line().world(), RANDOM, episodes, generator=seeded(seed))


def trials(events: Sequence[Event | Signal]) -> list[TrialReport]:
    return [event for event in events if isinstance(event, TrialReport)]


def improvements(events: Sequence[Event | Signal]) -> list[ImprovementReport]:
    return [event for event in events if isinstance(event, ImprovementReport)]


def notices(events: Sequence[Event | Signal]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def same(a: Transitions, b: Transitions) -> bool:
    return all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(Transitions))


def same_policy(a: Learned, b: Learned) -> bool:
    mine, other = a.state_dict(), b.state_dict()
    return all(torch.equal(mine[name], other[name]) for name in mine)


def finished(agent: AnyAgent) -> bytes:
    """Return everything that an agent ends with, but for the time that it took."""
    return pack(_untimed({**agent.state_dict(), "clock": None}))


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _untimed(each) for name, each in value.items() if name != "seconds"}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


def stripped(events: Sequence[Event | Signal]) -> list[Event | Signal]:
    """Return the events without their times."""
    timed = TrialReport | ImprovementReport | LatentReport
    return [replace(event, seconds=0.0) if isinstance(event, timed) else event for event in events]
