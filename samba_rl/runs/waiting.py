"""A run that waits for the world: asked for a policy, told the trial that it made, in as many processes as it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from samba_rl.agents.agent import schema_of
from samba_rl.agents.forecast import forecast, imagined
from samba_rl.agents.settings import Settings
from samba_rl.data import DataSet
from samba_rl.data.journal import Journal, Record, unasked as before_trial
from samba_rl.errors import UserError
from samba_rl.events import Log
from samba_rl.learners import Learner
from samba_rl.runs.checks import check_elsewhere
from samba_rl.runs.commands import command, next_command
from samba_rl.runs.episodes import TrialLog, check_arrays, cut_short, traces_of
from samba_rl.runs.folder import JOURNAL, SUMMARY
from samba_rl.runs.loading import current_config, load_run, specification
from samba_rl.runs.request import Request, due_request, write_request
from samba_rl.runs.run import Run
from samba_rl.runs.session import Waiting
from samba_rl.runs.specifying import specified
from samba_rl.runs.summary import TOLD, config_of, trials_of
from samba_rl.runs.told import known_episodes, open_journal
from samba_rl.runs.training import finished, restored
from samba_rl.runs.trial_log import read_log
from samba_rl.runs.writer import RunFolder
from samba_rl.tasks.task import Task
from samba_rl.types import Traces


@final
@dataclass(frozen=True)
class Receipt:
    """What became of a trial that was told."""

    name: str
    """Name of the file, or "the arrays"."""
    episodes: int
    """Number of its episodes."""
    steps: int
    """Number of its steps."""
    trial: int | None
    """Trial of the run that it is (a part of); None: it was not asked for, and is taken in as data."""
    known: bool = False
    """Whether the run had it already; then nothing has changed."""
    unused: tuple[str, ...] = ()
    """Columns of the file that were not used."""


@final
class WaitingRun:
    """A run whose trials are made outside of this program.

    Everything is on disk between two calls. Any of them may be made in another process; one that is killed can be
    repeated.
    """

    def __init__(self, folder: str | Path, task: Task | None = None) -> None:
        """Open the run in a folder; a system that is not one of the paper's must be given again."""
        self.folder = Path(folder)
        config = current_config(self.folder)
        if trials_of(config) != TOLD:
            raise UserError(f"{folder} runs its trials itself; go on with: {next_command(self.folder)}")
        self.task, self.about = specification(self.folder, config, task)

    @property
    def finished(self) -> bool:
        """Return whether the budget is spent and the policy is handed over."""
        return (self.folder / SUMMARY).exists()

    def result(self) -> Run:
        """Return the finished run."""
        return load_run(self.folder, self.task)

    def ask(
        self,
        *,
        log: Log | None = None,
        stop: Callable[[], bool] | None = None,
        show: Callable[[int, Traces], None] | None = None,
    ) -> Request | None:
        """Learn from what was told, and return the next trial; None: the budget is spent, and the run is finished.

        While a trial is due, it is returned again at once.

        Args:
            log: Called with every event of learning.
            stop: Polled; when it returns True, the run saves its state and raises `Stopped`.
            show: Called, before a trial is asked for, with its number and with trajectories of its policy on the model.
        """
        if self.finished:
            return None
        pending = self.pending()
        if pending is not None:
            return pending
        if self.about.settings.first.samples == 0 and not len(Journal.read(self.folder / JOURNAL)):
            raise UserError(
                f"{self.folder} knows nothing of {self.task.name} yet, and first.samples = 0 asks for no first trials; "
                f"tell it measurements first: {command(self.folder, 'tell', 'pilot.csv')}"
            )
        with restored(self.folder, self.task, log=log, stop=stop, asking=True) as session:
            try:
                finished(session)
            except Waiting as waiting:
                due = waiting.due
                traces = imagined(session.agent, due.policy)
                expected = None if traces is None else forecast(session.agent, due.policy, traces)
                if show is not None and traces is not None:
                    show(due.trial, traces)
                write_request(self.folder, self.task, self.about.seed, due, expected)
        return self.pending()

    def pending(self) -> Request | None:
        """Return the trial that is due, if one was asked for and is not told yet."""
        if self.finished:
            return None
        return due_request(self.task, self.about, self.folder)

    def tell(
        self,
        states: ArrayLike | Tensor,
        actions: ArrayLike | Tensor,
        *,
        terminated: bool = False,
        unasked: bool = False,
    ) -> Receipt:
        """Take in an episode that was measured.

        Args:
            states: Measured states, from the first to the one that the last step reached [T + 1, nx].
            actions: Actions as they were applied [T, nu].
            terminated: Whether the system itself ended the episode.
            unasked: Take it in as data, even if a trial is due.
        """
        x, u = (torch.as_tensor(each, dtype=torch.float64) for each in (states, actions))
        return self.take(self._sound(check_arrays(self.task, x, u, terminated=terminated)), unasked=unasked)

    def tell_file(self, path: str | Path, *, unasked: bool = False) -> Receipt:
        """Take in the episodes of a CSV file, all of them or none."""
        return self.take(self.read(path), unasked=unasked)

    def read(self, path: str | Path) -> TrialLog:
        """Read and check a CSV file; `take` takes its episodes in."""
        return self._sound(read_log(path, self.task))

    def _sound(self, log: TrialLog) -> TrialLog:
        """Return a log; raise a `UserError` if its data set would be unsound, as where a cost is not finite."""
        try:
            DataSet.empty(schema_of(self.task)).append(traces_of(self.task, log.episodes))
        except UserError as error:
            raise UserError(f"{log.name}: {error}. Nothing was taken in") from error
        return log

    def take(self, log: TrialLog, *, unasked: bool = False) -> Receipt:
        """Take in the episodes of a log, all of them or none."""
        count, steps = len(log.episodes), sum(len(one.u) for one in log.episodes)
        if self.finished:
            raise UserError(f"{self.folder} is finished; its data are closed. Nothing was taken in")
        with open_journal(self.folder) as (journal, upcoming):
            known = known_episodes(journal, self.task, log.episodes, upcoming)
            if known and len(known) < count:
                raise UserError(
                    f"'{log.name}': {len(known)} of its {count} episodes are in the run already (episode "
                    f"{min(known)} is in {known[min(known)]}); leave them out. Nothing was taken in"
                )
            if known:
                return Receipt(log.name, count, steps, None, known=True, unused=log.unused)
            pending = None if unasked else self.pending()
            if pending is None:
                number = before_trial(upcoming)
                journal.append(Record(number, len(journal.parts(number)), traces_of(self.task, log.episodes)))
                return Receipt(log.name, count, steps, None, unused=log.unused)
            self._check_fits(log, pending)
            traces = traces_of(self.task, log.episodes, self.task.horizon)
            journal.append(Record(pending.trial, pending.told, traces, cut_short(self.task, log.episodes)))
            return Receipt(log.name, count, steps, pending.trial, unused=log.unused)

    def _check_fits(self, log: TrialLog, due: Request) -> None:
        """Raise a `UserError` if a log is more than the trial that is due."""
        if len(log.episodes) > due.episodes - due.told:
            raise UserError(
                f"'{log.name}' has {len(log.episodes)} episodes, but {due.episodes - due.told} of trial {due.trial} "
                "are due; leave some out, or take all of them in as data with --unasked. Nothing was taken in"
            )
        longest = max(len(one.u) for one in log.episodes)
        if longest > self.task.horizon:
            raise UserError(
                f"'{log.name}' has an episode of {longest} steps, but those of {self.task.name} have "
                f"{self.task.horizon}; cut it, or take it in as data with --unasked. Nothing was taken in"
            )


def new_run(
    out: str | Path,
    task: Task | str,
    learner: str | Learner = "samba",
    *,
    name: str | None = None,
    preset: str = "default",
    seed: int = 0,
    settings: Settings | None = None,
    device: str = "cpu",
    data: DataSet | str | Path | Sequence[str | Path] | None = None,
    named: str = "",
    **changes: object,
) -> WaitingRun:
    """Make a run whose trials will be told to it, in the folder `out`; for the other arguments see `train`."""
    system, about, given = specified(
        task, learner, changes, name=name, preset=preset, seed=seed, settings=settings, device=device, data=data,
        named=named, told=True,
    )  # fmt: skip
    check_elsewhere(about.settings, "a run that waits")
    folder = RunFolder.create(Path(out), config_of(system, about, None, TOLD), given.transitions)
    given.tell(folder, None)
    folder.close()
    return WaitingRun(out, system)
