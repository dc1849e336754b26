"""Trials that are made outside of this program: by people, who tell them to the run, or by a command."""

from __future__ import annotations

from collections.abc import Generator as Yielding, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, final

import torch
from torch import Generator, Tensor

from samba_rl.data.files import remove_temporary
from samba_rl.data.journal import EARLIER, Journal, Record, unasked
from samba_rl.errors import UserError
from samba_rl.events import EpisodesMeasured, PauseDue, Signal, TrialDue
from samba_rl.runs.checkpoints import read_checkpoint
from samba_rl.runs.episodes import Episode, traces_of
from samba_rl.runs.folder import JOURNAL, begun
from samba_rl.runs.lock import Lock
from samba_rl.runs.trials import Trial
from samba_rl.tasks.faults.settings import RealSettings
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, State, Traces


class Rig(Protocol):
    """Makes trials outside of this program."""

    def __call__(self, policy: Policy, trial: int, part: int, generator: Generator) -> Record:
        """Run one episode of a policy and return what was measured."""
        ...


@final
class Told:
    """Trials from the journal: others put them there, or a rig that is called for each episode.

    Stands where `Trials` stands. A part of a trial is one or several episodes that were told together.
    """

    def __init__(
        self, task: Task, journal: Journal, settings: RealSettings, rig: Rig | None = None, *, measure: bool = True
    ) -> None:
        """Take trials from the journal; without `measure` all of them must be there."""
        self.count = 0
        """Number of trials so far."""
        self.taken = 0
        """Number of trials before which those that were not asked for have been learned from."""
        self._task, self._journal, self._settings = task, journal, settings
        self._rig, self._measure = rig, measure
        self._in_a_row = 0

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Yielding[Signal, None, Trial]:
        """Return the trial of n episodes once all of them are told; until then, say what is due."""
        while (have := told_so_far(self._journal, self.count)) < n:
            if not self._measure:
                raise UserError(f"the journal has no trial {self.count}; tell it to the run first")
            if self._rig is None:
                # The consumer ends the loop, or sees to it that the trial is told.
                yield TrialDue(self.count, policy, have, n)
            else:
                self._journal.append(self._rig(policy, self.count, have, generator))
                yield EpisodesMeasured()
        parts, faults, done = [], [], 0
        for record in self._journal.parts(self.count):
            assert isinstance(record.steps, Traces)
            faults += [replace(fault, episode=fault.episode + done) for fault in record.faults]
            done += len(record.steps.cost)
            parts.append(record.steps)
            if record.random is not None:
                generator.set_state(record.random)
        self.count += 1
        trial = Trial(Traces.joined(parts), tuple(faults))
        self._in_a_row = self._in_a_row + 1 if trial.failures else 0
        return trial

    def unasked(self) -> Traces | None:
        """Return the trials told before the next one that were not asked for; None if there are none (any more)."""
        due = range(self.taken, self.count + 1)
        steps = [record.steps for trial in due for record in self._journal.parts(unasked(trial))]
        self.taken = max(self.taken, self.count + 1)
        return joined([one for one in steps if isinstance(one, Traces)])

    def pause_if_due(self, trial: Trial) -> Iterator[PauseDue]:
        """Yield a request to pause if the rig stopped in this trial; who tells trials by hand has looked at it."""
        if self._rig is None or not trial.failures:
            return
        what = trial.failures[0]
        if self._settings.on_fault == "pause":
            yield PauseDue(f"{what}. Put the rig in order before the run continues")
        elif self._in_a_row >= self._settings.faults_in_a_row:
            yield PauseDue(f"{what}. The last {self._in_a_row} trials failed: put the rig in order")

    def state_dict(self) -> State:
        """Return the number of trials that were taken in."""
        return {"count": self.count, "in_a_row": self._in_a_row, "taken": self.taken}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.count, self._in_a_row, self.taken = (int(state[name]) for name in ("count", "in_a_row", "taken"))

    def close(self) -> None:
        """Do nothing: the rig belongs to others."""


# The journal ----------------------------------------------------------------------------------------------------------


@contextmanager
def open_journal(folder: Path) -> Iterator[tuple[Journal, int]]:
    """Lock the folder of a run and open its journal, to add to it.

    Provides it with the number of the first trial before which the run can still learn from what was not asked for: the
    one after that for which it improves the policy, or has done so.
    """
    lock = Lock(folder)
    try:
        remove_temporary(folder)
        checkpoint, _ = read_checkpoint(folder)
        known, taken = 0, 0
        if checkpoint is not None:
            known = int(checkpoint.about.get("trials", 0))
            taken = int(checkpoint.state["around"]["trials"].get("taken", 0))
        journal = Journal.open(folder / JOURNAL, known)
        try:
            # Either would do, but one of the two files may have been removed.
            yield journal, max(begun(folder) + 1, taken)
        finally:
            journal.close()
    finally:
        lock.release()


def told_so_far(journal: Journal, trial: int) -> int:
    """Return how many episodes of a trial are in the journal."""
    return sum(len(record.steps.cost) for record in journal.parts(trial))


def samples_told(journal: Journal) -> tuple[int, int]:
    """Return the steps of the trials that were asked for, and those taken in as data."""
    samples = {number: sum(_steps(record) for record in journal.parts(number)) for number in journal.numbers()}
    asked = sum(steps for number, steps in samples.items() if number > EARLIER)
    return asked, sum(samples.values()) - asked


def _steps(record: Record) -> int:
    return record.steps.steps if isinstance(record.steps, Traces) else len(record.steps)


def known_episodes(journal: Journal, task: Task, episodes: Sequence[Episode], upcoming: int) -> dict[int, str]:
    """Return where episodes are in the journal already, by their index: the same numbers, to the bit."""
    wanted: dict[tuple[bytes, bytes], int] = {}
    for i, one in enumerate(episodes):
        wanted.setdefault(_bits(traces_of(task, [one]), 0), i)
    found = {}
    for trial in [*(unasked(k) for k in range(upcoming + 2)), *range(upcoming + 1)]:
        for record in journal.parts(trial):
            if not isinstance(record.steps, Traces):
                continue
            for row in range(len(record.steps.cost)):
                place = wanted.get(_bits(record.steps, row))
                if place is not None:
                    found[place] = f"trial {trial}" if trial >= 0 else "a trial that was not asked for"
    return found


def _bits(traces: Traces, row: int) -> tuple[bytes, bytes]:
    """Return the measured numbers of an episode, as bytes."""
    steps = int(traces.active[row].sum())
    return traces.x[row, : steps + 1].numpy().tobytes(), traces.u[row, :steps].numpy().tobytes()


def joined(parts: Sequence[Traces]) -> Traces | None:
    """Return traces of different lengths as one batch; None if there are none."""
    if not parts:
        return None
    most = max(one.cost.shape[1] for one in parts)
    return Traces.joined([_lengthened(one, most) for one in parts])


def _lengthened(traces: Traces, steps: int) -> Traces:
    """Return traces with room for so many steps; the further ones do not take place."""
    more = steps - traces.cost.shape[1]

    def grown(values: Tensor) -> Tensor:
        return torch.cat([values, values.new_zeros(len(values), more, *values.shape[2:])], dim=1)

    names = ("observation", "u", "cost", "safety", "violation", "active", "wanted")
    x = torch.cat([traces.x, traces.x[:, -1:].expand(-1, more, -1)], dim=1)
    return Traces(x=x, terminated=traces.terminated, **{name: grown(getattr(traces, name)) for name in names})
