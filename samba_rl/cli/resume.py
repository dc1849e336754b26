"""`samba-rl resume`: continue an interrupted run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import tyro

from samba_rl.cli.arguments import RunArgument, Steps
from samba_rl.cli.parsing import load_function, load_task
from samba_rl.cli.text import text
from samba_rl.errors import UserError
from samba_rl.ranges import Count, In, Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from samba_rl.events import Log
    from samba_rl.runs import Run


def resume(
    run: RunArgument,
    task: str | None = None,
    workers: Workers | None = None,
    real_samples: Count | None = None,
    threads: Annotated[int, In("[1, 1000]")] | None = None,
    device: str | None = None,
    rig: str = "",
    first_policy: Annotated[str, tyro.conf.arg(name="first.policy")] = "",
    *,
    evaluation: bool = True,
    evaluation_steps: Steps | None = None,
    pictures: bool = True,
    report: bool = True,
) -> int:
    """Continue an interrupted run to the same end that it would have reached, or a finished one with more samples.

    Exits with 4 if the final policy does not keep a limit, also if the run is already finished.

    Args:
        run: Folder that `samba-rl train` wrote.
        task: Your own system, as module:function or file.py:function.
        workers: Number of processes for MuJoCo. Default: as many as the run had.
        real_samples: New budget of a finished run, its samples so far included: the run goes on.
        threads: Number of PyTorch threads. Default: as many as the run had; with others, the last digits may differ.
        device: Device of the model and the policy: cpu or cuda. Default: the run's; on another one it goes on with
            other random numbers.
        first_policy: Controller that makes the first trial, if that is still to come, as for `train`.
        rig: Command that runs its episodes, if it has one, as for `train`.
        evaluation: Evaluate the policy at the end, with and without its noise.
        evaluation_steps: Number of real steps of the evaluation. Default: as for `train`; none of a rig.
        pictures: Draw pictures at the end.
        report: Write the run's page, report.html, at the end.
    """
    from samba_rl import runs
    from samba_rl.cli.display import RunDisplay
    from samba_rl.runs.folder import EVALUATION, SUMMARY
    from samba_rl.runs.limits import breaches_in
    from samba_rl.runs.loading import current_config
    from samba_rl.runs.summary import TOLD, trials_of
    from samba_rl.runs.training import go_on

    given = None if task is None else load_task(task)
    if threads is not None and threads < 1:
        raise UserError(f"--threads {threads}: at least 1 is needed")
    if real_samples is not None:
        go_on(run, real_samples, given)
        if trials_of(current_config(run)) == TOLD:
            own = "" if task is None else f" --task {shlex.quote(task)}"
            print(f"Its budget is {real_samples:,} real samples now. Next: samba-rl ask {shlex.quote(str(run))}{own}")
            return 0
    system, about = runs.run_in(run, given)
    display = RunDisplay(system, task or system.name, run, about, rig=rig)
    if (run / SUMMARY).exists() and (run / EVALUATION).exists():
        display.console.print(f"The run in [bold]{text(run)}[/] is already finished.", soft_wrap=True)
        return display.end(breaches_in(run))

    controller = load_function(first_policy) if first_policy else None

    def learning(log: Log, stop: Callable[[], bool]) -> Run:
        return runs.resume(
            run, given, rig=rig or None, first_policy=controller, threads=threads, device=device, log=log,
            workers=workers, stop=stop,
        )  # fmt: skip

    return display.run(
        learning,
        evaluation=evaluation,
        steps=evaluation_steps,
        pictures=pictures,
        report=report,
        workers=workers,
        earlier=runs.earlier_events(run),
    )
