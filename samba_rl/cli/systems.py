"""The commands that look at systems: tasks, check-env, rollout."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samba_rl.cli.parsing import load_function
from samba_rl.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from samba_rl.tasks.task import Task
    from samba_rl.types import Traces


def tasks(as_json: Annotated[bool, tyro.conf.arg(name="json")] = False) -> int:
    """List the systems with their dimensions, limits and hazards.

    Args:
        as_json: Print one line of JSON instead of a table.
    """
    from samba_rl import IDS
    from samba_rl.tasks import TASKS, make_task

    ids = {name: env_id for env_id, name in IDS.items()}
    known = [make_task(name) for name in TASKS]
    if as_json:
        print(json.dumps([_description(task, ids[task.name]) for task in known], ensure_ascii=False))
        return 0
    console = Console()
    for task in known:
        table = Table(show_header=False, title=f"{task.name}   ({ids[task.name]})", title_justify="left", min_width=72)
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for key, value in _rows(task):
            table.add_row(key, escape(value))
        console.print(table)
    return 0


def _rows(task: Task) -> list[tuple[str, str]]:
    def words(quantities: tuple[Any, ...]) -> str:
        return f"{len(quantities)}: " + ", ".join(quantity.describe() for quantity in quantities)

    return [
        ("state", words(task.states)),
        ("observation", words(task.observations)),
        ("action", words(task.actions)),
        ("episode", f"{task.horizon} steps of {task.dt:g} s"),
        ("hazard", task.hazard_in_words()),
        ("dynamics", "equations, batched in torch" if task.known_dynamics else "MuJoCo, in processes"),
    ]


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


def check_env(
    env_id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")],
    safety: str | None = None,
    cost: str | None = None,
    horizon: int | None = None,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Try a Gymnasium environment and say in plain words what is missing or wrong.

    Exits with 0 if the environment can be used as it is, with 1 if there are problems.

    Args:
        env_id: The id, as for gymnasium.make; 'package:Id-v0' imports the package first.
        safety: Your safety cost as module:function or file.py:function, a function of tensors (states [B, n], actions
            [B, m]) that gives [B]. Left out: measured from info["cost"].
        cost: Your cost, likewise. Left out: the negative reward.
        horizon: Steps in an episode. Left out: the environment's own time limit.
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
    marks = {"fine": "[green]✓[/]", "note": "[yellow]![/]", "problem": "[red]✗[/]"}
    table = Table.grid(padding=(0, 1))
    for finding in findings:
        table.add_row(marks[finding.level], f"[bold]{finding.subject}[/]", escape(finding.text))
    console.print(table)
    if problems:
        console.print(f"\n[red]{escape(env_id)} cannot be used yet: {problems} problem{'s' * (problems > 1)}.[/]")
    else:
        console.print(f"\n[green]{escape(env_id)} can be used:[/] GymTask({env_id!r}{', safety=…' * bool(safety)})")
    return int(problems > 0)


def rollout(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SYSTEM")],
    episodes: int = 334,
    seed: int = 0,
    workers: int | None = None,
    out: Path = Path("runs/rollout"),
) -> int:
    """Run a system with random actions; show its picture and figures.

    Args:
        task: safe-pendulum, safe-cart-pole-double-pendulum or safe-fetch-reach.
        episodes: How many episodes to run (334 make about 10,000 steps).
        seed: The same seed gives the same episodes.
        workers: Processes for MuJoCo. Left out: one for each core; 0: none.
        out: The folder for episode.png, episode.gif and figures.json.
    """
    import torch

    from samba_rl.improve.policies import UniformPolicy
    from samba_rl.report.film import film, save_film, save_picture, strip
    from samba_rl.tasks import make_task
    from samba_rl.tasks.rollout import rollout as run

    if episodes < 1:
        raise UserError(f"--episodes {episodes}: at least 1 is needed")
    system = make_task(task)
    policy = UniformPolicy(tuple(a.low for a in system.actions), tuple(a.high for a in system.actions))
    console = Console()
    world = system.world(workers)
    try:
        with console.status(f"{system.title}: {episodes} episodes of {system.horizon} steps with random actions"):
            begin = time.perf_counter()
            traces = run(world, policy, episodes, generator=torch.Generator().manual_seed(seed))
            seconds = time.perf_counter() - begin
    finally:
        world.close()
    figures = _figures(system, traces, seed, seconds)
    with console.status("Drawing the first episode"):
        frames = film(system, traces)
        save_picture(strip(frames), out / "episode.png")
        save_film(frames, out / "episode.gif", system.dt)
    (out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    if console.is_terminal:
        _show(console, frames[len(frames) // 2])
    _print_figures(console, system, figures)
    console.print(f"The first episode: {escape(str(out / 'episode.png'))} and {escape(str(out / 'episode.gif'))}")
    return 0


def _figures(task: Task, traces: Traces, seed: int, seconds: float) -> dict[str, Any]:
    safety = traces.safety_costs.sum(1)
    quartiles = safety.quantile(safety.new_tensor([0.25, 0.5, 0.75])).tolist()
    return {
        "task": task.name,
        "policy": "uniform random",
        "seed": seed,
        "episodes": len(traces.returns),
        "steps": traces.steps,
        "return_mean": float(traces.returns.mean()),
        "safety_quartiles": quartiles,
        "TC": float(safety.sum()),
        "TV": int(traces.violation.any(-1).sum()),
        "ended_early": int(traces.terminated.sum()),
        "clipped_actions": int(traces.clipped.sum()),
        "steps_per_s": traces.steps / seconds,
    }


def _print_figures(console: Console, task: Task, figures: dict[str, Any]) -> None:
    table = Table(title=f"{task.title} under random actions", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    low, median, high = figures["safety_quartiles"]
    table.add_row("episodes (steps)", f"{figures['episodes']:,} ({figures['steps']:,})")
    table.add_row("mean return (negative cost)", f"{figures['return_mean']:.2f}")
    table.add_row("safety cost of an episode, quartiles", f"{low:.2f} / {median:.2f} / {high:.2f}")
    table.add_row("TC, safety cost in all", f"{figures['TC']:,.1f}")
    table.add_row("TV, steps in the unsafe region", f"{figures['TV']:,}")
    table.add_row("episodes that ended early", f"{figures['ended_early']:,}")
    table.add_row("actions outside the bounds, clipped", f"{figures['clipped_actions']:,}")
    table.add_row("steps per second", f"{figures['steps_per_s']:,.0f}")
    console.print(table)


def _show(console: Console, picture: NDArray[np.uint8]) -> None:
    """A picture in the terminal: each character shows two pixels, one above the other."""
    from rich.text import Text

    edge = min(56, console.width)
    step = len(picture) / (edge - edge % 2)
    index = [int((i + 0.5) * step) for i in range(edge - edge % 2)]
    small = picture[index][:, index]
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        line = Text()
        for top, bottom in zip(upper.tolist(), lower.tolist(), strict=True):
            line.append("▀", style=f"rgb({top[0]},{top[1]},{top[2]}) on rgb({bottom[0]},{bottom[1]},{bottom[2]})")
        console.print(line)
