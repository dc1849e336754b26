"""`samba-rl forecast`: draw what the model expects of a policy, with quantiles, against the hazard and the limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from samba_rl.cli.arguments import RunArgument
from samba_rl.cli.parsing import load_finished
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import In, Seed

if TYPE_CHECKING:
    from samba_rl.runs import Run
    from samba_rl.types import Traces


def forecast(
    run: RunArgument,
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    trial: Annotated[int, In("[0, 1e9]")] | None = None,
    real: Annotated[int, In("[0, 1e6]")] = 0,
    components: tuple[str, ...] = (),
    trajectories: Annotated[int, In("[2, 1e6]")] = 1000,
    seed: Seed = 0,
    *,
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    task: str | None = None,
) -> int:
    """Draw what the model of a run expects of its policy: states, safety cost and limits, with quantiles.

    Args:
        run: Folder that `samba-rl train` wrote, of a learner with a model.
        out: File to write, .png, .pdf or .svg. Default: forecast.png in the folder of the run.
        trial: Draw the episodes of this real trial on top, from 0. Earlier policies made it.
        real: Run this many fresh real episodes of the policy and draw them on top. Default: none.
        components: Names of state components to draw. Default: the most telling ones.
        trajectories: Number of imagined trajectories.
        seed: Seed of the trajectories and of the real episodes.
        deterministic: Leave out the noise of the policy's actions.
        task: Your own system, as module:function or file.py:function.
    """
    from samba_rl.report import forecast as charts
    from samba_rl.report.learning import heading
    from samba_rl.report.named import check_path, save

    if trial is not None and real:
        raise UserError(f"--trial {trial} --real {real}: give one of the two")
    path = run / "forecast.png" if out is None else out
    check_path(path)
    loaded = load_finished(run, task)
    console = Console(highlight=False)
    with console.status(f"{text(loaded.task.title)}: {trajectories:,} imagined trajectories"):
        shown: tuple[Traces | None, str] = (None, "")
        if trial is not None:
            shown = _trial(loaded, trial), f"trial {trial}"
        elif real:
            shown = _fresh(loaded, real, seed, deterministic=deterministic), f"{real} fresh real episodes"
        figure = charts.forecast(
            loaded.task,
            loaded.imagine(trajectories, seed, deterministic=deterministic),
            loaded.constraints,
            f"{heading(loaded)}: forecast",
            real=shown[0],
            real_label=shown[1],
            components=components,
        )
        save(figure, path)
    console.print(f"forecast: {text(path)}", soft_wrap=True)
    return 0


def _trial(run: Run, number: int) -> Traces:
    """Return the episodes of a real trial."""
    from samba_rl.report.forecast import episodes

    if not 0 <= number < len(run.trials):
        raise UserError(f"--trial {number}: the run has the trials 0 to {len(run.trials) - 1}")
    steps = run.data.transitions
    own = list(dict.fromkeys(steps.episode.tolist()))
    counts = [trial.episodes for trial in run.trials]
    # Earlier data come before the run's own trials.
    first = len(own) - sum(counts[number:])
    return episodes(run.task, steps, own[first : first + counts[number]])


def _fresh(run: Run, count: int, seed: int, *, deterministic: bool) -> Traces:
    """Run fresh real episodes."""
    import torch

    from samba_rl.runs.run import EVALUATION_SEED
    from samba_rl.tasks.rollout import RealSource

    world = run.task.world(0)
    try:
        policy = run.still_policy if deterministic else run.policy
        return RealSource(world)(policy, count, torch.Generator().manual_seed(EVALUATION_SEED + seed))
    finally:
        world.close()
