"""`samba-rl eval`: evaluate a learned policy on the real system."""

from __future__ import annotations

import json
from typing import Annotated

import tyro
from rich.console import Console

from samba_rl.cli.arguments import JsonFlag, RunArgument
from samba_rl.cli.parsing import load_finished
from samba_rl.cli.tables import evaluation_table


def evaluate(
    run: RunArgument,
    steps: int = 10_000,
    seed: int = 0,
    *,
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    task: str | None = None,
    workers: int | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Evaluate a learned policy on the real system: its return and its safety.

    Args:
        run: Folder that `samba-rl train` wrote.
        steps: Number of real steps; the last episode is completed.
        seed: Seed of the episodes; the same seed gives the same episodes.
        deterministic: Leave out the noise of the policy's actions.
        task: Your own system, as module:function or file.py:function.
        workers: Number of processes for MuJoCo. Default: one per core; 0 uses none.
        as_json: Print one line of JSON instead of a table.
    """
    from samba_rl.data.plain import to_plain

    loaded = load_finished(run, task)
    console = Console(stderr=as_json)
    with console.status(f"{loaded.task.title}: {steps:,} steps"):
        evaluation = loaded.evaluate(steps, seed, deterministic=deterministic, workers=workers)
    if as_json:
        print(json.dumps(to_plain(evaluation.to_json()), ensure_ascii=False))
    else:
        console.print(evaluation_table(f"{loaded.task.title}: {loaded.learner}", evaluation))
    return 0
