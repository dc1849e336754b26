"""What a run shows while it goes: a live table in a terminal, else a line for each trial."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, final

from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from samba_rl.errors import printable
from samba_rl.events import ImprovementReport, LatentReport, Notice, TrialReport
from samba_rl.improve.constraints import make_constraints

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.console import Console

    from samba_rl.events import Event
    from samba_rl.learners import Settings
    from samba_rl.tasks.task import Task

RECENT = 60
"""Control iterations from which the time that is left is estimated: later ones are slower, because the model grows."""


@final
class Progress:
    """Shows events as they come; use it as a context."""

    def __init__(self, console: Console, task: Task, settings: Settings, title: str) -> None:
        self._console, self._task, self._settings, self._title = console, task, settings, title
        self._constraints = make_constraints((settings.constraint, *settings.more_constraints), task.constraints)
        self._trial: TrialReport | None = None
        self._latest: ImprovementReport | None = None
        self._learned: LatentReport | None = None
        self._phase = "first real trials"
        self._controls = 0
        self._times: deque[tuple[int, float]] = deque([(0, 0.0)], maxlen=RECENT)
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
            self._live.update(self._table(), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Notice):
            self._console.print(f"[yellow]Note:[/] {text(event.text)}", soft_wrap=True)
            return
        self._take(event)
        if isinstance(event, TrialReport) and self._live is None:
            self._console.print(self._line(event), soft_wrap=True, highlight=False, markup=False)
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def recall(self, events: Sequence[Event]) -> None:
        """Take in what happened before the run was interrupted, without showing it again."""
        for event in events:
            if not isinstance(event, Notice):
                self._take(event)

    def _take(self, event: TrialReport | ImprovementReport | LatentReport) -> None:
        if isinstance(event, TrialReport):
            self._trial = event
            self._phase = "improving the policy" + self._of_model(" on the model")
            if self._settings.traces == "latent":
                self._phase = "learning the model"
            return
        if isinstance(event, LatentReport):
            same = self._learned is not None and self._learned.update < event.update
            self._controls += event.update - (self._learned.update if same and self._learned is not None else 0)
            self._learned = event
            self._times.append((self._controls, event.seconds))
            self._phase = f"learning the model, {event.update} of {event.updates}"
            if event.update == event.updates:
                self._phase = "real trial" if self._trials_left() else "done"
            return
        self._latest = event
        self._controls += 1
        self._times.append((self._controls, event.seconds))
        self._phase = f"improving the policy{self._of_model(' on the model')}, {event.control} of {event.controls}"
        if event.control == event.controls:
            more = "real trial" + self._of_model(", and fitting the model")
            self._phase = more if self._trials_left() else "choosing the policy"

    # Time -----------------------------------------------------------------------------------------------------------

    def _trials_left(self) -> int:
        """Trials of the policy that are still to come, if every episode lasts to its horizon."""
        spent = self._trial.real_samples if self._trial is not None else self._settings.first.samples
        return -(-((self._settings.real_samples - spent) // self._task.horizon) // self._settings.episodes)

    def _seconds_left(self) -> float:
        """Estimated from the latest control iterations, trials and fits included (NaN: not yet known)."""
        (count, begin), (_, now) = self._times[0], self._times[-1]
        if self._controls == count:
            return math.nan
        imagination, latest = self._settings.imagination, self._latest
        trials = self._trials_left()
        if self._learned is not None:
            left = trials * self._settings.latent.updates
            if self._trial is not None and self._learned.iteration == self._trial.iteration:
                left += self._learned.updates - self._learned.update
            return max(left, 0) * (now - begin) / (self._controls - count)
        left = trials * imagination.iterations + imagination.last_iterations
        if latest is not None and self._trial is not None and latest.iteration == self._trial.iteration:
            # Those of this trial that are done already; the trial itself is not among those to come.
            left -= latest.control
        return max(left, 0) * (now - begin) / (self._controls - count)

    def _time(self) -> str:
        seconds = max(event.seconds for event in (self._trial, self._latest, self._learned) if event is not None)
        left = self._seconds_left()
        return duration(seconds) + ("" if math.isnan(left) else f", about {duration(left)} left")

    # What is shown --------------------------------------------------------------------------------------------------

    def _line(self, trial: TrialReport) -> str:
        """One trial on one line."""
        parts = [
            f"trial {trial.iteration}",
            f"{trial.real_samples}/{self._settings.real_samples} real samples",
            f"return {number(trial.return_mean)}"
            + ("" if self._settings.traces == "real" else f" (model {number(trial.predicted_return)})"),
            f"TV {trial.learning_TV}",
            f"TC {trial.learning_TC:.2f}",
        ]
        if self._latest is not None:
            parts += [f"{short} {self._value(i)}" for i, short in enumerate(self._short_names())]
            parts += [self._of_model(f"λ_π {self._latest.lambda_pi:.2f}")]
            parts += [f"λ_{short} {self._latest.multipliers[i]:.3g}" for i, short in enumerate(self._short_names())]
        if self._learned is not None:
            parts += [f"loss {self._learned.loss:.3g} nats"]
        parts += [self._of_model(self._calibration(trial)), self._time()]
        return "  ".join(filter(None, parts))

    def _table(self) -> Table:
        """Everything, live."""
        table = Table(title=self._title, title_justify="left", show_header=False, min_width=72)
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        trial, latest, settings = self._trial, self._latest, self._settings
        table.add_row("phase", self._phase)
        if trial is not None:
            bar = ProgressBar(total=settings.real_samples, completed=trial.real_samples, width=24)
            samples = Table.grid(padding=(0, 1))
            samples.add_row(f"{trial.real_samples} of {settings.real_samples}", bar)
            table.add_row("trial (iteration)", f"{trial.iteration}, about {self._trials_left()} to come")
            table.add_row("real samples", samples)
            foreseen = f", the model expected {number(trial.predicted_return)}"
            expected = "" if self._settings.traces == "real" else foreseen
            table.add_row("return of the last trial", f"{number(trial.return_mean)}{expected}")
            table.add_row("unsafe steps (TV), safety cost (TC)", f"{trial.learning_TV}, {trial.learning_TC:.2f} so far")
            if self._settings.traces == "model":
                table.add_row("calibration of the model", self._calibration(trial))
        if latest is not None:
            for i, constraint in enumerate(self._constraints):
                table.add_row(text(constraint.in_words()), f"{self._value(i)}, λ = {latest.multipliers[i]:.3g}")
            if self._settings.traces == "model":
                table.add_row("λ_π, the weight of the cost", f"{latest.lambda_pi:.2f}")
                table.add_row("return on the model", number(latest.model_return))
        if self._learned is not None:
            one = self._learned
            parts = f"observation {one.observation:.3g}, cost {one.cost:.3g}, safety {one.safety:.3g}, KL {one.kl:.3g}"
            table.add_row("loss of the model [nats a step]", f"{one.loss:.3g} ({parts})")
        if trial is not None:
            table.add_row("time", self._time())
        return table

    def _value(self, i: int) -> str:
        """A constraint's value on the model against what it is to stay under."""
        assert self._latest is not None
        value, target, limit = self._latest.values[i], self._latest.targets[i], self._constraints[i].limit
        return f"{value:.3g} (target {target:.3g}, limit {limit:g})"

    def _short_names(self) -> list[str]:
        """What the constraints are called on a line."""
        kinds = [type(constraint).__name__ for constraint in self._constraints]
        return [kind if kinds.count(kind) == 1 else f"{kind}{i}" for i, kind in enumerate(kinds)]

    def _of_model(self, words: str) -> str:
        """Words that only mean something where there is a model."""
        return words if self._settings.traces == "model" else ""

    def _calibration(self, trial: TrialReport) -> str:
        scores = ", ".join(f"{value:.2f}" for value in trial.z_std)
        return f"surprise {number(trial.surprise)}, z {scores}"


def text(value: object) -> str:
    """What comes from a file or a user, so that it is shown as it is: no markup, and no control of the terminal."""
    return escape(printable(str(value)))


def number(value: float) -> str:
    """Two decimals, and a dash for what is not known."""
    return "–" if math.isnan(value) else f"{value:.2f}"


def duration(seconds: float) -> str:
    """Such as 42 s, 3 min 20 s or 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
