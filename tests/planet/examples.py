"""Small models, policies and agents for the tests of PlaNet."""

from __future__ import annotations

import torch

from samba_rl.events import Log
from samba_rl.improve.policies import UniformPolicy
from samba_rl.planet.agent import PlanetAgent
from samba_rl.planet.latent import LatentModel, LatentSettings
from samba_rl.planet.planner import PlannerSettings
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.planet.replay import Sequences
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import make_agent
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from samba_rl.types import Traces
from tests.line import Line, quick_settings

SMALL = LatentSettings(deterministic=5, stochastic=3, hidden=6, free_nats=0.0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def a_model(settings: LatentSettings = SMALL, seed: int = 0, constraints: int = 1) -> LatentModel:
    return LatentModel(2, 1, constraints, settings, seeded(seed))


def sequences(count: int = 4, steps: int = 5, seed: int = 0, constraints: int = 1) -> Sequences:
    generator = seeded(seed)
    return Sequences(
        torch.randn(count, steps + 1, 2, generator=generator),
        torch.rand(count, steps, 1, generator=generator) * 2 - 1,
        torch.randn(count, steps, 1 + constraints, generator=generator),
        torch.ones(count, steps, dtype=torch.bool),
    )


def quick(learner: str = "planet") -> PlanetSettings:
    settings = quick_settings(learner)
    assert isinstance(settings, PlanetSettings)
    return settings


def an_agent(
    learner: str = "planet",
    settings: PlanetSettings | None = None,
    *,
    task: Task | None = None,
    seed: int = 0,
    log: Log | None = None,
) -> PlanetAgent:
    agent = make_agent(task or Line(), learner, settings or quick(learner), seed=seed, log=log)
    assert isinstance(agent, PlanetAgent)
    return agent


def a_policy(planner: PlannerSettings | None = None, seed: int = 0) -> PlanningPolicy:
    settings = quick()
    return PlanningPolicy(Line(), settings.latent, planner or settings.planner, seeded(seed))


def random_trial(n: int = 10, seed: int = 0, task: Line | None = None) -> Traces:
    return rollout((task or Line()).world(), UniformPolicy((-1.0,), (1.0,)), n, generator=seeded(seed))
