"""`samba-rl tasks`: list the systems."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from samba_rl.cli.arguments import JsonFlag
from samba_rl.cli.parsing import load_task
from samba_rl.cli.text import text

if TYPE_CHECKING:
    from samba_rl.tasks.task import Quantity, Task


def tasks(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SYSTEM")] = "", *, as_json: JsonFlag = False
) -> int:
    """List the systems with their dimensions, limits and hazards; or describe one.

    Args:
        task: A system, which may be your own, as module:function or file.py:function. Default: all of the paper's.
        as_json: Print one line of JSON instead of tables.
    """
    from samba_rl import IDS
    from samba_rl.tasks import TASKS, make_task

    ids = {name: env_id for env_id, name in IDS.items()}
    known = [load_task(task)] if task else [make_task(name) for name in TASKS]
    if as_json:
        print(json.dumps([_description(one, ids.get(one.name, "")) for one in known], ensure_ascii=False))
        return 0
    console = Console()
    for one in known:
        env_id = f"   ({ids[one.name]})" if one.name in ids else ""
        table = Table(show_header=False, title=f"{text(one.name)}{env_id}", title_justify="left", min_width=72)
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for key, value in _rows(one):
            table.add_row(key, text(value))
        console.print(table)
    return 0


def _rows(task: Task) -> list[tuple[str, str]]:
    def words(quantities: tuple[Quantity, ...]) -> str:
        return f"{len(quantities)}: " + ", ".join(quantity.describe() for quantity in quantities)

    return [
        ("state", words(task.states)),
        ("observation", words(task.observations)),
        ("action", words(task.actions)),
        ("episode", f"{task.horizon} steps of {task.dt:g} s"),
        ("hazard", task.hazard_in_words()),
        ("dynamics", _dynamics(task)),
    ]


def _dynamics(task: Task) -> str:
    if task.known_dynamics:
        return "equations, batched in torch"
    from samba_rl.tasks import TASKS

    if not task.parallel:
        return "a rig: one episode at a time"
    return "MuJoCo, in processes" if task.name in TASKS else "simulated, in processes"


def _description(task: Task, env_id: str) -> dict[str, Any]:
    return {
        "name": task.name,
        "id": env_id,
        "states": [{"name": q.name, "unit": q.unit} for q in task.states],
        "observations": [{"name": q.name, "unit": q.unit} for q in task.observations],
        "actions": [{"name": q.name, "unit": q.unit, "low": q.low, "high": q.high} for q in task.actions],
        "constraints": list(task.constraints),
        "hazard": task.hazard_in_words(),
        "horizon": task.horizon,
        "dt": task.dt,
    }
