"""Safe, sample-efficient reinforcement learning: SAMBA, for systems where every real trial is expensive."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from samba_rl.registration import register_when_imported

if TYPE_CHECKING:
    from samba_rl.data import DataSet, Schema
    from samba_rl.models.gp import GPDynamics, GPSettings
    from samba_rl.models.world import ModelWorld
    from samba_rl.policies import UniformPolicy
    from samba_rl.rollout import rollout
    from samba_rl.tasks import SafeCartPoleDoublePendulum, SafeFetchReach, SafePendulum, make_task
    from samba_rl.tasks.gym import GymTask
    from samba_rl.tasks.hazard import AngleHazard
    from samba_rl.tasks.task import Quantity, Task, World
    from samba_rl.types import Policy, Traces, Transitions, UserError

__version__ = "0.1.0"

__all__ = [
    "AngleHazard",
    "DataSet",
    "GPDynamics",
    "GPSettings",
    "GymTask",
    "ModelWorld",
    "Policy",
    "Quantity",
    "SafeCartPoleDoublePendulum",
    "SafeFetchReach",
    "SafePendulum",
    "Schema",
    "Task",
    "Traces",
    "Transitions",
    "UniformPolicy",
    "UserError",
    "World",
    "make_task",
    "rollout",
]

_HOMES = {
    "samba_rl.data": ("DataSet", "Schema"),
    "samba_rl.models.gp": ("GPDynamics", "GPSettings"),
    "samba_rl.models.world": ("ModelWorld",),
    "samba_rl.policies": ("UniformPolicy",),
    "samba_rl.tasks": ("SafeCartPoleDoublePendulum", "SafeFetchReach", "SafePendulum", "make_task"),
    "samba_rl.tasks.gym": ("GymTask",),
    "samba_rl.tasks.hazard": ("AngleHazard",),
    "samba_rl.tasks.task": ("Quantity", "Task", "World"),
    "samba_rl.types": ("Policy", "Traces", "Transitions", "UserError"),
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import samba_rl` and `samba-rl --help` are quick."""
    if name == "rollout":
        # The function and its module share a name: importing the module would leave the module here.
        value: Any = importlib.import_module("samba_rl.rollout").rollout
    else:
        home = next((module for module, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'samba_rl' has no attribute '{name}'")
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


register_when_imported()
