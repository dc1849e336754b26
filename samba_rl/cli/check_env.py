"""`samba-rl check-env`: check whether a Gymnasium environment can be used."""

from __future__ import annotations

import json
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import JsonFlag
from samba_rl.cli.parsing import load_function
from samba_rl.cli.text import text
from samba_rl.ranges import In

MARKS = {"fine": "[green]✓[/]", "note": "[yellow]![/]", "problem": "[red]✗[/]"}


def check_env(
    env_id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")],
    safety: str | None = None,
    cost: str | None = None,
    horizon: Annotated[int, In("[1, 1e9]")] | None = None,
    *,
    as_json: JsonFlag = False,
) -> int:
    """Try a Gymnasium environment and report in plain words what is missing or wrong.

    Exits with 0 if the environment can be used as it is, and with 1 if there are problems.

    Args:
        env_id: Id of the environment, as for gymnasium.make; 'package:Id-v0' imports the package first.
        safety: Your safety cost, as module:function or file.py:function: a function of tensors (states [B, n], actions
            [B, m]) that returns [B]. Default: measured from info["cost"].
        cost: Your cost, likewise. Default: the negative reward.
        horizon: Number of steps in an episode. Default: the environment's own time limit.
        as_json: Print one line of JSON instead of text.
    """
    from samba_rl.tasks.gym import check

    functions = {
        key: None if name is None else load_function(name) for key, name in (("safety", safety), ("cost", cost))
    }
    findings = check.check_env(env_id, horizon=horizon, **functions)
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        rows = [{"level": f.level, "subject": f.subject, "text": f.text} for f in findings]
        print(json.dumps({"env": env_id, "problems": problems, "findings": rows}, ensure_ascii=False))
        return int(problems > 0)
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 1))
    for finding in findings:
        table.add_row(MARKS[finding.level], f"[bold]{finding.subject}[/]", text(finding.text))
    console.print(table)
    if problems:
        console.print(f"\n[red]{text(env_id)} cannot be used yet: {problems} problem{'s' * (problems > 1)}.[/]")
    else:
        console.print(f"\n[green]{text(env_id)} can be used:[/] GymTask({env_id!r}{', safety=…' * bool(safety)})")
    return int(problems > 0)
