"""Safe, sample-efficient reinforcement learning: SAMBA, for systems where every real trial is expensive."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samba_rl.agents.policy_gradient import Agent as Agent
    from samba_rl.agents.settings import Settings as Settings
    from samba_rl.data import DataSet as DataSet, Schema as Schema
    from samba_rl.errors import Paused as Paused, Stopped as Stopped, UserError as UserError
    from samba_rl.improve.constraints import Constraint as Constraint
    from samba_rl.improve.limits import ConstraintSettings as ConstraintSettings
    from samba_rl.improve.own_constraint import register_constraint as register_constraint
    from samba_rl.improve.policies import GaussianPolicy as GaussianPolicy, UniformPolicy as UniformPolicy
    from samba_rl.learners import (
        LEARNERS as LEARNERS,
        Chance as Chance,
        Cost as Cost,
        CVaR as CVaR,
        Entropy as Entropy,
        Expectation as Expectation,
        GPModel as GPModel,
        Information as Information,
        InformationGain as InformationGain,
        Learner as Learner,
        LeaveOneOut as LeaveOneOut,
        Projection as Projection,
        Proximal as Proximal,
        RealTrials as RealTrials,
        TrustRegion as TrustRegion,
    )
    from samba_rl.models.gp import GPDynamics as GPDynamics
    from samba_rl.models.settings import GPSettings as GPSettings
    from samba_rl.models.world import ModelWorld as ModelWorld
    from samba_rl.planet.policy import PlanningPolicy as PlanningPolicy
    from samba_rl.presets import make_agent as make_agent, make_settings as make_settings
    from samba_rl.runs import Run as Run, load_run as load_run, resume as resume, train as train
    from samba_rl.runs.evaluation import Evaluation as Evaluation
    from samba_rl.runs.request import Request as Request
    from samba_rl.runs.waiting import Receipt as Receipt, WaitingRun as WaitingRun, new_run as new_run
    from samba_rl.tasks import (
        SafeCartPoleDoublePendulum as SafeCartPoleDoublePendulum,
        SafeFetchReach as SafeFetchReach,
        SafePendulum as SafePendulum,
        make_task as make_task,
    )
    from samba_rl.tasks.gym.task import GymTask as GymTask
    from samba_rl.tasks.hazard import AngleHazard as AngleHazard
    from samba_rl.tasks.rig import RigTask as RigTask
    from samba_rl.tasks.rollout import rollout as rollout
    from samba_rl.tasks.task import Quantity as Quantity, Task as Task
    from samba_rl.tasks.world import World as World
    from samba_rl.types import Policy as Policy, Traces as Traces, Transitions as Transitions

__version__ = "0.2.0"

_HOMES = {
    "samba_rl.agents.policy_gradient": "Agent",
    "samba_rl.agents.settings": "Settings",
    "samba_rl.data": "DataSet Schema",
    "samba_rl.errors": "Paused Stopped UserError",
    "samba_rl.improve.constraints": "Constraint",
    "samba_rl.improve.limits": "ConstraintSettings",
    "samba_rl.improve.own_constraint": "register_constraint",
    "samba_rl.improve.policies": "GaussianPolicy UniformPolicy",
    "samba_rl.learners": "LEARNERS Chance Cost CVaR Entropy Expectation GPModel Information InformationGain Learner "
    "LeaveOneOut Projection Proximal RealTrials TrustRegion",
    "samba_rl.models.gp": "GPDynamics",
    "samba_rl.models.settings": "GPSettings",
    "samba_rl.models.world": "ModelWorld",
    "samba_rl.planet.policy": "PlanningPolicy",
    "samba_rl.presets": "make_agent make_settings",
    "samba_rl.runs": "Run load_run resume train",
    "samba_rl.runs.evaluation": "Evaluation",
    "samba_rl.runs.request": "Request",
    "samba_rl.runs.waiting": "Receipt WaitingRun new_run",
    "samba_rl.tasks": "SafeCartPoleDoublePendulum SafeFetchReach SafePendulum make_task",
    "samba_rl.tasks.gym.task": "GymTask",
    "samba_rl.tasks.hazard": "AngleHazard",
    "samba_rl.tasks.rig": "RigTask",
    "samba_rl.tasks.rollout": "rollout",
    "samba_rl.tasks.task": "Quantity Task",
    "samba_rl.tasks.world": "World",
    "samba_rl.types": "Policy Traces Transitions",
}
"""Public names by the module that defines them."""
__all__ = sorted(" ".join(_HOMES.values()).split())


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that `import samba_rl` and `samba-rl --help` are quick."""
    home = next((module for module, names in _HOMES.items() if name in names.split()), None)
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
