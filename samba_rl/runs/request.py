"""The trial that a waiting run waits for, and how it is kept on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from samba_rl.agents.forecast import Forecast
from samba_rl.agents.settings import Settings
from samba_rl.data.journal import Journal
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.events import TrialDue
from samba_rl.improve.experts import MixturePolicy
from samba_rl.improve.policies import GaussianPolicy, OpenLoopPolicy
from samba_rl.learners import Learner
from samba_rl.runs.folder import JOURNAL, NEXT, read_next, write_next
from samba_rl.runs.loading import new_policy
from samba_rl.runs.policy_file import FORMAT, noise_seed, policy_record
from samba_rl.runs.session import About
from samba_rl.runs.told import told_so_far
from samba_rl.tasks.task import Task
from samba_rl.types import Policy


@final
@dataclass(frozen=True)
class Request:
    """A trial that a run waits for."""

    trial: int
    """Number of the trial, from 0."""
    episodes: int
    """Episodes of the trial in all."""
    told: int
    """Episodes of it that are told already."""
    policy: Policy
    """The policy of the next episode; `policy(observation, generator)` draws its actions."""
    record: Mapping[str, Any]
    """The same as plain values: the content of its file."""
    forecast: Forecast | None
    """What the model expects; None for first trials, and for learners without a model."""


def due_request(task: Task, about: About, folder: Path) -> Request | None:
    """Return the trial that the run in a folder waits for; None if none was asked for, or all of it is told."""
    content = read_next(folder)
    if not content.get("asked"):
        return None
    where = str(folder / NEXT)
    trial, episodes = (from_plain(int, content.get(name), f"{where}: {name}") for name in ("trial", "episodes"))
    told = told_so_far(Journal.read(folder / JOURNAL), trial)
    if told >= episodes:
        return None
    try:
        policy = _policy(task, about.row, about.settings, content, told)
        record = dict(content["files"][min(told, len(content["files"]) - 1)])
        record["provenance"] = {"trial": trial, "episode": told, "seed": noise_seed(about.seed, trial, told)}
    except (KeyError, TypeError, IndexError, RuntimeError, ValueError) as error:
        raise UserError(f"{where} is damaged ({error}); remove it, and ask again") from error
    expected = from_plain(Forecast | None, content.get("forecast"), f"{where}: forecast")
    return Request(trial, episodes, told, policy, record, expected)


def write_request(folder: Path, task: Task, seed: int, due: TrialDue, expected: Forecast | None) -> None:
    """Write the trial that the run in a folder waits for."""
    write_next(folder, _content(task, seed, due, expected))


def _content(task: Task, seed: int, due: TrialDue, expected: Forecast | None) -> dict[str, Any]:
    """Return the content of next.json for a trial that is due."""
    policy = due.policy
    network = isinstance(policy, GaussianPolicy | MixturePolicy)
    numbers = range(1 if network else due.episodes)
    about = [{"trial": due.trial, "episode": i, "seed": noise_seed(seed, due.trial, i)} for i in numbers]
    files = [policy_record(task, policy, i, about[i]) for i in numbers]
    # The files have the standard deviation, whose logarithm would differ in its last digits, and of a gate the logits.
    exact: dict[str, Any] = {}
    if isinstance(policy, GaussianPolicy):
        exact = {"log_std": policy.log_std.tolist()}
    elif isinstance(policy, MixturePolicy):
        exact = {"state": {name: value.tolist() for name, value in policy.state_dict().items()}}
    return {
        "trial": due.trial,
        "asked": True,
        "episodes": due.episodes,
        "files": files,
        **exact,
        "forecast": to_plain(expected),
    }


def _policy(task: Task, row: Learner, settings: Settings, content: Mapping[str, Any], told: int) -> Policy:
    """Return the policy of the next episode."""
    records = content["files"]
    if records[0]["format"] != FORMAT:
        return OpenLoopPolicy(torch.tensor([records[told]["sequence"]], dtype=torch.float64))
    policy = new_policy(task, row, settings)
    assert isinstance(policy, GaussianPolicy | MixturePolicy)
    if isinstance(policy, MixturePolicy):
        policy.load_state_dict({name: torch.tensor(value) for name, value in content["state"].items()})
        return policy
    record, state = records[0], policy.state_dict()
    flat = {"log_std": content["log_std"], **{name: record["observation"][name] for name in ("centre", "scale")}}
    linear = [name.removesuffix("weight") for name in state if name.endswith("weight")]
    for prefix, layer in zip(linear, record["layers"], strict=True):
        flat |= {f"{prefix}weight": layer["weight"], f"{prefix}bias": layer["bias"]}
    policy.load_state_dict({**state, **{name: torch.tensor(value) for name, value in flat.items()}})
    return policy
