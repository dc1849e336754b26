"""The commands that look at what was learned: eval, render."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samba_rl.cli.parsing import load_task
from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.runs.evaluation import Evaluation
    from samba_rl.types import Policy

RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def evaluate(
    run: RunFolder,
    steps: int = 10_000,
    seed: int = 0,
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    task: str | None = None,
    workers: int | None = None,
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> int:
    """Run a learned policy on the real system: how good and how safe it is.

    Args:
        run: The folder that `samba-rl train` wrote.
        steps: Real steps; the last episode is finished.
        seed: The same seed gives the same episodes.
        deterministic: Without the noise of the policy's actions.
        task: The system as module:function or file.py:function, where it is one of your own.
        workers: Processes for MuJoCo. Left out: one for each core; 0: none.
        as_json: Print one line of JSON instead of a table.
    """
    from samba_rl.data.plain import to_plain

    loaded = _load(run, task)
    console = Console(stderr=as_json)
    with console.status(f"{loaded.task.title}: {steps:,} steps"):
        evaluation = loaded.evaluate(steps, seed, deterministic, workers)
    if as_json:
        print(json.dumps(to_plain(evaluation.to_json()), ensure_ascii=False))
    else:
        console.print(evaluation_table(f"{loaded.task.title}: {loaded.learner}", evaluation))
    return 0


def render(
    run: RunFolder,
    film: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILM")],
    episodes: int = 3,
    seed: int = 0,
    stochastic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    task: str | None = None,
) -> int:
    """Film a learned policy on the real system.

    Args:
        run: The folder that `samba-rl train` wrote.
        film: The file to write: .mp4 or .gif.
        episodes: How many, one after the other.
        seed: The same seed gives the same episodes.
        stochastic: With the noise of the policy's actions.
        task: The system as module:function or file.py:function, where it is one of your own.
    """
    from samba_rl.report import film as films

    if film.suffix.lower() not in (".mp4", ".gif"):
        raise UserError(f"cannot write a film as '{film}'; its name must end in .mp4 or .gif")
    if episodes < 1:
        raise UserError(f"--episodes {episodes}: at least 1 is needed")
    loaded = _load(run, task)
    policy: Policy = loaded.policy if stochastic else loaded.still_policy
    console = Console()
    with console.status(f"{loaded.task.title}: {episodes} episodes"):
        frames = films.policy_film(loaded.task, policy, episodes, seed)
        films.save_film(frames, film, loaded.task.dt)
    console.print(f"{episodes} episode{'s' * (episodes > 1)}: {escape(str(film))}", soft_wrap=True)
    return 0


def _load(folder: Path, task: str | None) -> Run:
    from samba_rl.runs import load_run

    return load_run(folder, None if task is None else load_task(task))


def evaluation_table(title: str, *evaluations: Evaluation) -> Table:
    """Evaluations side by side, for people."""
    table = Table(title=title, title_justify="left")
    first = evaluations[0]
    table.add_column(f"evaluation, seed {first.seed}")
    for each in evaluations:
        table.add_column("without noise" if each.deterministic else "with noise", justify="right")

    def row(what: str, *values: str) -> None:
        table.add_row(what, *values)

    row("steps (episodes)", *(f"{e.steps:,} ({e.episodes:,})" for e in evaluations))
    row("mean return (negative cost)", *(f"{e.return_mean:.2f} ± {e.return_std:.2f}" for e in evaluations))
    row("TV, steps in the unsafe region", *(f"{e.TV:,}" for e in evaluations))
    row("TC, safety cost in all", *(f"{e.TC:,.1f}" for e in evaluations))
    row(
        "safety cost of an episode, quartiles",
        *(" / ".join(f"{value:.2f}" for value in e.safety_quartiles) for e in evaluations),
    )
    for i, (words, _, limit) in enumerate(first.constraints):
        row(f"{words}, limit {limit:g}", *(f"{e.constraints[i][1]:.3g}" for e in evaluations))
    if not first.constraints:
        row(f"CVaR {first.alpha:g} of the safety cost of an episode", *(f"{e.cvar:.3g}" for e in evaluations))
    return table
