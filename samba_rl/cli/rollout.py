"""`samba-rl rollout`: run a system with random actions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from samba_rl.cli.arguments import Episodes
from samba_rl.cli.parsing import asked, load_task
from samba_rl.cli.text import text
from samba_rl.ranges import Seed, Workers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from samba_rl.tasks.task import Task
    from samba_rl.types import Traces

STEPS = 10_000
"""Approximate number of steps unless a number of episodes is given."""


def rollout(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SYSTEM")],
    episodes: Episodes | None = None,
    seed: Seed = 0,
    workers: Workers | None = None,
    out: Path = Path("runs/rollout"),
) -> int:
    """Run a system with random actions; show a picture and statistics.

    Args:
        task: safe-pendulum, safe-cart-pole-double-pendulum or safe-fetch-reach; or your own system, as module:function
            or file.py:function.
        episodes: Number of episodes. Default: about 10,000 steps; a rig, which runs them one by one, needs the number.
        seed: Seed of the episodes; the same seed gives the same episodes.
        workers: Number of processes for MuJoCo. Default: one per core; 0 uses none.
        out: Folder for episode.png, episode.gif and figures.json.
    """
    import torch

    from samba_rl.improve.policies import UniformPolicy
    from samba_rl.report.film import save_film, save_picture, strip
    from samba_rl.report.recording import filmed

    system = load_task(task)
    count = asked(system, episodes, max(1, round(STEPS / system.horizon)))
    low, high = system.action_bounds()
    policy = UniformPolicy(tuple(low.tolist()), tuple(high.tolist()))
    console = Console()
    with console.status(f"{text(system.title)}: {count} episodes of {system.horizon} steps with random actions"):
        generator = torch.Generator().manual_seed(seed)
        traces, films, own, seconds = filmed(system, policy, count, 1, generator=generator, workers=workers)
    figures = _figures(system, traces, seed, seconds)
    with console.status("Drawing the first episode"):
        frames = films[0]
        save_picture(strip(frames) if own else frames[-1], out / "episode.png")
        save_film(frames, out / "episode.gif", system.dt)
    (out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    if console.is_terminal and own:
        _print_picture(console, frames[len(frames) // 2])
    _print_figures(console, system, figures)
    console.print(f"First episode: {text(out / 'episode.png')} and {text(out / 'episode.gif')}")
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
    table = Table(title=f"{text(task.title)} under random actions", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    low, median, high = figures["safety_quartiles"]
    table.add_row("episodes (steps)", f"{figures['episodes']:,} ({figures['steps']:,})")
    table.add_row("mean return (negative cost)", f"{figures['return_mean']:.2f}")
    table.add_row("safety cost per episode, quartiles", f"{low:.2f} / {median:.2f} / {high:.2f}")
    table.add_row("TC, total safety cost", f"{figures['TC']:,.1f}")
    table.add_row("TV, steps in the unsafe region", f"{figures['TV']:,}")
    table.add_row("episodes that ended early", f"{figures['ended_early']:,}")
    table.add_row("actions clipped to their bounds", f"{figures['clipped_actions']:,}")
    table.add_row("steps per second", f"{figures['steps_per_s']:,.0f}")
    console.print(table)


def _print_picture(console: Console, picture: NDArray[np.uint8]) -> None:
    """Print a picture; each character shows two pixels, one above the other."""
    edge = min(56, console.width)
    step = len(picture) / (edge - edge % 2)
    index = [int((i + 0.5) * step) for i in range(edge - edge % 2)]
    small = picture[index][:, index]
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        line = Text()
        for top, bottom in zip(upper.tolist(), lower.tolist(), strict=True):
            line.append("▀", style=f"rgb({top[0]},{top[1]},{top[2]}) on rgb({bottom[0]},{bottom[1]},{bottom[2]})")
        console.print(line)
