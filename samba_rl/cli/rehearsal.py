"""The first command of a rig, shown without running it."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import torch
from rich.console import Console

from samba_rl.cli.options import Options
from samba_rl.cli.parsing import load_function
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.presets import make_agent
from samba_rl.runs.checks import check_rig
from samba_rl.runs.folder import TRIALS
from samba_rl.runs.policy_file import policy_record
from samba_rl.runs.rig import filled, parsed_command
from samba_rl.runs.specifying import specified
from samba_rl.tasks.task import Task


def rehearse(task: Task, options: Options, out: Path) -> int:
    """Check everything that can be, and print what the first command of a rig would be and get; nothing is run."""
    if not options.rig:
        raise UserError("--dry-run shows the command of --rig; give one")
    _, about, given = specified(
        task, options.row, {}, name=options.learner, preset=options.preset, seed=options.seed,
        settings=options.with_data(), device=options.device, data=None,
    )  # fmt: skip
    check_rig(options.rig, about.settings, out, load_function(options.first_policy) if options.first_policy else None)
    words = filled(parsed_command(options.rig), out / TRIALS / "0000-0.policy", out / TRIALS / "0000-0.csv")
    if shutil.which(words[0]) is None:
        raise UserError(f"there is no program '{words[0]}' that can be run; correct --rig")
    agent = make_agent(task, about.row, about.settings, seed=about.seed)
    generator = torch.Generator().manual_seed(about.seed)
    episodes, first = agent.episodes_due(), agent.is_first_trial
    what = "the actions of a first trial" if first else "a policy, once the data before the run are learned from"
    shown = Console(highlight=False)
    for line in () if given.report is None else given.report.lines():
        shown.print(text(line), soft_wrap=True)
    many = f"{episodes} episodes of trial 0, each" if episodes > 1 else "1 episode of trial 0,"
    shown.print(f"{many} with {what}:", soft_wrap=True)
    shown.print(f"  [bold]{text(shlex.join(words))}[/]", soft_wrap=True)
    columns = ", ".join(["time", *(one.name for one in (*task.states, *task.actions))])
    shown.print(
        f"It writes {task.horizon + 1} rows {task.dt:g} s apart, with the columns {text(columns)}.", soft_wrap=True
    )
    if first:
        record = policy_record(task, agent.first_policy(episodes, generator), 0, {"trial": 0, "episode": 0})
        shown.print(f"It gets: {text(json.dumps(record))}", soft_wrap=True)
    return 0
