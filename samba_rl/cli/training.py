"""The command train."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samba_rl.cli.parsing import load_task, one_line
from samba_rl.cli.progress import Progress, duration
from samba_rl.cli.results import evaluation_table
from samba_rl.constraints import ConstraintSettings
from samba_rl.learners import LEARNERS, Settings, make_settings
from samba_rl.runs import Run
from samba_rl.runs import train as learn
from samba_rl.runs.folder import DATA, write_json
from samba_rl.tasks import TASKS
from samba_rl.tensorboard import TensorBoardLog, available
from samba_rl.types import UserError

if TYPE_CHECKING:
    from samba_rl.reports import Event
    from samba_rl.tasks.task import Task

PROG = "samba-rl train"
DESCRIPTION = """Learn a policy on a system: real trials, a model of them, a policy improved on what the model imagines.

Every setting is a flag; the defaults below are those of the system, the learner and the preset that you name. Further
limits are numbered: --more-constraints.0.kind chance --more-constraints.0.limit 0.1
"""
LEARNERS_IN_WORDS = "; ".join(
    f"{name}: minimises {' and '.join(row.objectives)}, limit {row.constraint}" for name, row in LEARNERS.items()
)
EVALUATION_STEPS = {True: 10_000, False: 3_000}
"""By whether the system's equations are known: a simulator is slow."""


@dataclass(frozen=True)
class Options:
    """What is asked for beside the settings."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SYSTEM")]
    """safe-pendulum, safe-cart-pole-double-pendulum or safe-fetch-reach; for a system of your own, the function that
    gives it (a Task) as module:function or file.py:function."""
    settings: Annotated[Settings, tyro.conf.arg(name="")]
    learner: Annotated[str, tyro.conf.arg(help=LEARNERS_IN_WORDS)] = "samba"
    preset: str = "default"
    """default; paper: the paper's table to the letter; smoke: seconds, to see whether everything works."""
    seed: int = 0
    """The same seed gives the same run."""
    out: Path | None = None
    """The folder of the run. Left out: runs/SYSTEM-LEARNER-SEED, numbered on if that is taken."""
    data: Path | None = None
    """A CSV or Parquet file of real transitions that are there already; they do not count as samples."""
    device: str = "cpu"
    """Where the model and the policy are computed: cpu or cuda."""
    threads: int | None = None
    """For PyTorch. Left out: one for each core."""
    workers: int | None = None
    """Processes for MuJoCo. Left out: one for each core; 0: none."""
    evaluation: bool = True
    """Whether the policy is evaluated at the end, with and without its noise."""
    pictures: bool = True
    """Whether pictures are drawn at the end."""


# The arguments --------------------------------------------------------------------------------------------------------


def parsed_train(arguments: list[str]) -> Callable[[], int]:
    """The command with its arguments, ready to be called."""
    where, learner, preset = _peek(arguments)
    if not where and not {"-h", "--help"} & set(arguments):
        raise UserError(
            f"train which system? Name one of {', '.join(TASKS)}, or your own as file.py:function; see {PROG} --help"
        )
    task = load_task(where) if where else None
    options = _parse(arguments, task, learner, preset)
    if task is None or (options.task, options.learner, options.preset) != (where, learner, preset):
        # A guess that went wrong: the parser knows better what is a system and what the value of a flag.
        task = load_task(options.task)
        options = _parse(arguments, task, options.learner, options.preset)
    return partial(train, task, options)


def _peek(arguments: list[str]) -> tuple[str, str, str]:
    """System (empty: none was found), learner and preset: the defaults of the other flags depend on them."""
    named = {"--learner": "samba", "--preset": "default"}
    first = next((argument for argument in arguments[:1] if not argument.startswith("-")), "")
    places = [argument for argument in arguments if argument in TASKS or re.fullmatch(r"[^-].*:\w+", argument)]
    where = first or next(iter(places), "")
    for i, argument in enumerate(arguments):
        name, _, joined = argument.partition("=")
        if name in named:
            named[name] = joined or "".join(arguments[i + 1 : i + 2])
    return where, named["--learner"], named["--preset"]


def _parse(arguments: list[str], task: Task | None, learner: str, preset: str) -> Options:
    settings = make_settings("" if task is None else task.name, learner, preset)
    settings = replace(settings, more_constraints=_more_constraints(arguments))
    default = Options(tyro.MISSING, settings, learner, preset)
    with one_line(PROG):
        return tyro.cli(Options, prog=PROG, description=DESCRIPTION, default=default, args=arguments)


def _more_constraints(arguments: list[str]) -> tuple[ConstraintSettings, ...]:
    """As many further limits as the flags number, each to be filled by them."""
    found = {int(number) for number in re.findall(r"^--more[-_]constraints\.(\d+)\.", "\n".join(arguments), re.M)}
    if found != set(range(len(found))):
        raise UserError(
            f"--more-constraints has the numbers {', '.join(map(str, sorted(found)))}; number the limits from 0 on"
        )
    return (ConstraintSettings(),) * len(found)


# The run --------------------------------------------------------------------------------------------------------------


def train(task: Task, options: Options) -> int:
    """Train, show how it goes, evaluate, draw."""
    if options.threads is not None:
        if options.threads < 1:
            raise UserError(f"--threads {options.threads}: at least 1 is needed")
        torch.set_num_threads(options.threads)
    console = Console(highlight=False)
    out = options.out or _free_folder(task.name, options.learner, options.seed)
    title = f"{task.title}: {options.learner}, seed {options.seed}"
    with Progress(console, task, options.settings, title) as progress, _Events(out) as events:
        if events.missing:
            console.print(f"[dim]{escape(events.missing)}[/]")

        def log(event: Event) -> None:
            progress(event)
            events(event)

        try:
            run = learn(
                task,
                options.learner,
                preset=options.preset,
                seed=options.seed,
                settings=options.settings,
                device=options.device,
                out=out,
                data=options.data,
                log=log,
                workers=options.workers,
            )
        except KeyboardInterrupt:
            if (out / DATA).exists():
                console.print(f"What was measured is kept: --data {escape(str(out / DATA))}", soft_wrap=True)
            raise
    console.print(_summary_table(title, run))
    if options.evaluation:
        _evaluate(console, run, out, options.workers)
    pictures = _draw(console, run, out) if options.pictures else []
    _print_next(console, out, pictures, options.task if ":" in options.task else None)
    return 0


class _Events:
    """TensorBoard's events, if it is there."""

    def __init__(self, folder: Path) -> None:
        self._log = TensorBoardLog(folder) if available() else None
        self.missing = "" if self._log else "No events for TensorBoard: pip install 'samba-rl[tensorboard]'"

    def __enter__(self) -> _Events:
        return self

    def __exit__(self, *_: object) -> None:
        if self._log is not None:
            self._log.close()

    def __call__(self, event: Event) -> None:
        if self._log is not None:
            self._log(event)


def _free_folder(task: str, learner: str, seed: int) -> Path:
    """runs/SYSTEM-LEARNER-SEED, numbered on if that is taken."""
    name = re.sub(r"[^\w.-]+", "-", f"{task}-{learner}-{seed}")
    folder, number = Path("runs") / name, 2
    while folder.exists():
        folder, number = Path("runs") / f"{name}-{number}", number + 1
    return folder


def _summary_table(title: str, run: Run) -> Table:
    summary = run.summary
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("real samples (episodes)", f"{summary['real_samples']:,} ({summary['episodes']:,})")
    table.add_row("unsafe steps while learning (TV)", f"{summary['learning_TV']:,}")
    table.add_row("safety cost while learning (TC)", f"{summary['learning_TC']:,.1f}")
    table.add_row("mean return of the last trials", f"{summary['return_last_trials']:.2f}")
    for limit in summary["constraints"]:
        reachable = {True: "can be met", False: "looks infeasible", None: "not examined"}[limit["feasible"]]
        least = "" if limit["least"] is None else f", least on the model {limit['least']:.3g}"
        table.add_row(f"limit on {escape(limit['constraint'])}", f"{limit['limit']:g}: {reachable}{least}")
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in summary["seconds_by_phase"].items())
    table.add_row("time", f"{duration(summary['seconds'])} ({phases})")
    return table


def _evaluate(console: Console, run: Run, out: Path, workers: int | None) -> None:
    steps = EVALUATION_STEPS[run.task.known_dynamics]
    with console.status(f"Evaluating: twice {steps:,} steps"):
        with_noise, without = (run.evaluate(steps, deterministic=plain, workers=workers) for plain in (False, True))
    write_json(out / "evaluation.json", {"with_noise": with_noise.to_json(), "without_noise": without.to_json()})
    console.print(evaluation_table("On the real system, apart from learning", with_noise, without))


def _draw(console: Console, run: Run, out: Path) -> list[Path]:
    from samba_rl.figures.run import run_pictures

    try:
        with console.status("Drawing"):
            return run_pictures(run, out)
    except UserError as error:
        # The run is whole without them; most likely matplotlib is not installed, and the error says how it would be.
        console.print(f"[dim]No pictures: {escape(str(error))}[/]", soft_wrap=True)
        return []


def _print_next(console: Console, out: Path, pictures: list[Path], task: str | None) -> None:
    own = f" --task {task}" if task else ""
    commands = {
        f"samba-rl eval {out}{own}": "evaluate it again, longer or with another seed",
        f"samba-rl render {out} {out / 'film.mp4'}{own}": "film it",
        f"tensorboard --logdir {out}": "see every curve",
    }
    shown = f" ({', '.join(picture.name for picture in pictures)})" if pictures else ""
    console.print(f"The run is in [bold]{escape(str(out))}[/]{escape(shown)}. Next:", soft_wrap=True)
    width = max(map(len, commands))
    for command, what in commands.items():
        console.print(f"  [bold]{escape(command.ljust(width))}[/]  {what}", soft_wrap=True)
