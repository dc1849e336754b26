"""A run: a learner on a system with a seed, from the first real trial to the policy that it ends with."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, final

import torch

from samba_rl import __version__
from samba_rl.constraints import Constraint
from samba_rl.data import DataSet
from samba_rl.evaluation import Evaluation, evaluate
from samba_rl.learners import LEARNERS, Learner, Settings, make_settings
from samba_rl.models.gp import GPDynamics
from samba_rl.policies import GaussianPolicy, MeanPolicy
from samba_rl.reports import Event, ImprovementReport, Log, Notice, TrialReport
from samba_rl.runs.checks import changed, check, constraints_of, earlier_transitions, in_order_of
from samba_rl.runs.folder import (
    CONFIG,
    DATA,
    METRICS,
    POLICY,
    SUMMARY,
    FolderWriter,
    read_data,
    read_events,
    read_json,
    read_policy,
)
from samba_rl.runs.plain import from_plain, to_plain
from samba_rl.tasks import TASKS, make_task
from samba_rl.tasks.task import Task
from samba_rl.train import Agent
from samba_rl.train import train as spend
from samba_rl.types import Policy, UserError

OWN = "own"
"""The name of a learner that is no row of `LEARNERS`."""
LAST_TRIALS = 5
"""Trials over which a summary takes the mean return at the end of learning."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run that has ended: what it was, what happened, and what it led to."""

    task: Task
    learner: str
    """The name of its row in `LEARNERS`, or "own"."""
    preset: str
    seed: int
    settings: Settings
    policy: GaussianPolicy
    """On the CPU."""
    data: DataSet
    """Every real transition: those that were there before, and those of the run."""
    trials: tuple[TrialReport, ...]
    improvements: tuple[ImprovementReport, ...]
    notices: tuple[Notice, ...]
    summary: Mapping[str, Any]
    """As in summary.json."""
    folder: Path | None = None
    """Where it was written, if it was."""
    _model: GPDynamics | None = field(default=None)

    def __repr__(self) -> str:
        samples = self.summary.get("real_samples")
        return f"<Run of {self.learner} on {self.task.name}, seed {self.seed}: {samples} real samples>"

    @cached_property
    def model(self) -> GPDynamics:
        """The model that the run ended with; a run from a folder fits it afresh to the data when it is first used."""
        if self._model is not None:
            return self._model
        model = GPDynamics(self.task, self.settings.model)
        model.fit(self.data.transitions)
        return model

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """The limits on the safety cost."""
        return constraints_of(self.task, self.settings)

    def evaluate(
        self, steps: int = 10_000, seed: int = 0, deterministic: bool = False, workers: int | None = None
    ) -> Evaluation:
        """Run the policy on the real system, apart from learning; `deterministic`: without its noise."""
        policy: Policy = MeanPolicy(self.policy) if deterministic else self.policy
        return evaluate(
            self.task,
            policy,
            steps=steps,
            seed=seed,
            alpha=self.settings.constraint.alpha,
            constraints=self.constraints,
            deterministic=deterministic,
            workers=workers,
        )


def train(
    task: Task | str,
    learner: str | Learner = "samba",
    *,
    preset: str = "default",
    seed: int = 0,
    settings: Settings | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    data: DataSet | str | Path | None = None,
    log: Log | None = None,
    workers: int | None = None,
    **changes: Any,
) -> Run:
    """Learn a policy on a system.

    Args:
        task: The system, or the name of one of the paper's.
        learner: The name of a row of `LEARNERS`, or a row of your own.
        preset: Where the settings start from: default, paper or smoke.
        seed: The same seed gives the same run.
        settings: Everything at once, taken as it is, instead of what the learner and the preset stand for.
        device: Where the model and the policy are computed: cpu or cuda.
        out: A folder to write the run to as it goes.
        data: Real transitions that are there already, as a data set or as a CSV or Parquet file.
        log: Is called with every event.
        workers: Processes for systems that a simulator runs; None: one for each core.
        changes: Fields of `Settings`, such as real_samples=300 or constraint={"limit": 0.5}.
    """
    system = make_task(task) if isinstance(task, str) else task
    usual = make_settings(system.name, learner, preset)
    chosen = changed(usual if settings is None else settings, changes)
    if isinstance(data, (str, Path)):
        chosen = replace(chosen, first=replace(chosen.first, data=str(data)))
    earlier = earlier_transitions(system, data if isinstance(data, DataSet) else chosen.first.data or None)
    check(system, chosen, seed, device, earlier)
    name = _name(learner)
    events: list[Event] = []
    writer = None if out is None else FolderWriter(Path(out), _config(system, name, preset, seed, chosen, device))

    def heard(event: Event) -> None:
        events.append(event)
        if writer is not None:
            writer(event, agent.data)
        if log is not None:
            log(event)

    try:
        world = system.world(workers)
        try:
            agent = Agent(system, chosen, seed=seed, device=device, log=heard)
            if earlier is not None:
                agent.tell_earlier(earlier)
            policy = spend(agent, world, seed=seed)
        finally:
            world.close()
    except BaseException:
        if writer is not None and not any(isinstance(event, TrialReport) for event in events):
            writer.discard()
        raise
    about = {"task": system.name, "learner": name, "preset": preset, "seed": seed}
    summary = to_plain({**about, **_summary(agent, events, device)})
    if writer is not None:
        writer.finish(policy, summary)
    return Run(
        task=system,
        learner=name,
        preset=preset,
        seed=seed,
        settings=chosen,
        policy=policy,
        data=agent.data,
        **_by_kind(events),
        summary=summary,
        folder=None if writer is None else writer.folder,
        _model=agent.model,
    )


def load_run(folder: str | Path, task: Task | None = None) -> Run:
    """The run that `train` wrote to the folder.

    One of the paper's systems is known by its name; any other must be given, because nothing in a folder may make code
    run.
    """
    home = Path(folder)
    config = read_json(home / CONFIG)
    where = str(home / CONFIG)
    name, learner, preset = (
        from_plain(str, config.get(key), f"{where}: {key}") for key in ("task", "learner", "preset")
    )
    seed = from_plain(int, config.get("seed"), f"{where}: seed")
    settings: Settings = from_plain(Settings, config.get("settings"), f"{where}: settings")
    system = _known_task(where, name, bool(config.get("changed_task", False))) if task is None else task
    if system.name != name:
        raise UserError(f"{home} is a run on '{name}', not on '{system.name}'; give that system")
    policy = _new_policy(system, settings)
    read_policy(home / POLICY, policy)
    summary = read_json(home / SUMMARY)
    data = in_order_of(system, read_data(home / DATA), str(home / DATA))
    return Run(
        task=system,
        learner=learner,
        preset=preset,
        seed=seed,
        settings=settings,
        policy=policy,
        data=data,
        **_by_kind(read_events(home / METRICS)),
        summary=summary,
        folder=home,
    )


# What is written down -------------------------------------------------------------------------------------------------


def _name(learner: str | Learner) -> str:
    if isinstance(learner, str):
        return learner
    return next((name for name, row in LEARNERS.items() if row == learner), OWN)


def _config(task: Task, learner: str, preset: str, seed: int, settings: Settings, device: str) -> dict[str, Any]:
    return {
        "task": task.name,
        # A paper's system with another hazard, say, has the name but is not what the name alone would give.
        "changed_task": task.name not in TASKS or task != TASKS[task.name](),
        "learner": learner,
        "preset": preset,
        "seed": seed,
        "device": device,
        "settings": to_plain(settings),
    }


def _summary(agent: Agent, events: list[Event], device: str) -> dict[str, Any]:
    by_kind = _by_kind(events)
    trials, improvements = by_kind["trials"], by_kind["improvements"]
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
        "notices": [notice.text for notice in by_kind["notices"]],
        "versions": {
            "samba_rl": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in ("torch", "gpytorch", "numpy")},
        },
        "device": device,
        "threads": torch.get_num_threads(),
        "seconds": agent.clock.seconds,
        "seconds_by_phase": agent.clock.by_phase(),
    }


class _Events(TypedDict):
    trials: tuple[TrialReport, ...]
    improvements: tuple[ImprovementReport, ...]
    notices: tuple[Notice, ...]


def _by_kind(events: list[Event]) -> _Events:
    return {
        "trials": tuple(event for event in events if isinstance(event, TrialReport)),
        "improvements": tuple(event for event in events if isinstance(event, ImprovementReport)),
        "notices": tuple(event for event in events if isinstance(event, Notice)),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# What is read back ----------------------------------------------------------------------------------------------------


def _known_task(where: str, name: str, changed: bool) -> Task:
    if name not in TASKS or changed:
        what = f"'{name}', which is none of the paper's systems" if name not in TASKS else f"a changed '{name}'"
        raise UserError(
            f"{where}: the run is on {what}; give the system: load_run(folder, task=...), or --task file.py:function"
        )
    return make_task(name)


def _new_policy(task: Task, settings: Settings) -> GaussianPolicy:
    """A policy of the right shape, whose parameters are still to be read."""
    low, high = tuple(a.low for a in task.actions), tuple(a.high for a in task.actions)
    centre, scale = torch.zeros(len(task.observations)), torch.ones(len(task.observations))
    return GaussianPolicy(low, high, centre, scale, settings.policy, torch.Generator().manual_seed(0))
