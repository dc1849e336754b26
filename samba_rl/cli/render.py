"""`samba-rl render`: film a learned policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from samba_rl.cli.arguments import Episodes, RunArgument
from samba_rl.cli.parsing import asked, load_finished, load_task
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import Seed

if TYPE_CHECKING:
    from samba_rl.tasks.task import Task
    from samba_rl.types import Policy

EPISODES = 3
"""Number of episodes unless another is given."""


def render(
    run: RunArgument,
    film: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILM")],
    episodes: Episodes | None = None,
    seed: Seed = 0,
    *,
    stochastic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    task: str | None = None,
) -> int:
    """Film a learned policy on the real system; of an interrupted run, the one at its last checkpoint.

    A Gymnasium environment that can draw itself (rgb_array) does. Of any other system of your own the film shows
    states, actions and safety costs over time.

    Args:
        run: Folder that `samba-rl train` wrote.
        film: File to write: .mp4 or .gif.
        episodes: Number of episodes, shown one after the other. Default: 3; a rig, which really runs them, needs the
            number.
        seed: Seed of the episodes; the same seed gives the same episodes.
        stochastic: Keep the noise of the policy's actions.
        task: Your own system, as module:function or file.py:function.
    """
    import torch

    from samba_rl.report import film as films
    from samba_rl.report.recording import filmed

    if film.suffix.lower() not in (".mp4", ".gif"):
        raise UserError(f"cannot write a film as '{film}'; its name must end in .mp4 or .gif")
    system, policy = _learned(run, task, stochastic=stochastic)
    count = asked(system, episodes, EPISODES)
    console = Console()
    with console.status(f"{text(system.title)}: {count} episodes"):
        found = filmed(system, policy, count, count, generator=torch.Generator().manual_seed(seed))
        films.save_film(films.joined(found.films, system.dt), film, system.dt)
    if not found.own:
        console.print(f"{text(system.title)} does not draw itself here: the film shows its states over time.")
    console.print(f"{count} episode{'s' * (count > 1)}: {text(film)}", soft_wrap=True)
    return 0


def _learned(run: Path, task: str | None, *, stochastic: bool) -> tuple[Task, Policy]:
    """Return the system of a run and its policy, with its noise or without."""
    from samba_rl.planet.policy import PlanningPolicy
    from samba_rl.runs.folder import CONFIG, SUMMARY
    from samba_rl.runs.loading import policy_so_far

    if (run / CONFIG).exists() and not (run / SUMMARY).exists():
        system, policy = policy_so_far(run, None if task is None else load_task(task))
        return system, policy if stochastic or isinstance(policy, PlanningPolicy) else policy.still()
    loaded = load_finished(run, task)
    return loaded.task, loaded.policy if stochastic else loaded.still_policy
