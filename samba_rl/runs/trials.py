"""Real trials: guarded against a misbehaving system, and on disk before anything learns from them."""

from __future__ import annotations

from collections.abc import Generator as Yielding, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol, final

import torch
from torch import Generator, Tensor

from samba_rl.data.journal import Journal, Record, random_state
from samba_rl.data.step_log import StepLog
from samba_rl.errors import UserError
from samba_rl.events import EpisodesMeasured, PauseDue, Signal
from samba_rl.tasks.faults.guard import GuardedWorld, SystemFault
from samba_rl.tasks.faults.settings import RealSettings
from samba_rl.tasks.faults.stopping import StoppingWorld
from samba_rl.tasks.rollout import policies_by_part, rollout
from samba_rl.tasks.task import Task
from samba_rl.tasks.world import Step, World
from samba_rl.types import Fault, Policy, State, Traces


class Trial(NamedTuple):
    """The outcome of a real trial."""

    traces: Traces
    faults: tuple[Fault, ...] = ()
    """Faults of the system or the program; each ended one of the episodes early."""

    @property
    def failures(self) -> list[str]:
        """Return the faults of the system, in words."""
        return [fault.text for fault in self.faults if not fault.stopped]


class AnyTrials(Protocol):
    """Real trials, wherever they are made."""

    count: int
    """Number of trials so far."""

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Yielding[Signal, None, Trial]:
        """Return the trial of n episodes under the policy; yield whenever the run may stop."""
        ...

    def pause_if_due(self, trial: Trial) -> Iterator[PauseDue]:
        """Yield a request to pause if the system should be looked at."""
        ...

    def state_dict(self) -> State:
        """Return what a run needs to continue after its last trial."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        ...

    def close(self) -> None:
        """Release the system."""
        ...


@final
class Trials:
    """Runs policies on the real system, trial after trial.

    With a journal, every measurement is stored before a trial is returned. A trial that is already in the journal,
    because the program was killed before it learned from it, is read from there instead.
    """

    def __init__(
        self,
        world: World,
        settings: RealSettings | None = None,
        *,
        journal: Journal | None = None,
        steps: StepLog | None = None,
        measure: bool = True,
        first_stop: float | None = None,
    ) -> None:
        """Wrap the world of the real system; `steps` stores the measurements of a rig step by step.

        Episodes of the first trial end where a safety cost exceeds `first_stop` (None: they do not).
        Without `measure` the system is never used: all trials must be in the journal.
        """
        self._measure = measure
        self.settings = settings or RealSettings()
        self.count = 0
        """Number of trials so far."""
        self._task = world.task
        self._journal = journal
        self._notes = None if steps is None or world.task.parallel else _StepNotes(steps)
        self._world = GuardedWorld(world, timeout=self.settings.timeout, recorder=self._notes)
        self._first = None if first_stop is None else StoppingWorld(self._world, first_stop)
        self._in_a_row = 0

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Yielding[Signal, None, Trial]:
        """Run n real episodes under the policy, one after the other on a single system such as a rig.

        Yields whenever episodes are safely stored: a run may stop there without losing any.
        """
        parts = []
        for part, (one, episodes) in enumerate(policies_by_part(policy, n, parallel=self._task.parallel)):
            record = self._known(part)
            if record is None:
                record = self._run(one, episodes, part, generator)
            elif record.random is not None:
                generator.set_state(record.random)
            parts.append(record)
            yield EpisodesMeasured()
        traces = Traces.joined([_traces(record) for record in parts])
        faults = [
            replace(fault, episode=fault.episode + part * (not self._task.parallel))
            for part, record in enumerate(parts)
            for fault in record.faults
        ]
        self.count += 1
        trial = Trial(traces, tuple(faults))
        self._in_a_row = self._in_a_row + 1 if trial.failures else 0
        return trial

    def pause_if_due(self, trial: Trial) -> Iterator[PauseDue]:
        """Yield a request to pause if the system failed in this trial and should be looked at."""
        if not trial.failures:
            return
        what = trial.failures[0]
        if self._world.hung:
            yield PauseDue(f"{what}. It still does not answer: put it in order before the run continues")
        elif self.settings.on_fault == "pause":
            yield PauseDue(f"{what}. Put the system in order before the run continues")
        elif self._in_a_row >= self.settings.faults_in_a_row:
            yield PauseDue(f"{what}. The last {self._in_a_row} trials failed: put the system in order")

    def state_dict(self) -> State:
        """Return the number of trials and the state that the system carries from one to the next."""
        return {"count": self.count, "in_a_row": self._in_a_row, "world": self._world.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.count, self._in_a_row = int(state["count"]), int(state["in_a_row"])
        if self._measure:
            self._world.load_state_dict(state["world"])

    def close(self) -> None:
        """Release the system."""
        self._world.close()

    # One part of a trial --------------------------------------------------------------------------------------------

    def _known(self, part: int) -> Record | None:
        """Return the part if it is on disk already."""
        if self._journal is None:
            return None
        record = self._journal.find(self.count, part)
        if record is None and self._notes is not None:
            record = self._notes.recovered(self._task, self.count, part)
            if record is not None:
                self._journal.append(record)
        return record

    def _run(self, policy: Policy, episodes: int, part: int, generator: Generator) -> Record:
        task = self._task
        if not self._measure:
            raise UserError(f"the journal has no trial {self.count}; real steps are only taken by samba-rl resume")
        if self._journal is not None:
            self._journal.reserve(_bytes(task, episodes))
        if self._notes is not None:
            self._notes.log.reserve(_step_bytes(task))
            self._notes.about = {
                "trial": self.count,
                "part": part,
                "random": bytes(random_state(generator).tolist()).hex(),
            }
        cautious = self._first if self.count == 0 else None
        try:
            traces = rollout(cautious or self._world, policy, episodes, generator=generator)
            faults = (*self._world.faults, *([] if cautious is None else cautious.stops))
        except SystemFault as error:
            traces = no_steps(task, episodes)
            faults = tuple(Fault(episode, 0, str(error)) for episode in range(episodes))
        record = Record(self.count, part, traces, faults, random_state(generator))
        if self._journal is not None:
            self._journal.append(record)
        if self._notes is not None:
            self._notes.log.done()
        return record


class _StepNotes:
    """Stores the steps of a rig's episode as they are measured, and recovers the episode after a kill."""

    def __init__(self, log: StepLog) -> None:
        self.log = log
        self.about: State = {}

    def begin(self, x: Tensor) -> None:
        """Note that an episode begins in the state x [1, nx]."""
        self.log.begin(self.about, x[0])

    def step(self, x: Tensor, u: Tensor, step: Step) -> None:  # noqa: ARG002 - what `Recorder` asks for
        """Store a measured step."""
        self.log.step(
            u=u[0].tolist(),
            x=step.x[0].tolist(),
            cost=float(step.charges.cost[0]),
            safety=step.charges.safety[0].tolist(),
            violation=step.charges.violation[0].tolist(),
            terminated=bool(step.terminated[0]),
        )

    def recovered(self, task: Task, trial: int, part: int) -> Record | None:
        """Return the episode that was running when the program was killed, if it is this one and has a step."""
        first, *steps = self.log.lines() or [{}]
        if (first.get("trial"), first.get("part")) != (trial, part) or not steps:
            return None

        def column(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
            """Return a column [1, T, ...], padded with zeros."""
            values = torch.tensor([step[name] for step in steps], dtype=dtype)
            full = values.new_zeros(1, task.horizon, *values.shape[1:])
            full[0, : len(steps)] = values
            return full

        x = torch.tensor([first["x"], *(step["x"] for step in steps)], dtype=torch.float64)
        x = torch.cat([x, x[-1:].expand(task.horizon - len(steps), -1)])
        u = column("u")
        active = torch.arange(task.horizon)[None] < len(steps)
        ended = bool(steps[-1]["terminated"])
        traces = Traces(
            x=x[None],
            observation=task.observe(x[:-1])[None],
            u=u,
            cost=column("cost"),
            safety=column("safety"),
            violation=column("violation", torch.bool),
            active=active,
            terminated=torch.tensor([ended]),
            wanted=u,
        )
        whole = ended or len(steps) == task.horizon
        text = f"{task.name}: the program was stopped at step {len(steps)} of an episode"
        generator = Generator()
        generator.set_state(torch.tensor(list(bytes.fromhex(first["random"])), dtype=torch.uint8))
        # A new seed, or the next episode would repeat this one.
        generator.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        faults = () if whole else (Fault(0, len(steps), text, stopped=True),)
        return Record(trial, part, traces, faults, random_state(generator))


def _traces(record: Record) -> Traces:
    assert isinstance(record.steps, Traces)
    return record.steps


def _bytes(task: Task, episodes: int) -> int:
    """Return an upper bound of the size of a record: numbers, names and the texts of faults."""
    columns = 2 * len(task.states) + len(task.observations) + 2 * len(task.actions) + 3 * len(task.constraints) + 4
    return 8 * columns * (task.horizon + 1) * episodes + 1000 * episodes + 20_000


def _step_bytes(task: Task) -> int:
    """Return an upper bound of the size of an episode's steps as text, with the state of the random numbers."""
    columns = len(task.states) + len(task.actions) + 2 * len(task.constraints) + 1
    return (27 * columns + 100) * (task.horizon + 1) + 12_000


def no_steps(task: Task, n: int) -> Traces:
    """Return the traces of n episodes without a single step."""
    nx, no, nu, m = len(task.states), len(task.observations), len(task.actions), len(task.constraints)
    zeros = torch.zeros(n, task.horizon, max(nx, no, nu, m, 1), dtype=torch.float64)
    return Traces(
        x=torch.zeros(n, task.horizon + 1, nx, dtype=torch.float64),
        observation=zeros[..., :no],
        u=zeros[..., :nu],
        cost=zeros[..., 0],
        safety=zeros[..., :m],
        violation=zeros[..., :m].bool(),
        active=zeros[..., 0].bool(),
        terminated=zeros[:, 0, 0].bool(),
        wanted=zeros[..., :nu],
    )
