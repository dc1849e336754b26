"""`samba-rl check-env`: check whether an environment or a task can be used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import JsonFlag
from samba_rl.cli.parsing import load_function, load_system
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import In

if TYPE_CHECKING:
    from samba_rl.tasks.gym.findings import Finding

MARKS = {"fine": "[green]✓[/]", "note": "[yellow]![/]", "problem": "[red]✗[/]"}


def check_env(
    env_id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENVIRONMENT")],
    safety: str | None = None,
    cost: str | None = None,
    horizon: Annotated[int, In("[1, 1e9]")] | None = None,
    *,
    on_rig: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    as_json: JsonFlag = False,
) -> int:
    """Try an environment with random actions and report in plain words what is missing or wrong.

    Exits with 0 if the environment can be used as it is, and with 1 if there are problems.

    Args:
        env_id: Your system or environment as file.py:function or module:function, which returns a GymTask (or another
            Task) or an environment; or the id of an environment, as for gymnasium.make ('package:Id-v0' imports the
            package first).
        safety: Your safety cost, as module:function or file.py:function: a function of tensors (states [B, n], actions
            [B, m]) that returns [B]. Default: that of the task, or else measured from info["cost"].
        cost: Your cost, likewise. Default: that of the task, or else the negative reward.
        horizon: Number of steps in an episode. Default: the environment's own time limit.
        on_rig: Take up to 170 random steps on a rig, which is not tried unasked.
        as_json: Print one line of JSON instead of text.
    """
    findings = _findings(env_id, safety, cost, horizon, on_rig=on_rig)
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
    elif any(finding.subject == "learners" for finding in findings):
        console.print(
            f"\n[yellow]{text(env_id)} can be used with learners on real trials and planet only:[/] see above."
        )
    else:
        console.print(f"\n[green]{text(env_id)} can be used.[/]")
    return int(problems > 0)


def _findings(where: str, safety: str | None, cost: str | None, horizon: int | None, *, on_rig: bool) -> list[Finding]:
    """Return what the checks of an environment or a task find."""
    import gymnasium

    from samba_rl.tasks.gym import check
    from samba_rl.tasks.task import Task

    system = load_system(where)
    if isinstance(system, Task):
        if (safety, cost, horizon) != (None, None, None):
            raise UserError(f"{where} is a task with functions and a horizon of its own; leave the flags out")
        rig = not system.parallel
    else:
        rig = isinstance(system, gymnasium.Env)
    if rig and not on_rig:
        raise UserError(f"{where} is a rig, and the check takes up to 170 random steps on it; allow that with --on-rig")
    if isinstance(system, Task):
        return check.check_task(system)
    functions = {
        key: None if name is None else load_function(name) for key, name in (("safety", safety), ("cost", cost))
    }
    return check.check_env(system, horizon=horizon, **functions)
