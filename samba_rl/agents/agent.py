"""What every agent does: it is told of real trials and keeps count of them, and is asked for the policy of the next."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

import torch
from torch import Generator

from samba_rl.data import DataSet, Schema
from samba_rl.events import Clock, Event, Log, Notice, TrialReport
from samba_rl.improve.constraints import Multiplier, make_constraints
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.tasks.task import Task
from samba_rl.types import Fault, Policy, State, Traces, Transitions

if TYPE_CHECKING:
    from samba_rl.learners import Settings
    from samba_rl.planet.policy import PlanningPolicy

Learned: TypeAlias = "GaussianPolicy | PlanningPolicy"
"""The policies that agents end with."""


class Foresight(NamedTuple):
    """What an agent had expected of a trial before it learned from it, and how well its model fits now."""

    predicted_return: float = math.nan
    predicted_safety: float = math.nan
    surprise: float = math.nan
    z_std: tuple[float, ...] = ()
    coverage95: tuple[float, ...] = ()


class AnyAgent(ABC):
    """Learns a policy: `tell` it real traces, `ask` it for the policy of the next trial.

    `train` is this loop around a system that a program can run; a rig in a laboratory calls the same two.
    """

    def __init__(self, task: Task, settings: Settings, seed: int, device: str, log: Log | None) -> None:
        self.task, self.settings = task, settings
        self.data = DataSet.empty(schema_of(task))
        self.constraints = make_constraints((settings.constraint, *settings.more_constraints), task.constraints)
        self.multipliers = tuple(Multiplier(settings.multiplier, c.limit) for c in self.constraints)
        self.clock = Clock()
        self.real_samples, self.iteration = 0, -1
        self.learning_TC, self.learning_TV = 0.0, 0
        self._device = torch.device(device)
        self._generator = Generator(self._device).manual_seed(seed)
        self._log: Log = log or _ignore

    # What kinds of agents differ in ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def policy(self) -> Learned:
        """The policy as it stands, on the CPU."""

    @abstractmethod
    def ask(self, *, last: bool = False) -> Policy:
        """Learn, and give the policy for the next trial, or the `last` one. What was interrupted goes on."""

    @abstractmethod
    def _learn(self, traces: Traces | None) -> Foresight:
        """Take in data that have just grown, by traces or by transitions from before the run."""

    @abstractmethod
    def model_state(self) -> State:
        """What the model must remember, beside the data, to be made again; empty if there is none to make."""

    @abstractmethod
    def state_dict(self) -> State:
        """Everything but the data; at a report it is whole, so that an agent that gets it goes on to the same end."""

    @abstractmethod
    def load_state_dict(self, state: State, data: DataSet) -> None:
        """Become the agent that gave this state when it had these data."""

    # What they have in common ---------------------------------------------------------------------------------------

    @final
    def tell(self, traces: Traces, faults: Sequence[Fault] = ()) -> None:
        """Take in the traces of a real trial, with what broke episodes off."""
        for fault in faults:
            self._log(Notice(f"{fault.text}; the episode is kept up to there"))
        traces = traces.begun()
        if not traces.steps:
            return
        # First, because it refuses what is not sound; then nothing has been counted yet.
        self.data = self.data.append(traces)
        self.iteration += 1
        self.real_samples += traces.steps
        self.learning_TC += float(traces.safety.sum())
        self.learning_TV += int(traces.violation.any(-1).sum())
        foresight = self._learn(traces)
        self._log(self._trial_report(traces, foresight, len({fault.episode for fault in faults})))

    @final
    def tell_earlier(self, transitions: Transitions) -> None:
        """Take in real transitions that were there before the run; they do not count as its samples."""
        self.data = self.data.append(transitions)
        self._learn(None)

    @final
    def _cpu_generator(self) -> Generator:
        seed = torch.randint(2**62, (1,), generator=self._generator, device=self._device)
        return Generator().manual_seed(int(seed))

    @final
    def _progress(self) -> float:
        """The share of the real samples that is spent."""
        return min(1.0, self.real_samples / self.settings.real_samples)

    @final
    def _counts(self) -> State:
        """What all agents remember."""
        return {
            "iteration": self.iteration,
            "real_samples": self.real_samples,
            "learning_TC": self.learning_TC,
            "learning_TV": self.learning_TV,
            "clock": self.clock.state_dict(),
            "generator": self._generator.get_state(),
        }

    @final
    def _load_counts(self, state: State) -> None:
        """To be called last: making networks draws random numbers."""
        self.iteration, self.real_samples = int(state["iteration"]), int(state["real_samples"])
        self.learning_TC, self.learning_TV = float(state["learning_TC"]), int(state["learning_TV"])
        self.clock.load_state_dict(state["clock"])
        self._generator.set_state(state["generator"])

    def _trial_report(self, traces: Traces, foresight: Foresight, broken: int) -> TrialReport:
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
        )


def schema_of(task: Task) -> Schema:
    """The columns of a data set of the task."""
    return Schema(tuple(q.name for q in task.states), tuple(q.name for q in task.actions), task.constraints)


def _ignore(_: Event) -> None:
    """Nobody wants to know."""
