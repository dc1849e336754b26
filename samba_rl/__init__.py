"""Safe, sample-efficient reinforcement learning: SAMBA, for systems where every real trial is expensive."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from samba_rl.registration import register_when_imported

if TYPE_CHECKING:
    from samba_rl.agent import Agent
    from samba_rl.agents import make_agent
    from samba_rl.data import DataSet, Schema
    from samba_rl.evaluation import Evaluation
    from samba_rl.learners import LEARNERS, Learner, Settings, make_settings
    from samba_rl.models.gp import GPDynamics, GPSettings
    from samba_rl.models.world import ModelWorld
    from samba_rl.planning import PlanningPolicy
    from samba_rl.policies import GaussianPolicy, UniformPolicy
    from samba_rl.rollout import rollout
    from samba_rl.runs import Run, load_run, resume, train
    from samba_rl.tasks import SafeCartPoleDoublePendulum, SafeFetchReach, SafePendulum, make_task
    from samba_rl.tasks.gym import GymTask
    from samba_rl.tasks.hazard import AngleHazard
    from samba_rl.tasks.task import Quantity, Task, World
    from samba_rl.types import Paused, Policy, Stopped, Traces, Transitions, UserError

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
    "samba_rl.agent": ("Agent",),
    "samba_rl.agents": ("make_agent",),
    "samba_rl.data": ("DataSet", "Schema"),
    "samba_rl.evaluation": ("Evaluation",),
    "samba_rl.learners": ("LEARNERS", "Learner", "Settings", "make_settings"),
    "samba_rl.models.gp": ("GPDynamics", "GPSettings"),
    "samba_rl.models.world": ("ModelWorld",),
    "samba_rl.planning": ("PlanningPolicy",),
    "samba_rl.policies": ("GaussianPolicy", "UniformPolicy"),
    "samba_rl.rollout": ("rollout",),
    "samba_rl.runs": ("Run", "load_run", "resume", "train"),
    "samba_rl.tasks": ("SafeCartPoleDoublePendulum", "SafeFetchReach", "SafePendulum", "make_task"),
    "samba_rl.tasks.gym": ("GymTask",),
    "samba_rl.tasks.hazard": ("AngleHazard",),
    "samba_rl.tasks.task": ("Quantity", "Task", "World"),
    "samba_rl.types": ("Paused", "Policy", "Stopped", "Traces", "Transitions", "UserError"),
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import samba_rl` and `samba-rl --help` are quick."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'samba_rl' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package, in which `train` and `rollout` are always the functions."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Whoever imports a module leaves it here under its name, which those two share with a function.
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
register_when_imported()
