"""A run under way: the agent, the real system and the run's folder, held together."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Generator

from samba_rl.agents.agent import Learned
from samba_rl.algorithm import Watch, train
from samba_rl.data.files import DiskError
from samba_rl.data.journal import EARLIER
from samba_rl.errors import Paused, Stopped, UserError
from samba_rl.events import Event, ImprovementReport, LatentReport, Log, Notice, TrialReport
from samba_rl.learners import Settings, make_agent
from samba_rl.runs.checkpoints import Checkpoint
from samba_rl.runs.folder import RunFolder
from samba_rl.runs.trials import Trials
from samba_rl.tasks.task import Task
from samba_rl.types import State, Transitions

CHECKPOINT_EVERY = 60.0
"""Seconds between two checkpoints at most, give or take a control iteration."""
CHECKPOINT_LEAST = 1.0
"""Seconds between two of them at least."""
CHECKPOINT_SHARE = 0.01
"""Of the time that may go into checkpoints before and after trials. They only save computing: what was measured is in
the journal, and from the checkpoint before everything is computed to the same end."""


ASKED = "the run was asked to stop"


@dataclass(frozen=True)
class About:
    """What a run is of."""

    learner: str
    preset: str
    seed: int
    settings: Settings
    device: str


@final
class Session:
    """Runs a learner to its end, and writes down what is needed to go on from wherever it stops."""

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
    ) -> None:
        """`stop` says whether the run should end before its time: it then does so, with `Stopped`, as soon as all is
        safe."""
        self.task, self.about, self.folder = task, about, folder
        self.events: list[Event] = []
        self.agent = make_agent(task, about.settings, seed=about.seed, device=about.device, log=self._heard)
        self._generator = Generator().manual_seed(about.seed)
        self._log, self._stop, self._watch = log, stop, watch
        self._every, self._saved, self._save_seconds = checkpoint_every, time.monotonic(), 0.0
        self._trials = Trials(
            task.world(workers),
            about.settings.real,
            journal=None if folder is None else folder.journal,
            steps=None if folder is None else folder.steps,
            check=self._end_if_asked,
        )

    def begin(self, earlier: Transitions | None) -> None:
        """Take in transitions from before the run."""
        if earlier is not None:
            self.agent.tell_earlier(earlier)

    def restore(self, checkpoint: Checkpoint | None, events: list[Event]) -> None:
        """Go on from a checkpoint, or from the beginning with the trials that were made already."""
        assert self.folder is not None
        journal = self.folder.journal
        self.events = events
        if checkpoint is None:
            record = journal.find(EARLIER, 0)
            self.begin(record.steps if record is not None and isinstance(record.steps, Transitions) else None)
            return
        state = checkpoint.state
        try:
            data = self.agent.data
            for steps in journal.trials(before=int(state["around"]["trials"]["count"])):
                data = data.append(steps)
            self.agent.load_state_dict(state["agent"], data)
            self._trials.load_state_dict(state["around"]["trials"])
            _set_random(self._generator, state["around"]["random"])
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            why = " ".join(str(error).split())
            raise UserError(
                f"{checkpoint.path} does not fit this run ({why}); remove it: the one before it is used then"
            ) from error
        if len(data):
            self.folder.write_data(data)

    def run(self) -> Learned:
        """Learn, to the end."""
        try:
            return train(self.agent, self._trials, self._generator, self._watch)
        except Paused:
            # Of a trial in which nothing took place there was no report, and so no checkpoint.
            if self.folder is not None:
                self._save()
            raise
        except DiskError as error:
            if self.folder is None:
                raise
            raise DiskError(f"{error}. Then go on: samba-rl resume {self.folder.folder}") from error

    def notice(self, text: str) -> None:
        """Tell the user something."""
        self._heard(Notice(text))

    def close(self) -> None:
        """Let go of the system and the folder."""
        self._trials.close()
        if self.folder is not None:
            self.folder.close()

    def _heard(self, event: Event) -> None:
        self.events.append(event)
        if self.folder is not None:
            self.folder(event)
            if isinstance(event, TrialReport):
                self.folder.write_data(self.agent.data)
        if self._log is not None:
            self._log(event)
        if not isinstance(event, Notice):
            asked = self._stop is not None and self._stop()
            if self.folder is not None and (asked or self._due(event)):
                self._save()
            if asked:
                raise Stopped(ASKED)

    def _due(self, event: TrialReport | ImprovementReport | LatentReport) -> bool:
        """Whether it is time for a checkpoint: now and then, and rather before or after a trial."""
        since = time.monotonic() - self._saved
        match event:
            case ImprovementReport(control=done, controls=due) | LatentReport(update=done, updates=due):
                at_trial = done == due
            case TrialReport():
                at_trial = True
        enough = max(CHECKPOINT_LEAST, self._save_seconds / CHECKPOINT_SHARE)
        return since >= (min(self._every, enough) if at_trial else self._every)

    def _save(self) -> None:
        assert self.folder is not None
        begin = time.monotonic()
        around = {"trials": self._trials.state_dict(), "random": _random(self._generator)}
        self.folder.save({"agent": self.agent.state_dict(), "around": around})
        self._saved = time.monotonic()
        self._save_seconds = self._saved - begin

    def _end_if_asked(self) -> None:
        if self._stop is not None and self._stop():
            raise Stopped(ASKED)


def _random(generator: Generator) -> State:
    """Every random number that may come: the trials', and those of torch, NumPy and Python that a system may use."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "trials": generator.get_state(),
        "torch": torch.get_rng_state(),
        "numpy": [str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, torch.tensor(words), gauss],
    }


def _set_random(generator: Generator, state: State) -> None:
    generator.set_state(state["trials"])
    torch.set_rng_state(state["torch"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
