"""Configuration, summary and versions of a run, as its folder records them."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any, TypedDict

import torch

from samba_rl import __version__
from samba_rl.agents.agent import AnyAgent
from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.words import to_words
from samba_rl.data.plain import to_plain
from samba_rl.events import Event, ImprovementReport, Notice, TrialReport
from samba_rl.learners import LEARNERS, Learner
from samba_rl.models.zeta import ZETAS
from samba_rl.runs.session import About
from samba_rl.tasks import TASKS
from samba_rl.tasks.task import Task

TOLD, DRIVEN = "told", "rig"
"""Words in config.json of runs whose trials are told to them, or made by a command."""
CONTROLLED = "first_policy"
"""Entry of config.json of runs whose first trial a controller of the user's makes."""
LAST_TRIALS = 5
"""Number of last trials whose mean return a summary reports."""


def name_of(learner: str | Learner) -> str:
    """Return the name of a learner, for a run's folder; a row that is not in `LEARNERS` is called by its values."""
    if isinstance(learner, str):
        return learner
    known = next((name for name, row in LEARNERS.items() if row == learner), None)
    if known is not None:
        return known
    zeta, limit = learner.zeta, learner.constraint
    words = next((word for word, one in ZETAS.items() if one == zeta), type(zeta).__name__.lower())
    parts = [learner.source.label, *([limit.label] if limit else []), learner.update.label, *([words] if zeta else [])]
    return "-".join(parts)


def trials_of(config: Mapping[str, Any]) -> str:
    """Return how a run gets its trials; empty if it runs the system itself."""
    return str(config.get("trials", ""))


def config_of(task: Task, about: About, workers: int | None, trials: str = "") -> dict[str, Any]:
    """Return everything that a run depends on, for its config.json; `trials` says how it gets them."""
    return {
        "task": task.name,
        # A modified system of the paper (with another hazard, say) cannot be made again from its name alone.
        "changed_task": task.name not in TASKS or task != TASKS[task.name](),
        # Only ever shown to the user: nothing that a folder names is imported.
        "named": about.named,
        "learner": about.learner,
        "preset": about.preset,
        "seed": about.seed,
        "device": about.device,
        "threads": torch.get_num_threads(),
        "workers": workers,
        **({"trials": trials} if trials else {}),
        "versions": versions(),
        "row": to_words(about.row),
        "settings": to_plain(about.settings),
    }


def summary_of(agent: AnyAgent, events: list[Event], device: str) -> dict[str, Any]:
    """Return the results of a run, for its summary.json."""
    kinds = by_kind(events)
    trials, improvements = kinds["trials"], kinds["improvements"]
    last = trials[-LAST_TRIALS:]
    multipliers = agent.multipliers.each if isinstance(agent, Agent) else ()
    verdict = agent.verdict if isinstance(agent, Agent) and agent.constraints else None
    limits: list[dict[str, Any]] = [
        {
            "constraint": constraint.in_words(),
            "limit": constraint.limit,
            "target": multiplier.target,
            "lambda": multiplier.value,
            "least": multiplier.least,
            "least_error": multiplier.least_error,
            "feasible": None if multiplier.least is None else not multiplier.infeasible,
        }
        for constraint, multiplier in zip(agent.constraints, multipliers, strict=True)
    ]
    if verdict is not None:
        for limit, bound, most in zip(limits, verdict.bounds, verdict.ceilings, strict=True):
            limit.update(bound=bound, accepted=most)
    return {
        "real_samples": agent.real_samples,
        "earlier_samples": len(agent.data) - agent.real_samples,
        "episodes": sum(trial.episodes for trial in trials),
        "learning_TC": agent.learning_TC,
        "learning_TV": agent.learning_TV,
        "set_aside": len(agent.aside),
        "return_last_trials": sum(t.return_mean * t.episodes for t in last) / max(sum(t.episodes for t in last), 1),
        "constraints": limits,
        # On the model: whether every bound on the policy that was handed over is within what is accepted.
        "limit_kept": None if verdict is None else verdict.passes,
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
    """Group events by kind."""
    return {
        "trials": tuple(event for event in events if isinstance(event, TrialReport)),
        "improvements": tuple(event for event in events if isinstance(event, ImprovementReport)),
        "notices": tuple(event for event in events if isinstance(event, Notice)),
    }


@functools.cache
def versions() -> dict[str, str | None]:
    """Return the versions of the packages that the numbers depend on."""

    def of(package: str) -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    packages = {name: of(name) for name in ("torch", "gpytorch", "numpy", "scipy")}
    return {"samba_rl": __version__, "python": platform.python_version(), **packages}


def other_versions(config: Mapping[str, Any]) -> list[str]:
    """Return a notice if the run was started with other versions."""
    before, now = config.get("versions"), versions()
    if not isinstance(before, dict):
        return []
    changed = [
        f"{name} {before.get(name)} (now {version})" for name, version in now.items() if before.get(name) != version
    ]
    if not changed:
        return []
    return [f"the run was started with {', '.join(changed)}; it continues, but perhaps not to the same bits"]
