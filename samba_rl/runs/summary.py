"""What a run says of itself: its configuration at the beginning, its summary at the end, the versions of both."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any, TypedDict

import torch

from samba_rl import __version__
from samba_rl.agents.agent import AnyAgent
from samba_rl.data.plain import to_plain
from samba_rl.events import Event, ImprovementReport, Notice, TrialReport
from samba_rl.learners import LEARNERS, Learner
from samba_rl.runs.session import About
from samba_rl.tasks import TASKS
from samba_rl.tasks.task import Task

OWN = "own"
"""The name of a learner that is no row of `LEARNERS`."""
LAST_TRIALS = 5
"""Trials over which a summary takes the mean return at the end of learning."""


def name_of(learner: str | Learner) -> str:
    """What a learner is called in a run's folder."""
    if isinstance(learner, str):
        return learner
    return next((name for name, row in LEARNERS.items() if row == learner), OWN)


def config_of(task: Task, about: About, workers: int | None) -> dict[str, Any]:
    """All that a run depends on, for its folder."""
    return {
        "task": task.name,
        # A paper's system with another hazard, say, has the name but is not what the name alone would give.
        "changed_task": task.name not in TASKS or task != TASKS[task.name](),
        "learner": about.learner,
        "preset": about.preset,
        "seed": about.seed,
        "device": about.device,
        "threads": torch.get_num_threads(),
        "workers": workers,
        "versions": versions(),
        "settings": to_plain(about.settings),
    }


def summary_of(agent: AnyAgent, events: list[Event], device: str) -> dict[str, Any]:
    """What a run came to."""
    kinds = by_kind(events)
    trials, improvements = kinds["trials"], kinds["improvements"]
    last = trials[-LAST_TRIALS:]
    limits = [
        {
            "constraint": constraint.in_words(),
            "limit": constraint.limit,
            "target": multiplier.target,
            "lambda": multiplier.value,
            "least": multiplier.least,
            "feasible": None if multiplier.least is None else not multiplier.infeasible,
        }
        for constraint, multiplier in zip(agent.constraints, agent.multipliers, strict=True)
    ]
    return {
        "real_samples": agent.real_samples,
        "earlier_samples": len(agent.data) - agent.real_samples,
        "episodes": sum(trial.episodes for trial in trials),
        "learning_TC": agent.learning_TC,
        "learning_TV": agent.learning_TV,
        "return_last_trials": sum(t.return_mean * t.episodes for t in last) / max(sum(t.episodes for t in last), 1),
        "constraints": limits,
        "lambda_pi": improvements[-1].lambda_pi if improvements else None,
        "notices": [notice.text for notice in kinds["notices"]],
        "versions": versions(),
        "device": device,
        "threads": torch.get_num_threads(),
        "seconds": agent.clock.seconds,
        "seconds_by_phase": agent.clock.by_phase(),
    }


class _Events(TypedDict):
    trials: tuple[TrialReport, ...]
    improvements: tuple[ImprovementReport, ...]
    notices: tuple[Notice, ...]


def by_kind(events: list[Event]) -> _Events:
    """Events by what they are."""
    return {
        "trials": tuple(event for event in events if isinstance(event, TrialReport)),
        "improvements": tuple(event for event in events if isinstance(event, ImprovementReport)),
        "notices": tuple(event for event in events if isinstance(event, Notice)),
    }


@functools.cache
def versions() -> dict[str, str | None]:
    """Of what the numbers depend on."""

    def of(package: str) -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    packages = {name: of(name) for name in ("torch", "gpytorch", "numpy", "scipy")}
    return {"samba_rl": __version__, "python": platform.python_version(), **packages}


def other_versions(config: Mapping[str, Any]) -> list[str]:
    """What to say if the run was begun with other versions."""
    before, now = config.get("versions"), versions()
    if not isinstance(before, dict):
        return []
    changed = [
        f"{name} {before.get(name)} (now {version})" for name, version in now.items() if before.get(name) != version
    ]
    if not changed:
        return []
    return [f"the run was begun with {', '.join(changed)}: it goes on, but perhaps not bit for bit as it would have"]
