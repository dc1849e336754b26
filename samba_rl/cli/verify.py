"""`samba-rl verify`: say whether a run is whole, and rebuild what can be rebuilt."""

from __future__ import annotations

import json
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import JsonFlag, RunArgument
from samba_rl.cli.parsing import load_task
from samba_rl.cli.text import text

COLOURS = {"whole": "green", "damaged": "red", "unchecked": "yellow"}


def verify(
    run: RunArgument,
    *,
    repair: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    task: str | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Say whether a run is whole, what is damaged, and what can be rebuilt. Exit code 1: something is damaged.

    Args:
        run: Folder that `samba-rl train` wrote.
        repair: Rebuild what can be rebuilt from the journal and the checkpoints; the real system is not used.
        task: Your own system, as module:function or file.py:function, for --repair.
        as_json: Print one line of JSON instead of a table.
    """
    from samba_rl.data.plain import to_plain
    from samba_rl.runs import verify as checks

    console = Console(highlight=False, stderr=as_json)
    if repair:
        with console.status(f"Repairing {text(run)}"):
            verdict = checks.repair(run, None if task is None else load_task(task))
    else:
        verdict = checks.verify(run)
    if as_json:
        print(json.dumps({**to_plain(verdict), "whole": not verdict.damaged}, ensure_ascii=False))
        return int(bool(verdict.damaged))
    table = Table(title=text(f"{run}: {verdict.state}"), title_justify="left", box=None, pad_edge=False)
    for column in ("file", "state", "what is wrong", "what can be done"):
        table.add_column(column, overflow="fold")
    for one in verdict.findings:
        table.add_row(text(one.file), f"[{COLOURS[one.state]}]{one.state}[/]", text(one.why), text(one.remedy))
    console.print(table)
    for note in verdict.notes:
        console.print(f"[yellow]Note:[/] {text(note)}", soft_wrap=True)
    console.print("[red]Damaged.[/]" if verdict.damaged else "No damage was found.")
    return int(bool(verdict.damaged))
