"""Loading a run from its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from samba_rl.agents.agent import Learned, schema_of
from samba_rl.agents.settings import PolicyGradientSettings, Settings
from samba_rl.agents.words import from_words
from samba_rl.data import DataSet
from samba_rl.data.journal import Journal
from samba_rl.data.plain import from_plain
from samba_rl.errors import UserError
from samba_rl.events import Event
from samba_rl.improve.experts import fresh_policy
from samba_rl.learners import Learner
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import make_agent, make_settings
from samba_rl.ranges import unchecked
from samba_rl.runs.checkpoints import read_checkpoint
from samba_rl.runs.commands import next_command
from samba_rl.runs.extending import budgets_in
from samba_rl.runs.folder import (
    CONFIG,
    JOURNAL,
    METRICS,
    POLICY,
    SUMMARY,
    read_config,
    read_events,
    read_json,
    read_policy,
)
from samba_rl.runs.manifest import check_whole
from samba_rl.runs.run import Run
from samba_rl.runs.session import About
from samba_rl.runs.summary import by_kind
from samba_rl.runs.upgrade import upgraded
from samba_rl.tasks import TASKS, make_task
from samba_rl.tasks.task import Task


def load_run(folder: str | Path, task: Task | None = None) -> Run:
    """Load a finished run from the folder that `train` wrote.

    The paper's systems are known by name. Any other system must be given as `task`: nothing in a folder is allowed to
    run code.
    """
    home = Path(folder)
    system, about = run_in(home, task)
    policy = new_policy(system, about.row, about.settings)
    read_policy(home / POLICY, policy)
    summary = read_json(home / SUMMARY)
    data = data_of(home, system)
    events = by_kind(read_events(home / METRICS))
    check_whole(home)
    return Run(
        task=system,
        learner=about.learner,
        row=about.row,
        preset=about.preset,
        seed=about.seed,
        settings=about.settings,
        policy=policy,
        data=data,
        **events,
        summary=summary,
        folder=home,
    )


def data_of(folder: Path, task: Task) -> DataSet:
    """Return the real transitions of a run; of a finished one, those that it has learned from.

    A run that waits may have been told something after its last improvement had begun, which comes last.
    """
    most = None
    if (folder / SUMMARY).exists():
        own, others = (read_json(folder / SUMMARY).get(name) for name in ("real_samples", "earlier_samples"))
        if isinstance(own, int) and isinstance(others, int):
            most = own + others
    data = DataSet.empty(schema_of(task))
    for steps in Journal.read(folder / JOURNAL).trials():
        if len(data) == most:
            break
        data = data.append(steps)
    return data


def policy_so_far(folder: Path, task: Task | None = None) -> tuple[Task, Learned]:
    """Return the system of an unfinished run and its policy at the last checkpoint; nothing in the folder changes."""
    system, about = run_in(folder, task)
    checkpoint, _ = read_checkpoint(folder)
    if checkpoint is None:
        raise UserError(
            f"{folder} has no checkpoint yet, so there is no policy; continue it with: {next_command(folder)}"
        )
    trials, stage = checkpoint.state["around"]["trials"], int(checkpoint.state["around"].get("stage", 0))
    budget = (*about.budgets, about.settings.real_samples)[stage]
    # On the CPU: the policy may be looked at where there is no GPU.
    agent = make_agent(system, about.row, replace(about.settings, real_samples=budget), seed=about.seed)
    data = agent.data
    for steps in Journal.read(folder / JOURNAL).trials(int(trials["count"]), int(trials.get("taken", 0))):
        data = data.append(steps)
    for _ in agent.load_state_dict(checkpoint.state["agent"], data):
        pass  # notices for those who go on with the run
    return system, agent.policy


def run_in(folder: Path, task: Task | None = None) -> tuple[Task, About]:
    """Return the system and the specification of the run in a folder, to be looked at: its settings are not checked."""
    with unchecked():
        return specification(folder, current_config(folder), task)


def current_config(folder: Path) -> dict[str, Any]:
    """Read the configuration of the run in a folder, translated to the current format."""
    return upgraded(read_config(folder), str(folder / CONFIG))


def specification(folder: Path, config: dict[str, Any], task: Task | None) -> tuple[Task, About]:
    """Return the system and the specification that a run's configuration describes."""
    where = str(folder / CONFIG)
    name, learner, preset, device = (
        from_plain(str, config.get(key), f"{where}: {key}") for key in ("task", "learner", "preset", "device")
    )
    seed = from_plain(int, config.get("seed"), f"{where}: seed")
    row = from_words(config.get("row"), f"{where}: row")
    family = type(make_settings(name, row))
    try:
        settings: Settings = from_plain(family, config.get("settings"), "settings")
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    more = budgets_in(folder)
    if more:
        first, settings = settings.real_samples, replace(settings, real_samples=more[-1])
        more = (first, *more[:-1])
    named = from_plain(str, config.get("named", ""), f"{where}: named")
    changed = bool(config.get("changed_task", False))
    system = _known_task(where, name, named, changed=changed) if task is None else task
    # In runs of earlier versions, systems that a lambda makes are all named alike.
    if system.name != name and name != "<lambda>":
        raise UserError(f"{folder} is a run on '{name}', not on '{system.name}'; give that system")
    return system, About(learner, row, preset, seed, settings, device, named, more)


def earlier_events(folder: Path) -> list[Event]:
    """Return the events of a run up to the checkpoint from which `resume` continues it."""
    if (folder / SUMMARY).exists():
        return read_events(folder / METRICS)
    checkpoint, _ = read_checkpoint(folder)
    size = 0 if checkpoint is None else int(checkpoint.about["metrics_bytes"])
    return read_events(folder / METRICS, size) if (folder / METRICS).exists() else []


def _known_task(where: str, name: str, named: str, *, changed: bool) -> Task:
    if name not in TASKS or changed:
        what = f"'{name}', which is not one of the paper's systems" if name not in TASKS else f"a modified '{name}'"
        raise UserError(
            f"{where}: the run is on {what}; give the system: load_run(folder, task=...), or --task "
            + (f"{named} as it was" if named else "file.py:function")
        )
    return make_task(name)


def new_policy(task: Task, row: Learner, settings: Settings) -> Learned:
    """Make a policy of the right shape, whose parameters are still to be read."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(settings, PlanetSettings):
        return PlanningPolicy(task, settings.latent, settings.planner, generator)
    assert isinstance(settings, PolicyGradientSettings)
    centre, scale = torch.zeros(len(task.observations)), torch.ones(len(task.observations))
    limits = settings.gate_limits(row, task.constraints)
    return fresh_policy(*task.action_bounds(), centre, scale, settings.policy, generator, limits)
