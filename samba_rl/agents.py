"""The agent that fits the settings."""

from __future__ import annotations

from samba_rl.agent import Agent
from samba_rl.learners import Settings
from samba_rl.learning import AnyAgent
from samba_rl.planet import PlanetAgent
from samba_rl.reports import Log
from samba_rl.tasks.task import Task


def make_agent(
    task: Task, settings: Settings, *, seed: int = 0, device: str = "cpu", log: Log | None = None
) -> AnyAgent:
    """An agent that learns the task as the settings say: `tell` it real traces, `ask` it for the next policy."""
    kind = PlanetAgent if settings.traces == "latent" else Agent
    return kind(task, settings, seed=seed, device=device, log=log)
