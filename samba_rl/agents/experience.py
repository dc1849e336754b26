"""Where a policy-gradient agent's traces come from: a model's imagination, or its own trials (own_trials.py)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, final

import torch
from torch import Generator, Tensor

from samba_rl.capture import Recorder
from samba_rl.errors import UserError
from samba_rl.events import Clock, Notice
from samba_rl.improve.shield import Imagine
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.fit_report import FitReport
from samba_rl.models.gp import GPDynamics
from samba_rl.models.measured import unknown
from samba_rl.models.recorded import recorded_rollout
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelSource
from samba_rl.models.zeta import Zeta
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, State, Traces, Transitions

if TYPE_CHECKING:
    from samba_rl.agents.settings import ImaginationSettings


class Experience(ABC):
    """A source of traces that learns from real trials."""

    model: GPDynamics | None
    """The model, if there is one."""
    candidates: int
    """Number of policies to choose from at the end."""
    most: float
    """Largest number of control iterations, in multiples of those planned, while the cost is still falling."""
    trajectories: int
    """Number of trajectories to imagine at a time; 0 without a model."""
    judged: int
    """Number of fresh trajectories on which a policy is judged."""
    starts: int
    """Number of fresh policies that are improved beside the old one halfway."""
    start_iterations: int
    """Control iterations of each of them."""
    shielded: bool
    """Whether policies are judged on the model before they act."""
    restarts: bool
    """Whether a policy starts afresh where all of its traces cost the same."""

    @abstractmethod
    def surprise(self, traces: Traces) -> float:
        """Return the error of the model's predictions in a new trial, in predictive standard deviations."""

    @abstractmethod
    def learn(self, traces: Traces | None, data: Transitions, clock: Clock, *, own: bool) -> Iterator[Notice]:
        """Take in all data, which have just grown by `traces`; `own`: the agent's policy made that trial."""

    @abstractmethod
    def controls(self, planned: int) -> int:
        """Return how many of the planned control iterations the data are good for."""

    @abstractmethod
    def traces(self, policy: Policy, generator: Generator, *, seeking: bool) -> Traces:
        """Return the traces of the policy to improve it on, with ζ if information counts (`seeking`)."""

    @property
    @abstractmethod
    def imagine(self) -> Imagine | None:
        """Return the maker of sources of imagined traces without ζ, to judge policies on; None without a model."""

    @abstractmethod
    def spent(self) -> None:
        """Forget traces that must not be learned from twice."""

    @abstractmethod
    def state_dict(self) -> State:
        """Return everything but the data."""

    @abstractmethod
    def load_state_dict(self, state: State, data: Transitions) -> Iterator[Notice]:
        """Restore what `state_dict` returned when these were the data."""

    @final
    @property
    def report(self) -> FitReport | None:
        """Return the report of the last fit; None without a fitted model."""
        return None if self.model is None else self.model.report


@final
class Imagination(Experience):
    """Trajectories that a Gaussian-process model imagines."""

    model: GPDynamics

    def __init__(
        self,
        task: Task,
        zeta: Zeta | None,
        settings: ImaginationSettings,
        model: GPSettings,
        device: str,
        *,
        shielded: bool,
    ) -> None:
        self.model = GPDynamics(task, model, device)
        self.candidates, self.trajectories = settings.candidates, settings.trajectories
        self.most = settings.most
        self.judged, self.starts, self.start_iterations = settings.judged, settings.starts, settings.start_iterations
        self.shielded, self.restarts = shielded, settings.restart == "on"
        self._task, self._zeta, self._settings = task, zeta, settings
        self._device = torch.device(device)
        self.recorder = Recorder(self._device)
        self._data: Transitions | None = None

    def surprise(self, traces: Traces) -> float:
        """Return the error of the model's predictions in a new trial, in predictive standard deviations."""
        return self.model.surprise(traces.transitions()) if len(self.model) else math.nan

    def learn(self, traces: Traces | None, data: Transitions, clock: Clock, *, own: bool) -> Iterator[Notice]:
        """Fit the model to all data; keep the last one if that fails."""
        self._data, first = data, not len(self.model)
        try:
            with clock("fit"):
                report = self.model.fit(data)
        except UserError as error:
            if not len(self.model):
                raise
            yield Notice(f"the model stays as it was before the last trial: {error}")
            return
        for problem in report.failed:
            yield Notice(f"the model keeps its last good hyper-parameters: {problem}")
        if first:
            yield from map(Notice, unknown(self._task, self.model.plausible, data))

    def controls(self, planned: int) -> int:
        """Return all of them: traces are imagined afresh."""
        return planned

    def traces(self, policy: Policy, generator: Generator, *, seeking: bool) -> Traces:
        """Imagine trajectories with ζ, if it is sought; where it counts for nothing it is zero, which costs nothing."""
        traces = self._source(self._zeta if seeking else None)(policy, self.trajectories, generator)
        return traces if self._zeta is None or seeking else replace(traces, zeta=torch.zeros_like(traces.cost))

    @property
    def imagine(self) -> Imagine | None:
        """Return the maker of sources of imagined traces without ζ; None before the first fit."""
        return (lambda starts, *, share=1: self._source(None, starts, share)) if len(self.model) else None

    def spent(self) -> None:
        """Forget nothing: imagined traces are drawn afresh."""

    def state_dict(self) -> State:
        """Return the state of the model."""
        return {"model": self.model.state_dict()}

    def load_state_dict(self, state: State, data: Transitions) -> Iterator[Notice]:
        """Restore the model; yield a notice if it is not the same to the last bit."""
        self._data = data
        if not self.model.load_state_dict(state["model"], data):
            yield Notice(
                "the model differs in its last digits from the saved one, because of another machine or another number "
                "of threads. The run continues, but not bit for bit as it would have"
            )

    def _source(self, zeta: Zeta | None, starts: Tensor | None = None, share: int = 1) -> ModelSource:
        if starts is None and not self._task.pure_start and self._data is not None:
            starts = self._data.x[self._data.step == 0]
        whole = isinstance(self.model.posterior, ExactPosterior)
        draw = self._settings.draw if whole else "marginals"
        begun = None if starts is None else starts.to(self._device)
        run = partial(recorded_rollout, self.recorder) if self.recorder.records else None
        return ModelSource(self.model, zeta, draw, begun, share, run)
