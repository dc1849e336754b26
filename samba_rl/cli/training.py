"""The commands train and resume."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import torch
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from samba_rl.cli.parsing import load_task, one_line
from samba_rl.cli.progress import Progress, duration, text
from samba_rl.cli.results import evaluation_table
from samba_rl.cli.stopping import polite_stop
from samba_rl.errors import Paused, Stopped, UserError
from samba_rl.improve.constraints import ConstraintSettings
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.learners import LEARNERS, Settings, make_settings
from samba_rl.runs import Run, earlier_events, run_in
from samba_rl.runs import resume as go_on
from samba_rl.runs import train as learn
from samba_rl.runs.folder import CONFIG, EVALUATION, SUMMARY, write_json
from samba_rl.runs.tensorboard import TensorBoardLog, available
from samba_rl.tasks import TASKS

if TYPE_CHECKING:
    from samba_rl.events import Event, Log
    from samba_rl.tasks.task import Task

PROG = "samba-rl train"
DESCRIPTION = """Learn a policy on a system: real trials, a model of them, a policy improved on what the model imagines.

Every setting is a flag; the defaults below are those of the system, the learner and the preset that you name. Further
limits are numbered: --more-constraints.0.kind chance --more-constraints.0.limit 0.1. For planet and planet-rs
--model.X is --latent.X, as in --model.observation pixels.
"""
PLACES = {"model": "a GP model", "real": "real trials", "latent": "a latent model"}
LEARNERS_IN_WORDS = "; ".join(
    f"{name}: minimises {' and '.join(row.objectives)} on {PLACES[row.traces]}, "
    + ("by planning" if row.update == "none" else f"limit {row.constraint}, update {row.update}")
    for name, row in LEARNERS.items()
)
INTERRUPTED, PAUSED = 130, 3
"""Exit codes of a run that did not come to its end: the user stopped it, the system failed."""
EVALUATION_STEPS = {True: 10_000, False: 3_000}
"""By whether the system's equations are known: a simulator is slow."""
PLANNED_STEPS = 3_000
"""Of a policy that plans."""


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
    if settings.traces == "latent":
        # --model is the learner's model, whatever kind that is.
        arguments = [re.sub(r"^--model\.", "--latent.", argument) for argument in arguments]
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
    _set_threads(options.threads)
    out = options.out or _free_folder(task.name, options.learner, options.seed)
    shown = _Shown(task, options.task, out, options.learner, options.seed, options.settings)

    def learned(log: Log, stop: Callable[[], bool]) -> Run:
        return learn(
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
            stop=stop,
        )

    return shown.run(learned, options.evaluation, options.pictures, options.workers)


def resume(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    task: str | None = None,
    workers: int | None = None,
    evaluation: bool = True,
    pictures: bool = True,
) -> int:
    """Go on with a run that was interrupted, to the same end that it would have had.

    Args:
        run: The folder that `samba-rl train` wrote.
        task: The system as module:function or file.py:function, where it is one of your own.
        workers: Processes for MuJoCo. Left out: as many as the run had.
        evaluation: Whether the policy is evaluated at the end, with and without its noise.
        pictures: Whether pictures are drawn at the end.
    """
    given = None if task is None else load_task(task)
    system, about = run_in(run, given)
    shown = _Shown(system, task or system.name, run, about.learner, about.seed, about.settings)
    if (run / SUMMARY).exists() and (run / EVALUATION).exists():
        shown.console.print(
            f"The run in [bold]{text(run)}[/] is finished: there is nothing to go on with.", soft_wrap=True
        )
        shown.print_next([])
        return 0

    def learned(log: Log, stop: Callable[[], bool]) -> Run:
        return go_on(run, given, log=log, workers=workers, stop=stop)

    return shown.run(learned, evaluation, pictures, workers, earlier_events(run))


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        if threads < 1:
            raise UserError(f"--threads {threads}: at least 1 is needed")
        torch.set_num_threads(threads)


@final
class _Shown:
    """A run as the command line shows it, from its beginning or from where it was interrupted."""

    def __init__(self, task: Task, named: str, out: Path, learner: str, seed: int, settings: Settings) -> None:
        self.console = Console(highlight=False)
        self._task, self._out, self._settings = task, out, settings
        self._own = f" --task {named}" if ":" in named else ""
        self._title = f"{text(task.title)}: {text(learner)}, seed {seed}"

    def run(
        self,
        learned: Callable[[Log, Callable[[], bool]], Run],
        evaluation: bool,
        pictures: bool,
        workers: int | None,
        earlier: Sequence[Event] = (),
    ) -> int:
        """Learn, evaluate, draw; gives the exit code."""
        try:
            run = self._learn(learned, earlier)
        except Paused as pause:
            self.console.print(f"[yellow]Paused:[/] {text(pause)}.", soft_wrap=True)
            self._print_resume()
            return PAUSED
        except Stopped:
            self.console.print("Stopped, and saved.")
            self._print_resume()
            return INTERRUPTED
        except KeyboardInterrupt:
            if (self._out / CONFIG).exists():
                self.console.print("Stopped at once.")
                self._print_resume()
            raise
        self.console.print(_summary_table(self._title, run))
        if evaluation:
            _evaluate(self.console, run, self._out, workers)
        self.print_next(_draw(self.console, run, self._out) if pictures else [])
        return 0

    def _learn(self, learned: Callable[[Log, Callable[[], bool]], Run], earlier: Sequence[Event]) -> Run:
        progress = Progress(self.console, self._task, self._settings, self._title)
        progress.recall(earlier)
        with progress, _Events(self._out, earlier) as events, polite_stop() as stop:
            if events.missing:
                self.console.print(f"[dim]{escape(events.missing)}[/]")

            def log(event: Event) -> None:
                progress(event)
                events(event)

            return learned(log, stop)

    def _print_resume(self) -> None:
        command = f"samba-rl resume {self._out}{self._own}"
        self.console.print(f"Everything measured is kept. Go on with:  [bold]{text(command)}[/]", soft_wrap=True)

    def print_next(self, pictures: list[Path]) -> None:
        """What a user may want to do with a finished run."""
        out, own = self._out, self._own
        commands = {
            f"samba-rl eval {out}{own}": "evaluate it again, longer or with another seed",
            f"samba-rl render {out} {out / 'film.mp4'}{own}": "film it",
            f"tensorboard --logdir {out}": "see every curve",
        }
        shown = f" ({', '.join(picture.name for picture in pictures)})" if pictures else ""
        self.console.print(f"The run is in [bold]{text(out)}[/]{escape(shown)}. Next:", soft_wrap=True)
        width = max(map(len, commands))
        for command, what in commands.items():
            self.console.print(f"  [bold]{text(command.ljust(width))}[/]  {what}", soft_wrap=True)


class _Events:
    """TensorBoard's events, if it is there."""

    def __init__(self, folder: Path, earlier: Sequence[Event]) -> None:
        self._log = TensorBoardLog(folder, earlier) if available() else None
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
        table.add_row(f"limit on {text(limit['constraint'])}", f"{limit['limit']:g}: {reachable}{least}")
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in summary["seconds_by_phase"].items())
    table.add_row("time", f"{duration(summary['seconds'])} ({phases})")
    return table


def _evaluate(console: Console, run: Run, out: Path, workers: int | None) -> None:
    # A planner takes its time.
    planned = not isinstance(run.policy, GaussianPolicy)
    steps = PLANNED_STEPS if planned else EVALUATION_STEPS[run.task.known_dynamics]
    with console.status(f"Evaluating: {'' if planned else 'twice '}{steps:,} steps"):
        both = run.evaluate_both(steps, workers)
    write_json(out / EVALUATION, {"with_noise": both[0].to_json(), "without_noise": both[1].to_json()})
    console.print(evaluation_table("On the real system, apart from learning", *(both[:1] if planned else both)))


def _draw(console: Console, run: Run, out: Path) -> list[Path]:
    from samba_rl.report.run import run_pictures

    try:
        with console.status("Drawing"):
            return run_pictures(run, out)
    except UserError as error:
        # The run is whole without them; most likely matplotlib is not installed, and the error says how it would be.
        console.print(f"[dim]No pictures: {escape(str(error))}[/]", soft_wrap=True)
        return []
