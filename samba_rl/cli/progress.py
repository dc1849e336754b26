"""Progress of a run: a live table in a terminal, or else one line per trial."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, final

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from samba_rl.cli.text import duration, number, text
from samba_rl.events import ImprovementReport, LatentReport, Notice, TrialReport
from samba_rl.learners import Planning

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.console import Console

    from samba_rl.events import Event
    from samba_rl.runs.session import About
    from samba_rl.tasks.task import Task

RECENT = 60
"""Number of latest control iterations used to estimate the remaining time; they get slower as the model grows."""


@final
class Progress:
    """Shows events as they happen; use it as a context manager."""

    def __init__(self, console: Console, task: Task, about: About, title: str) -> None:
        self._console, self._task, self._title = console, task, title
        self._settings, self._row = about.settings, about.row
        self._constraints = about.settings.constraints(about.row, task.constraints)
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
        """Take in the events before an interruption, without showing them again."""
        for event in events:
            if not isinstance(event, Notice):
                self._take(event)

    def _take(self, event: TrialReport | ImprovementReport | LatentReport) -> None:
        if isinstance(event, TrialReport):
            self._trial = event
            self._phase = "improving the policy" + self._of_model(" on the model")
            if isinstance(self._row.update, Planning):
                self._phase = "training the model"
            return
        if isinstance(event, LatentReport):
            same = self._learned is not None and self._learned.update < event.update
            self._controls += event.update - (self._learned.update if same and self._learned is not None else 0)
            self._learned = event
            self._times.append((self._controls, event.seconds))
            self._phase = f"training the model, {event.update} of {event.updates}"
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
        """Return the number of trials still to come if every episode lasts to its horizon."""
        spent = self._trial.real_samples if self._trial is not None else self._settings.first.samples
        return -(-((self._settings.real_samples - spent) // self._task.horizon) // self._settings.episodes)

    def _seconds_left(self) -> float:
        """Estimate the remaining time from the latest control iterations, trials and fits included; NaN if unknown."""
        (count, begin), (_, now) = self._times[0], self._times[-1]
        if self._controls == count:
            return math.nan
        latest, trials = self._latest, self._trials_left()
        each, after_last = self._settings.updates
        if self._learned is not None:
            left = trials * each
            if self._trial is not None and self._learned.iteration == self._trial.iteration:
                left += self._learned.updates - self._learned.update
            return max(left, 0) * (now - begin) / (self._controls - count)
        left = trials * each + (0 if self._settings.confirms and not trials else after_last)
        if latest is not None and self._trial is not None and latest.iteration == self._trial.iteration:
            # Iterations after this trial that are already done; the trial itself is not among those to come.
            left -= latest.control
        return max(left, 0) * (now - begin) / (self._controls - count)

    def _time(self) -> str:
        seconds = max(event.seconds for event in (self._trial, self._latest, self._learned) if event is not None)
        left = self._seconds_left()
        return duration(seconds) + ("" if math.isnan(left) else f", about {duration(left)} left")

    # Output ---------------------------------------------------------------------------------------------------------

    def _line(self, trial: TrialReport) -> str:
        """Describe a trial in one line."""
        parts = [
            f"trial {trial.iteration}",
            f"{trial.real_samples}/{self._settings.real_samples} real samples",
            f"return {number(trial.return_mean)}"
            + ("" if not self._row.source.predicts else f" (model {number(trial.predicted_return)})"),
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
        """Return a table of the run's present state."""
        table = Table(title=self._title, title_justify="left", show_header=False, min_width=72)
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        trial, latest, settings = self._trial, self._latest, self._settings
        table.add_row("phase", self._phase)
        if trial is not None:
            bar = ProgressBar(total=settings.real_samples, completed=trial.real_samples, width=24)
            samples = Table.grid(padding=(0, 1))
            samples.add_row(f"{trial.real_samples} of {settings.real_samples}", bar)
            table.add_row("trial", f"{trial.iteration}, about {self._trials_left()} to come")
            table.add_row("real samples", samples)
            predicted = f", predicted {number(trial.predicted_return)}" if self._row.source.predicts else ""
            table.add_row("return of the last trial", f"{number(trial.return_mean)}{predicted}")
            table.add_row("unsafe steps (TV), safety cost (TC)", f"{trial.learning_TV}, {trial.learning_TC:.2f} so far")
            if self._row.source.imagines:
                table.add_row("calibration of the model", self._calibration(trial))
        if latest is not None:
            for i, constraint in enumerate(self._constraints):
                table.add_row(text(constraint.in_words()), f"{self._value(i)}, λ = {latest.multipliers[i]:.3g}")
            if self._row.source.imagines:
                table.add_row("weight of the cost, λ_π", f"{latest.lambda_pi:.2f}")
                table.add_row("return on the model", number(latest.model_return))
        if self._learned is not None:
            one = self._learned
            parts = f"observation {one.observation:.3g}, cost {one.cost:.3g}, safety {one.safety:.3g}, KL {one.kl:.3g}"
            table.add_row("model loss [nats per step]", f"{one.loss:.3g} ({parts})")
        if trial is not None:
            table.add_row("time", self._time())
        return table

    def _value(self, i: int) -> str:
        """Describe the value of a constraint beside its target and its limit."""
        assert self._latest is not None
        value, target, limit = self._latest.values[i], self._latest.targets[i], self._constraints[i].limit
        return f"{value:.3g} (target {target:.3g}, limit {limit:g})"

    def _short_names(self) -> list[str]:
        """Return short names of the constraints, for a line."""
        kinds = [type(constraint).__name__ for constraint in self._constraints]
        return [kind if kinds.count(kind) == 1 else f"{kind}{i}" for i, kind in enumerate(kinds)]

    def _of_model(self, words: str) -> str:
        """Return the words for a learner with a GP model; nothing for others."""
        return words if self._row.source.imagines else ""

    def _calibration(self, trial: TrialReport) -> str:
        scores = ", ".join(f"{value:.2f}" for value in trial.z_std)
        return f"surprise {number(trial.surprise)}, z {scores}"
