"""What all agents share: they are told of real trials, count them, and are asked for the policy of the next."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

import torch
from torch import Generator

from samba_rl.agents.first import first_policy
from samba_rl.agents.outliers import SHOWN, Judgement, OutlierTest, without
from samba_rl.agents.settings import Settings
from samba_rl.data import DataSet, Schema
from samba_rl.errors import UserError
from samba_rl.events import Clock, Event, Log, Notice, TrialReport
from samba_rl.improve.experts import NetworkPolicy
from samba_rl.improve.snapshot import set_random
from samba_rl.learners import Learner
from samba_rl.tasks.task import Task
from samba_rl.types import Fault, Policy, State, Traces, Transitions

if TYPE_CHECKING:
    from samba_rl.models.gp import GPDynamics
    from samba_rl.planet.policy import PlanningPolicy

Learned: TypeAlias = "NetworkPolicy | PlanningPolicy"
"""Policies that agents end with."""


class Foresight(NamedTuple):
    """Predictions made before a trial, and the calibration of the model after it; see `TrialReport`."""

    predicted_return: float = math.nan
    predicted_safety: float = math.nan
    surprise: float = math.nan
    z_std: tuple[float, ...] = ()
    coverage95: tuple[float, ...] = ()


class AnyAgent(ABC):
    """Learns a policy: `tell` it real traces, `ask` it for the policy of the next trial.

    `algorithm.train` is this loop around a system that a program can run; a rig in a laboratory uses the same two.
    """

    log: Log | None = None
    """Called with every event of `ask` and `tell`."""
    controller: Policy | None = None
    """Controller that makes the first trial; None: random actions do."""

    def __init__(self, task: Task, learner: Learner, settings: Settings, seed: int, device: str) -> None:
        if not isinstance(learner.source, settings.source):
            raise UserError(
                f"{type(settings).__name__} are not for a learner on {learner.source.title}; "
                "make_settings(task, learner) gives those that are"
            )
        self.task, self.learner, self.settings = task, learner, settings
        self.data = DataSet.empty(schema_of(task))
        self.aside = torch.empty(0, dtype=torch.long)
        """Indices of the steps that were set aside as outliers, in the data [K]."""
        self._outliers = OutlierTest(task, self.data.schema) if settings.real.outliers == "aside" else None
        self.constraints = settings.constraints(learner, task.constraints)
        self.clock = Clock()
        self.real_samples, self.iteration = 0, -1
        self.learning_TC, self.learning_TV = 0.0, 0
        self.device = torch.device(device)
        self.generator = Generator(self.device).manual_seed(seed)

    # What each kind of agent does for itself ------------------------------------------------------------------------

    @property
    @abstractmethod
    def model(self) -> GPDynamics | None:
        """Return the Gaussian-process model, if there is one."""

    @property
    @abstractmethod
    def policy(self) -> Learned:
        """Return the present policy, on the CPU."""

    @abstractmethod
    def acting(self, *, last: bool = False) -> Policy:
        """Return the policy for the next trial, or the `last` one."""

    @abstractmethod
    def improve(self, *, last: bool = False) -> Iterator[Event]:
        """Improve the policy, for the next trial or as the `last` one; an interrupted improvement is continued."""

    @abstractmethod
    def _take_in(self, traces: Traces | None) -> Iterator[Notice]:
        """Learn from data that have just grown, by traces or (None) by transitions from before the run."""

    @abstractmethod
    def _foresight(self, traces: Traces) -> Foresight:
        """Return the predictions for a trial that the agent has not learned from."""

    @abstractmethod
    def _calibrated(self, foresight: Foresight) -> Foresight:
        """Return the foresight with the calibration of the model, which has now learned from the trial."""

    @abstractmethod
    def model_state(self) -> State:
        """Return what is needed, beside the data, to make the model again; empty if there is none."""

    @abstractmethod
    def state_dict(self) -> State:
        """Return everything but the data. At an event it is whole: an agent that loads it continues to the same end."""

    @abstractmethod
    def load_state_dict(self, state: State, data: DataSet) -> Iterator[Notice]:
        """Become the agent that returned this state when it had these data."""

    # What they share ------------------------------------------------------------------------------------------------

    @final
    def ask(self, *, last: bool = False) -> Policy:
        """Improve the policy and return it, for the next trial or as the `last` one."""
        self._drain(self.improve(last=last))
        return self.acting(last=last)

    @final
    def tell(self, traces: Traces, faults: Sequence[Fault] = ()) -> None:
        """Learn from the traces of a real trial; `faults` broke episodes off."""
        self._drain(self.learn(traces, faults))

    @final
    def tell_earlier(self, transitions: Transitions) -> None:
        """Learn from real transitions measured before the run; they do not count as its samples."""
        self._drain(self.learn_earlier(transitions))

    @final
    def learn(self, traces: Traces, faults: Sequence[Fault] = ()) -> Iterator[Event]:
        """Add a real trial to the data and learn from it; every event comes after that."""
        notices = [Notice(f"{fault.text}; the episode is kept up to there") for fault in faults]
        traces = traces.begun()
        if not traces.steps:
            yield from notices
            return
        # First, because it refuses unsound data: then nothing has been counted yet.
        self.data = self.data.append(traces)
        self.iteration += 1
        self.real_samples += traces.steps
        judgement = self._judge(traces.steps)
        seen = traces
        if judgement is not None and judgement.outliers:
            assert self._outliers is not None
            notices += _set_aside(f"trial {self.iteration}", judgement)
            traces = self._outliers.shown(traces, judgement)
            active = traces.active.clone()
            active[traces.active] = ~judgement.aside
            seen = replace(traces, active=active)
        self.learning_TC += float(traces.safety.sum())
        self.learning_TV += int(traces.violation.any(-1).sum())
        # A trial of which nothing is believed teaches nothing.
        foresight = self._foresight(seen) if seen.steps else Foresight()
        notices += self._take_in(traces if seen.steps else None)
        broken = len({fault.episode for fault in faults})
        report = self._trial_report(traces, self._calibrated(foresight), broken=broken)
        yield from notices
        yield report

    @final
    def learn_earlier(self, steps: Transitions | Traces) -> Iterator[Event]:
        """Add real steps measured before the run, or beside it, to the data and learn from them."""
        before = len(self.data)
        self.data = self.data.append(steps)
        judgement = self._judge(len(self.data) - before)
        notices = [] if judgement is None else _set_aside("earlier data", judgement)
        yield from [*notices, *self._take_in(None)]

    @final
    @property
    def believed(self) -> Transitions:
        """Return the transitions to learn from: all but those that were set aside as outliers."""
        return without(self.data.transitions, self.aside)

    @final
    def _judge(self, count: int) -> Judgement | None:
        """Set aside the outliers among the last `count` steps of the data; None if they are not looked for."""
        if self._outliers is None:
            return None
        first = len(self.data) - count
        new = Transitions(**{name: value[first:] for name, value in vars(self.data.transitions).items()})
        judgement = self._outliers.judge(new, self.model)
        self.aside = torch.cat([self.aside, first + judgement.aside.nonzero()[:, 0]])
        return judgement

    @property
    def is_first_trial(self) -> bool:
        """Return whether the next trial is the first, which a policy without knowledge makes."""
        return self.iteration < 0 and self.settings.first.samples > 0

    @final
    def episodes_due(self) -> int:
        """Return the episodes of the next trial; 0 if the budget of real samples is spent."""
        horizon, settings = self.task.horizon, self.settings
        wanted = -(-settings.first.samples // horizon) if self.is_first_trial else settings.episodes
        return min(wanted, max(0, settings.real_samples - self.real_samples) // horizon)

    @final
    def first_policy(self, episodes: int, generator: Generator) -> Policy:
        """Return the policy of the first trial."""
        return self.controller or first_policy(self.task, self.settings.first, episodes, generator)

    @final
    def _drain(self, events: Iterator[Event]) -> None:
        for event in events:
            if self.log is not None:
                self.log(event)

    @final
    def _cpu_generator(self) -> Generator:
        seed = torch.randint(2**62, (1,), generator=self.generator, device=self.device)
        return Generator().manual_seed(int(seed))

    @final
    def _progress(self) -> float:
        """Return the share of the real samples that is spent."""
        return min(1.0, self.real_samples / self.settings.real_samples)

    @final
    def _check_told(self) -> None:
        if not len(self.data):
            raise UserError(f"nothing is known of {self.task.name} yet: tell(traces) of a first trial comes before")

    @final
    def _counts(self) -> State:
        """Return what all agents remember."""
        return {
            "iteration": self.iteration,
            "real_samples": self.real_samples,
            "learning_TC": self.learning_TC,
            "learning_TV": self.learning_TV,
            "clock": self.clock.state_dict(),
            "generator": self.generator.get_state(),
            "aside": self.aside,
            "outliers": None if self._outliers is None else self._outliers.state_dict(),
        }

    @final
    def _load_data(self, data: DataSet, state: State) -> None:
        """Take over data and which of them are set aside; call this first."""
        self.data = data
        self.aside = state.get("aside", self.aside)
        if self._outliers is not None and state.get("outliers") is not None:
            self._outliers.load_state_dict(state["outliers"])

    @final
    def _load_counts(self, state: State) -> None:
        """Restore what `_counts` returned; call this last, because making networks draws random numbers."""
        self.iteration, self.real_samples = int(state["iteration"]), int(state["real_samples"])
        self.learning_TC, self.learning_TV = float(state["learning_TC"]), int(state["learning_TV"])
        self.clock.load_state_dict(state["clock"])
        set_random(self.generator, state["generator"])

    def _trial_report(self, traces: Traces, foresight: Foresight, *, broken: int) -> TrialReport:
        return TrialReport(
            iteration=self.iteration,
            real_samples=self.real_samples,
            episodes=len(traces.returns),
            return_mean=float(traces.returns.mean()),
            safety_cost=float(traces.safety_costs.sum(-1).mean()),
            violations=int(traces.violation.any(-1).sum()),
            learning_TC=self.learning_TC,
            learning_TV=self.learning_TV,
            **foresight._asdict(),
            seconds=self.clock.seconds,
            broken=broken,
            set_aside=len(self.aside),
        )


def _set_aside(where: str, judgement: Judgement) -> list[Notice]:
    """Return notices about the values that are not believed."""
    what = "; kept in the data, not learned from"
    notices = [Notice(f"{where}, {one}{what}") for one in judgement.outliers[:SHOWN]]
    more = len(judgement.outliers) - SHOWN
    steps = int(judgement.aside.sum())
    if more > 0:
        notices.append(Notice(f"{where}: {more} more outliers; {steps} steps are set aside{what}"))
    return notices


def schema_of(task: Task) -> Schema:
    """Return the columns of a data set of the task."""
    return Schema(tuple(q.name for q in task.states), tuple(q.name for q in task.actions), task.constraints)
