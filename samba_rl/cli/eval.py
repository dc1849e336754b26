"""`samba-rl eval`: evaluate a learned policy on the real system."""

from __future__ import annotations

import json
from typing import Annotated

import tyro
from rich.console import Console

from samba_rl.cli.arguments import Episodes, JsonFlag, RunArgument, Steps
from samba_rl.cli.parsing import load_finished
from samba_rl.cli.tables import evaluation_table
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import Seed, Workers


def evaluate(
    run: RunArgument,
    steps: Steps | None = None,
    episodes: Episodes | None = None,
    seed: Seed | None = None,
    *,
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    task: str | None = None,
    workers: Workers | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Evaluate a learned policy on the real system: its return and its safety, each with its uncertainty.

    Args:
        run: Folder that `samba-rl train` wrote.
        steps: Number of real steps; the last episode is completed. Default: 10,000; a rig needs the number.
        episodes: Number of real episodes, instead of --steps.
        seed: Seed of the episodes; the same seed gives the same episodes. Default: a fresh seed, which is printed.
        deterministic: Leave out the noise of the policy's actions.
        task: Your own system, as module:function or file.py:function.
        workers: Number of processes for MuJoCo. Default: one per core; 0 uses none.
        as_json: Print one line of JSON instead of a table.
    """
    from samba_rl.cli.display import print_breaches
    from samba_rl.data.plain import to_plain
    from samba_rl.runs.evaluation import STEPS
    from samba_rl.runs.limits import measured_breaches, targets_of

    if steps is not None and episodes is not None:
        raise UserError(f"--steps {steps} --episodes {episodes}: give one of the two")
    loaded = load_finished(run, task)
    console = Console(stderr=as_json)
    amount = f"{steps or STEPS:,} steps" if episodes is None else f"{episodes:,} episodes"
    with console.status(f"{text(loaded.task.title)}: {amount}"):
        evaluation = loaded.evaluate(steps, seed, episodes=episodes, deterministic=deterministic, workers=workers)
    if as_json:
        print(json.dumps(to_plain(evaluation.to_json()), ensure_ascii=False))
    else:
        console.print(evaluation_table(f"{text(loaded.task.title)}: {text(loaded.learner)}", evaluation))
        print_breaches(console, measured_breaches(evaluation, targets_of(loaded.summary)))
    return 0
