"""The first command of a rig, shown without running it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import torch
from rich.console import Console

from samba_rl.agents.settings import Settings
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.learners import Learner
from samba_rl.presets import make_agent
from samba_rl.runs.folder import TRIALS
from samba_rl.runs.policy_file import policy_record
from samba_rl.runs.rig import filled, parsed_command
from samba_rl.tasks.task import Task


def rehearse(task: Task, row: Learner, settings: Settings, seed: int, rig: str, out: Path) -> int:
    """Print what the first command of a rig would be and get; nothing is run or written."""
    if not rig:
        raise UserError("--dry-run shows the command of --rig; give one")
    agent = make_agent(task, row, settings, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    episodes = agent.episodes_due()
    words = filled(parsed_command(rig), out / TRIALS / "0000-0.policy", out / TRIALS / "0000-0.csv")
    first = agent.is_first_trial
    what = "the actions of a first trial" if first else "a policy, once the data before the run are learned from"
    shown = Console(highlight=False)
    shown.print(f"{episodes} episode{'s' * (episodes != 1)} of trial 0, each with {what}:", soft_wrap=True)
    shown.print(f"  [bold]{text(shlex.join(words))}[/]", soft_wrap=True)
    columns = ", ".join(["time", *(one.name for one in (*task.states, *task.actions))])
    shown.print(
        f"It writes {task.horizon + 1} rows {task.dt:g} s apart, with the columns {text(columns)}.", soft_wrap=True
    )
    if first:
        record = policy_record(task, agent.first_policy(episodes, generator), 0, {"trial": 0, "episode": 0})
        shown.print(f"It gets: {text(json.dumps(record))}", soft_wrap=True)
    return 0
