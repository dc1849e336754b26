"""`samba-rl new`: make a run whose trials are made outside of this program."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from samba_rl.cli.text import text
from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.cli.options import Options
    from samba_rl.tasks.task import Task

PROG = "samba-rl new"
USAGE = f"{PROG} RUN --task SYSTEM [--learner L] [--preset P] [--seed S] [--data FILE] [--any.setting VALUE]"


def parsed_new(arguments: list[str]) -> Callable[[], int]:
    """Parse the arguments, which are those of `train` but for the folder and the system; return the call."""
    from samba_rl.cli.train import parsed_options

    if {"-h", "--help"} & set(arguments) and len(arguments) == 1:
        print(
            f"usage: {USAGE}\n\nMake a run that waits for the world: its trials are made outside of this program, and "
            "told to it.\nThe settings are those of train; samba-rl train SYSTEM --help shows them."
        )
        return lambda: 0
    where, rest = _taken_out("--task", arguments)
    if not rest or rest[0].startswith("-") or where is None:
        raise UserError(f"a run needs a folder and a system: {USAGE}")
    folder, *flags = rest
    task, options = parsed_options([where, *flags, "--out", folder], PROG)
    return partial(_new, Path(folder), task, options)


def _taken_out(flag: str, arguments: list[str]) -> tuple[str | None, list[str]]:
    """Return the value of a flag, and the other arguments."""
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            return arguments[i + 1], [*arguments[:i], *arguments[i + 2 :]]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}="), [*arguments[:i], *arguments[i + 1 :]]
    return None, arguments


def _new(folder: Path, task: Task, options: Options) -> int:
    from samba_rl.runs.waiting import new_run

    if options.first_policy or options.rig:
        flag = "--first.policy" if options.first_policy else "--rig"
        raise UserError(
            f"{flag} is for train; here, trials are yours to make: tell those of your own controller with samba-rl "
            "tell, and leave out random ones with --first.samples 0"
        )
    new_run(
        folder,
        task,
        options.row,
        name=options.learner,
        preset=options.preset,
        seed=options.seed,
        settings=options.with_data(),
        device=options.device,
        named=options.task if ":" in options.task else "",
    )
    run = f"{shlex.quote(str(folder))}" + (f" --task {shlex.quote(options.task)}" if ":" in options.task else "")
    console = Console(highlight=False)
    console.print(f"Made the run [bold]{text(folder)}[/], which waits for trials. Next:", soft_wrap=True)
    console.print(f"  [bold]samba-rl ask {text(run)}[/]", soft_wrap=True)
    return 0
