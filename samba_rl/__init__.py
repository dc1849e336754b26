"""Safe, sample-efficient reinforcement learning: SAMBA, for systems where every real trial is expensive."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samba_rl.agents.policy_gradient import Agent
    from samba_rl.data import DataSet, Schema
    from samba_rl.errors import Paused, Stopped, UserError
    from samba_rl.improve.policies import GaussianPolicy, UniformPolicy
    from samba_rl.learners import LEARNERS, Learner, Settings, make_agent, make_settings
    from samba_rl.models.gp import GPDynamics, GPSettings
    from samba_rl.models.world import ModelWorld
    from samba_rl.planet.policy import PlanningPolicy
    from samba_rl.runs import Run, load_run, resume, train
    from samba_rl.runs.evaluation import Evaluation
    from samba_rl.tasks import SafeCartPoleDoublePendulum, SafeFetchReach, SafePendulum, make_task
    from samba_rl.tasks.gym.task import GymTask
    from samba_rl.tasks.hazard import AngleHazard
    from samba_rl.tasks.rollout import rollout
    from samba_rl.tasks.task import Quantity, Task, World
    from samba_rl.types import Policy, Traces, Transitions

__version__ = "0.1.0"

__all__ = [
    "LEARNERS",
    "Agent",
    "AngleHazard",
    "DataSet",
    "Evaluation",
    "GPDynamics",
    "GPSettings",
    "GaussianPolicy",
    "GymTask",
    "Learner",
    "ModelWorld",
    "Paused",
    "PlanningPolicy",
    "Policy",
    "Quantity",
    "Run",
    "SafeCartPoleDoublePendulum",
    "SafeFetchReach",
    "SafePendulum",
    "Schema",
    "Settings",
    "Stopped",
    "Task",
    "Traces",
    "Transitions",
    "UniformPolicy",
    "UserError",
    "World",
    "load_run",
    "make_agent",
    "make_settings",
    "make_task",
    "resume",
    "rollout",
    "train",
]

_HOMES = {
    "samba_rl.agents.policy_gradient": ("Agent",),
    "samba_rl.data": ("DataSet", "Schema"),
    "samba_rl.runs.evaluation": ("Evaluation",),
    "samba_rl.learners": ("LEARNERS", "Learner", "Settings", "make_agent", "make_settings"),
    "samba_rl.models.gp": ("GPDynamics", "GPSettings"),
    "samba_rl.models.world": ("ModelWorld",),
    "samba_rl.planet.policy": ("PlanningPolicy",),
    "samba_rl.improve.policies": ("GaussianPolicy", "UniformPolicy"),
    "samba_rl.tasks.rollout": ("rollout",),
    "samba_rl.runs": ("Run", "load_run", "resume", "train"),
    "samba_rl.tasks": ("SafeCartPoleDoublePendulum", "SafeFetchReach", "SafePendulum", "make_task"),
    "samba_rl.tasks.gym.task": ("GymTask",),
    "samba_rl.tasks.hazard": ("AngleHazard",),
    "samba_rl.tasks.task": ("Quantity", "Task", "World"),
    "samba_rl.errors": ("Paused", "Stopped", "UserError"),
    "samba_rl.types": ("Policy", "Traces", "Transitions"),
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import samba_rl` and `samba-rl --help` are quick."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'samba_rl' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


IDS = {
    "SafePendulum-v0": "safe-pendulum",
    "SafeCartPoleDoublePendulum-v0": "safe-cart-pole-double-pendulum",
    "SafeFetchReach-v0": "safe-fetch-reach",
}
"""Gymnasium ids of the paper's systems, and the names of their tasks."""


def _register() -> None:
    """Register the paper's systems with Gymnasium where that is installed; training does not need it."""
    if importlib.util.find_spec("gymnasium") is None:
        return
    import gymnasium

    for env_id, task in IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="samba_rl.tasks.gym.envs:SafeEnv",
                vector_entry_point="samba_rl.tasks.gym.envs:SafeVectorEnv",
                max_episode_steps=30,
                kwargs={"task": task},
            )


_register()
