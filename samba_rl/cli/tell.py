"""`samba-rl tell`: give a waiting run the trials that were measured."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from samba_rl.cli.arguments import JsonFlag, RunArgument
from samba_rl.cli.parsing import load_task
from samba_rl.cli.text import text
from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.runs.waiting import Receipt


def tell(
    run: RunArgument,
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TRIAL.csv")],
    task: str | None = None,
    *,
    unasked: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    as_json: JsonFlag = False,
) -> int:
    """Check trials that were measured, and take them in.

    A file answers the trial that is due; if none is, it is taken in as data, which does not count as samples of the
    run. A file that the run has already changes nothing. Of a file with a mistake, nothing is taken in.

    Args:
        run: Folder that `samba-rl new` made.
        files: CSV files with a row for each moment: every state and action, and perhaps time, episode and terminated.
        task: Your own system, as module:function or file.py:function.
        unasked: Take the files in as data, even if a trial is due.
        as_json: Print one line of JSON for each file instead of text.
    """
    from samba_rl.runs.waiting import WaitingRun

    if not files:
        raise UserError("no file was given; name the CSV files of the trials: samba-rl tell RUN trial.csv")
    waiting = WaitingRun(run, None if task is None else load_task(task))
    logs = [waiting.read(file) for file in files]  # a mistake in the last one is found before the first is taken in
    console = Console(highlight=False)
    for log in logs:
        receipt = waiting.take(log, unasked=unasked)
        if as_json:
            print(json.dumps(asdict(receipt), ensure_ascii=False))
        else:
            _show(console, receipt)
    if not as_json:
        own = "" if task is None else f" --task {shlex.quote(task)}"
        due = waiting.pending()
        left = "" if due is None else f" ({due.episodes - due.told} more of trial {due.trial} due)"
        command = f"samba-rl ask {shlex.quote(str(run))}{own}"
        console.print(f"Next:  [bold]{text(command)}[/]{text(left)}", soft_wrap=True)
    return 0


def _show(console: Console, receipt: Receipt) -> None:
    size = f"{receipt.episodes} episode{'s' * (receipt.episodes > 1)}, {receipt.steps:,} steps"
    if receipt.known:
        console.print(f"{text(receipt.name)}: the run has it already ({size}); nothing has changed.", soft_wrap=True)
        return
    place = "data that were not asked for" if receipt.trial is None else f"trial {receipt.trial}"
    console.print(f"{text(receipt.name)}: taken in as {place} ({size}).", soft_wrap=True)
    if receipt.unused:
        console.print(f"  Columns that were not used: {text(', '.join(receipt.unused))}.", soft_wrap=True)
