"""A run in progress: drives the algorithm, logs its events, saves checkpoints, and stops when asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from torch import Generator

from samba_rl.agents.agent import AnyAgent, Learned
from samba_rl.agents.settings import Settings
from samba_rl.algorithm import train
from samba_rl.data.files import DiskError
from samba_rl.data.journal import EARLIER
from samba_rl.errors import Paused, Stopped, UserError
from samba_rl.events import (
    EpisodesMeasured,
    Event,
    ImprovementReport,
    LatentReport,
    Log,
    Notice,
    PauseDue,
    PolicyReady,
    Signal,
    TrialDue,
    TrialReport,
)
from samba_rl.learners import Learner
from samba_rl.presets import make_agent
from samba_rl.runs.checkpoints import Checkpoint
from samba_rl.runs.commands import next_command
from samba_rl.runs.random_states import random_states, set_random_states
from samba_rl.runs.rig import CommandRig
from samba_rl.runs.told import Told
from samba_rl.runs.trials import AnyTrials, Trials
from samba_rl.runs.writer import RunFolder
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, Transitions

CHECKPOINT_EVERY = 60.0
"""Longest time between two checkpoints, in seconds, give or take a control iteration."""
CHECKPOINT_LEAST = 1.0
"""Shortest time between two checkpoints, in seconds."""
CHECKPOINT_SHARE = 0.01
"""Share of the time that may go into checkpoints before and after trials. They only save computing time: measurements
are in the journal, and everything else can be computed again from an earlier checkpoint."""
ASKED = "the run was asked to stop"

Watch = Callable[[int, Policy], None]
"""Called with (trial, policy) before each trial of a policy."""


class Waiting(Stopped):
    """Raised when a run waits for a trial that is made outside of this program; everything is on disk."""

    def __init__(self, due: TrialDue) -> None:
        super().__init__(f"trial {due.trial} is due")
        self.due = due


@dataclass(frozen=True)
class About:
    """The specification of a run, beside its system."""

    learner: str
    """Name of the learner; an unnamed row that is not in `LEARNERS` is called by its values."""
    row: Learner
    """The learner itself."""
    preset: str
    """Name of the preset."""
    seed: int
    """Seed of all random numbers."""
    settings: Settings
    """Numbers of the learner."""
    device: str
    """Device of the model and the policy."""
    named: str = ""
    """The system as it was named on the command line, such as mine.py:task; empty: unknown."""
    budgets: tuple[int, ...] = ()
    """Budgets of real samples with which the run ended before it went on with more of them."""


@final
class Session:
    """Drives a learner to the end of its run, and stores what is needed to continue from wherever it stops."""

    def __init__(
        self,
        task: Task,
        about: About,
        folder: RunFolder | None,
        *,
        log: Log | None = None,
        stop: Callable[[], bool] | None = None,
        workers: int | None = None,
        checkpoint_every: float = CHECKPOINT_EVERY,
        watch: Watch | None = None,
        measure: bool = True,
        told: bool = False,
        rig: str | None = None,
        controller: Policy | None = None,
    ) -> None:
        """Prepare a run; when `stop` returns True it saves and ends with `Stopped`. See `Trials` for `measure`.

        `told`: its trials are made outside of this program, by the command `rig` or by whoever tells them; then it ends
        with `Waiting` when one is due. The `controller` makes the first trial.
        """
        self.task, self.about, self.folder = task, about, folder
        self.events: list[Event] = []
        self._budgets, self._stage = (*about.budgets, about.settings.real_samples), 0
        self._controller = controller
        self.agent = self._make_agent()
        self._generator = Generator().manual_seed(about.seed)
        self._log, self._stop, self._watch = log, stop, watch
        self._every, self._saved, self._save_seconds = checkpoint_every, time.monotonic(), 0.0
        self._told: Told | None = None
        if told:
            assert folder is not None
            timeout = about.settings.real.timeout
            driven = rig and CommandRig(rig, task, folder.folder, seed=about.seed, timeout=timeout)
            self._told = Told(task, folder.journal, about.settings.real, driven or None, measure=measure)
        self._trials: AnyTrials = self._told or Trials(
            task.world(workers),
            about.settings.real,
            journal=None if folder is None else folder.journal,
            steps=None if folder is None else folder.steps,
            measure=measure,
            first_stop=about.settings.first.stop if about.settings.first.samples else None,
        )

    def _make_agent(self) -> AnyAgent:
        """Make an agent with the budget of the present stage."""
        settings = replace(self.about.settings, real_samples=self._budgets[self._stage])
        agent = make_agent(self.task, self.about.row, settings, seed=self.about.seed, device=self.about.device)
        agent.controller = self._controller
        return agent

    def _go_on(self) -> None:
        """Continue with a larger budget from where the smaller one has led."""
        state, data = self.agent.state_dict(), self.agent.data
        self._stage += 1
        self.agent = self._make_agent()
        for notice in self.agent.load_state_dict(state, data):
            self._record(notice)
        self._save()

    def begin(self, earlier: Transitions | None) -> None:
        """Learn from transitions measured before the run."""
        if earlier is not None:
            for event in self.agent.learn_earlier(earlier):
                self._record(event)

    def restore(self, checkpoint: Checkpoint | None, events: list[Event]) -> None:
        """Continue from a checkpoint, or from the beginning with the trials that are in the journal."""
        assert self.folder is not None
        journal = self.folder.journal
        self.events = events
        if checkpoint is None:
            record = journal.find(EARLIER, 0)
            self.begin(record.steps if record is not None and isinstance(record.steps, Transitions) else None)
            return
        state = checkpoint.state
        try:
            self._stage = int(state["around"].get("stage", 0))
            self.agent = self._make_agent()
            data = self.agent.data
            trials = state["around"]["trials"]
            for steps in journal.trials(int(trials["count"]), int(trials.get("taken", 0))):
                data = data.append(steps)
            notices = list(self.agent.load_state_dict(state["agent"], data))
            self._trials.load_state_dict(state["around"]["trials"])
            set_random_states(self._generator, state["around"]["random"])
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            why = " ".join(str(error).split())
            raise UserError(
                f"{checkpoint.path} does not fit this run ({why}); remove it, and the one before it will be used"
            ) from error
        for notice in notices:
            self._record(notice)
        if len(data):
            self.folder.write_data(data)

    def run(self) -> Learned:
        """Run to the end and return the policy."""
        try:
            self._take_unasked()
            self._train()
            while self._stage + 1 < len(self._budgets):
                self._go_on()
                self._train()
        except DiskError as error:
            # A run that has not measured anything is removed: there is nothing to resume.
            if self.folder is None or not self.folder.measured:
                raise
            raise DiskError(f"{error}. Then continue with: {next_command(self.folder.folder)}") from error
        return self.agent.policy

    def _train(self) -> None:
        for event in train(self.agent, self._trials, self._generator):
            self._handle(event)

    def notice(self, text: str) -> None:
        """Tell the user something."""
        self._record(Notice(text))

    def close(self) -> None:
        """Release the system and the folder."""
        self._trials.close()
        if self.folder is not None:
            self.folder.close()

    def _handle(self, event: Event | Signal) -> None:
        """Log an event, save if a checkpoint is due, and stop if that was asked for."""
        match event:
            case PolicyReady(iteration=iteration, policy=policy):
                if self._watch is not None:
                    self._watch(iteration, policy)
            case EpisodesMeasured():
                # The journal has the episodes; a checkpoint in the middle of a trial would add nothing.
                if self._asked_to_stop():
                    raise Stopped(ASKED)
            case TrialDue():
                raise Waiting(event)
            case PauseDue(text=text):
                self._save()
                raise Paused(text)
            case Notice():
                self._record(event)
            case _:
                self._record(event)
                if isinstance(event, TrialReport):
                    self._take_unasked()
                asked = self._asked_to_stop()
                if asked or self._due(event):
                    self._save()
                if asked:
                    raise Stopped(ASKED)

    def _take_unasked(self) -> None:
        """Learn from trials that were told without having been asked for, always before the same trial."""
        if self._told is None or self.folder is None:
            return
        # What is told from now on comes after the next trial: the improvement for it begins.
        self.folder.improving_for(self._told.count)
        traces = self._told.unasked()
        if traces is not None:
            for event in self.agent.learn_earlier(traces):
                self._record(event)
            self.folder.write_data(self.agent.data)

    def _record(self, event: Event) -> None:
        """Keep an event, in the folder too, and pass it on."""
        self.events.append(event)
        if self.folder is not None:
            self.folder(event)
            if isinstance(event, TrialReport):
                self.folder.write_data(self.agent.data)
        if self._log is not None:
            self._log(event)

    def _asked_to_stop(self) -> bool:
        return self._stop is not None and self._stop()

    def _due(self, event: TrialReport | ImprovementReport | LatentReport) -> bool:
        """Return whether a checkpoint is due: now and then, preferably before or after a trial."""
        since = time.monotonic() - self._saved
        match event:
            case ImprovementReport(control=done, controls=due) | LatentReport(update=done, updates=due):
                at_trial = done == due
            case TrialReport():
                at_trial = True
        if at_trial and not isinstance(event, TrialReport) and not self.agent.episodes_due():
            # The last one: from here a damaged result can be made again at once.
            return True
        if at_trial and self._told is not None:
            return True  # the process may end before the next trial is told
        enough = max(CHECKPOINT_LEAST, self._save_seconds / CHECKPOINT_SHARE)
        return since >= (min(self._every, enough) if at_trial else self._every)

    def _save(self) -> None:
        if self.folder is None:
            return
        begin = time.monotonic()
        trials, drawn = self._trials.state_dict(), random_states(self._generator)
        around = {"trials": trials, "random": drawn, "stage": self._stage}
        self.folder.save({"agent": self.agent.state_dict(), "around": around})
        self._saved = time.monotonic()
        self._save_seconds = self._saved - begin
