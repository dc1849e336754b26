"""Display of a run in the terminal, from its start or from where it was interrupted to its results."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar, cast, final

from rich.console import Console

from samba_rl.cli.progress import Progress
from samba_rl.cli.stopping import Patient, polite_stop
from samba_rl.cli.tables import evaluation_table, summary_table
from samba_rl.cli.text import text
from samba_rl.data.plain import to_plain
from samba_rl.errors import Paused, Stopped, UserError
from samba_rl.events import Event, Log
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.runs import Run
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.evaluation import Evaluation
from samba_rl.runs.folder import CONFIG, EVALUATION, REPORT, write_json
from samba_rl.runs.limits import Breach, breaches
from samba_rl.runs.session import About
from samba_rl.runs.tensorboard import TensorBoardLog, available
from samba_rl.runs.wandb import WandbLog
from samba_rl.tasks.rig import RigTask

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from samba_rl.tasks.task import Task

INTERRUPTED, PAUSED, MISSED = 130, 3, 4
"""Exit codes of runs that did not finish, and of those whose policy does not keep a limit."""
EVALUATION_STEPS = {True: 10_000, False: 3_000}
"""Steps of an evaluation, by whether the system's equations are known; a simulator is slow."""
PLANNED_STEPS = 3_000
"""Steps of an evaluation of a planning policy, which is slow as well."""

NO_TENSORBOARD = "No TensorBoard log: pip install 'samba-rl[tensorboard]'"

T = TypeVar("T")


@final
class RunDisplay:
    """Shows a run while it learns, then its evaluation and its pictures."""

    def __init__(
        self,
        task: Task,
        named: str,
        out: Path,
        about: About,
        goes_on: str = "resume",
        *,
        rig: str = "",
        quiet: bool = False,
        tensorboard: bool = True,
        wandb: str = "",
    ) -> None:
        """Prepare the display of a run in the folder `out`; `named` is the system as the user gave it.

        `goes_on` is the command that continues the run, and `rig` the one that runs its episodes; a `quiet` display
        leaves standard output to the result. Curves go to TensorBoard, and to the project `wandb` of Weights & Biases,
        if one is named.
        """
        # `train | head -1` must not stop a run.
        self.console = Console(highlight=False, file=cast(TextIO, Patient(sys.stderr if quiet else sys.stdout)))
        self._task, self._out, self._about = task, out, about
        self._goes_on, self._rig = goes_on, f" --rig {shlex.quote(rig)}" if rig else ""
        self._own = f" --task {shlex.quote(named)}" if ":" in named else ""
        self._tensorboard, self._wandb = tensorboard, wandb
        self._has_limit = bool(about.settings.constraints(about.row, task.constraints))
        self._title = f"{text(task.title)}: {text(about.learner)}, seed {about.seed}"

    def run(
        self,
        learning: Callable[[Log, Callable[[], bool]], Run],
        *,
        evaluation: bool,
        pictures: bool,
        report: bool,
        workers: int | None,
        steps: int | None = None,
        earlier: Sequence[Event] = (),
    ) -> int:
        """Learn and show the results; return the exit code. `earlier` events happened before an interruption."""
        run = self.learn(learning, earlier)
        if isinstance(run, int):
            return run
        return self.results(run, evaluation=evaluation, pictures=pictures, report=report, workers=workers, steps=steps)

    def learn(self, learning: Callable[[Log, Callable[[], bool]], T], earlier: Sequence[Event]) -> T | int:
        """Learn with a display of the progress; return the result, or the exit code if it was stopped.

        `learning` is called with a log and with a function that says when to stop.
        """
        try:
            return self._watched(learning, earlier)
        except Paused as pause:
            self.console.print(f"[yellow]Paused:[/] {text(pause)}.", soft_wrap=True)
            self._print_resume()
            return PAUSED
        except Stopped:
            self.console.print("Stopped and saved.")
            self._print_resume()
            return INTERRUPTED
        except KeyboardInterrupt:
            if (self._out / CONFIG).exists():
                self.console.print("Stopped immediately.")
                self._print_resume()
            raise

    def results(
        self,
        run: Run,
        *,
        evaluation: bool,
        pictures: bool,
        report: bool,
        workers: int | None = None,
        steps: int | None = None,
    ) -> int:
        """Evaluate a finished run, draw and show its results, and write its page; return the exit code.

        A rig is only evaluated for a given number of `steps`.
        """
        self.console.print(summary_table(self._title, run))
        asked = evaluation and (run.task.parallel or steps is not None)
        measured = self._evaluate(run, workers, steps) if asked else None
        if evaluation and not asked and not isinstance(run.task, RigTask):
            self.console.print(
                f"Not evaluated: {text(run.task.name)} is a rig. samba-rl eval runs as many episodes as you say.",
                soft_wrap=True,
            )
        figures = self._figures(run) if pictures or report else {}
        drawn = self._write(figures) if pictures else []
        if report:
            self._write_page(run, figures, film=measured is not None)
        return self.end(breaches(run.summary, measured), drawn)

    def end(self, found: Sequence[Breach], pictures: Sequence[Path] = ()) -> int:
        """Print where a finished run is, commands to try next, and limits that are not kept; return the exit code."""
        curves = {f"tensorboard --logdir {shlex.quote(str(self._out))}": "see every curve"} if self._tensorboard else {}
        commands = {**self._further(), **curves}
        drawn = f" ({', '.join(picture.name for picture in pictures)})" if pictures else ""
        self.console.print(f"The run is in [bold]{text(self._out)}[/]{text(drawn)}. Next:", soft_wrap=True)
        width = max(map(len, commands))
        for command, what in commands.items():
            self.console.print(f"  [bold]{text(command.ljust(width))}[/]  {what}", soft_wrap=True)
        return print_breaches(self.console, found)

    def _further(self) -> dict[str, str]:
        """Return commands that run the policy of a finished run, and what they do."""
        if isinstance(self._task, RigTask):
            return {}  # only others can run it
        out, film, own = shlex.quote(str(self._out)), shlex.quote(str(self._out / "film.mp4")), self._own
        many = "" if self._task.parallel else " --episodes 10"
        commands = {f"samba-rl eval {out}{many}{own}": "evaluate it again, from fresh start states"}
        if self._has_limit:
            commands[f"samba-rl certify {out}{many}{own}"] = "bound its real risk with 95 % confidence"
        return {**commands, f"samba-rl render {out} {film}{many}{own}": "film it"}

    def _watched(self, learning: Callable[[Log, Callable[[], bool]], T], earlier: Sequence[Event]) -> T:
        progress = Progress(self.console, self._task, self._about, self._title)
        progress.recall(earlier)
        logs: list[TensorBoardLog | WandbLog] = []
        if self._tensorboard and available():
            logs.append(TensorBoardLog(self._out, earlier))
        if self._wandb:
            logs.append(WandbLog(self._wandb, self._out, self._about, self._task.name, earlier))
        with progress, _closing(logs), polite_stop() as stop:
            if self._tensorboard and not available():
                self.console.print(f"[dim]{text(NO_TENSORBOARD)}[/]")

            def log(event: Event) -> None:
                progress(event)
                for each in logs:
                    each(event)

            return learning(log, stop)

    def _evaluate(self, run: Run, workers: int | None, given: int | None) -> Evaluation:
        planned = isinstance(run.policy, PlanningPolicy)
        steps = given or (PLANNED_STEPS if planned else EVALUATION_STEPS[run.task.known_dynamics])
        with self.console.status(f"Evaluating: {'' if planned else '2 x '}{steps:,} steps"):
            both = run.evaluate_both(steps, workers)
        results = to_plain({"with_noise": both[0].to_json(), "without_noise": both[1].to_json()})
        write_json(self._out / EVALUATION, signed(results))
        shown = both[:1] if planned else both
        self.console.print(evaluation_table("Evaluation on the real system, apart from learning", *shown))
        return both[0]

    def _figures(self, run: Run) -> dict[str, Figure]:
        from samba_rl.report.run import run_figures

        try:
            with self.console.status("Drawing"):
                return run_figures(run)
        except UserError as error:
            # The run is complete without pictures. Most likely matplotlib is missing, and the error says how to get it.
            self.console.print(f"[dim]No pictures: {text(error)}[/]", soft_wrap=True)
            return {}

    def _write(self, figures: dict[str, Figure]) -> list[Path]:
        if not figures:
            return []
        from samba_rl.report.run import write_figures

        try:
            return write_figures(figures, self._out)
        except UserError as error:
            self.console.print(f"[dim]No pictures: {text(error)}[/]", soft_wrap=True)
            return []

    def _write_page(self, run: Run, figures: dict[str, Figure], *, film: bool) -> None:
        """Write the run's page; whatever goes wrong, the run is complete without it."""
        from samba_rl.report.run_page import write_run_page

        try:
            with self.console.status("Writing the report"):
                write_run_page(run, self._out / REPORT, figures, film=film)
        except Exception as error:
            # A system of the user's own can fail in any way when it is filmed.
            self.console.print(f"[dim]No {REPORT}: {text(error)}[/]", soft_wrap=True)
            return
        where = text(self._out / REPORT)
        self.console.print(f"The report is [bold]{where}[/]; open it in a browser.", soft_wrap=True)

    def _print_resume(self) -> None:
        command = f"samba-rl {self._goes_on} {shlex.quote(str(self._out))}{self._own}{self._rig}"
        self.console.print(f"All measurements are saved. Continue with:  [bold]{text(command)}[/]", soft_wrap=True)


def print_breaches(console: Console, found: Sequence[Breach]) -> int:
    """Print limits that are not kept, last and in red, and return the exit code."""
    for one in sorted(found, key=lambda one: not one.expected):
        start = "[yellow]The limit cannot be met.[/]" if one.expected else "[bold red]The limit is not kept.[/]"
        console.print(f"{start} {text(one.words)}.", soft_wrap=True)
    return 0 if all(one.expected for one in found) else MISSED


@contextlib.contextmanager
def _closing(logs: Sequence[TensorBoardLog | WandbLog]) -> Iterator[None]:
    """Close logs at the end, however it comes."""
    try:
        yield
    finally:
        for each in logs:
            each.close()
