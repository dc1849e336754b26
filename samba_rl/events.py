"""Events that a learner yields while it runs, and the clock that it keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from samba_rl.types import Policy, State


@dataclass(frozen=True)
class TrialReport:
    """The outcome of a real trial."""

    iteration: int
    """Number of the trial; 0 is the first one, made before there was a model."""
    real_samples: int
    """Real steps so far."""
    episodes: int
    """Episodes of this trial."""
    return_mean: float
    """Mean return of this trial's episodes."""
    safety_cost: float
    """Mean safety cost of this trial's episodes."""
    violations: int
    """Steps of this trial in the unsafe region."""
    learning_TC: float
    """Total safety cost of all trials so far."""
    learning_TV: int
    """Steps of all trials so far in the unsafe region."""
    predicted_return: float
    """Mean return that the model predicted for this trial; NaN without a model."""
    predicted_safety: float
    """Mean safety cost that the model predicted for this trial; NaN without a model."""
    surprise: float
    """Root mean square error of the model's one-step predictions in this trial, in predictive standard deviations:
    1 is calibrated, far above 1 is overconfident."""
    z_std: tuple[float, ...]
    """Root mean square of the z-scores that the new model gives to left-out data, by output."""
    coverage95: tuple[float, ...]
    """Share of left-out targets inside the new model's 95 % intervals, by output."""
    seconds: float
    """Seconds since the run began."""
    broken: int = 0
    """Episodes of this trial that ended early because the system failed."""
    set_aside: int = 0
    """Steps so far that were set aside as outliers."""


@dataclass(frozen=True)
class ImprovementReport:
    """The outcome of a control iteration."""

    iteration: int
    """Number of the trial before it."""
    control: int
    """Number of the control iteration after that trial, from 1."""
    controls: int
    """Control iterations planned after that trial."""
    model_return: float
    """Mean return of the traces."""
    model_safety: float
    """Mean safety cost of the traces."""
    model_zeta: float
    """Mean ζ of a trajectory; 0 if ζ is not measured."""
    values: tuple[float, ...]
    """Measured value of each constraint."""
    targets: tuple[float, ...]
    """Value that each constraint is held under."""
    multipliers: tuple[float, ...]
    """λ of each constraint."""
    lambda_pi: float
    """λ_π, the weight of the cost against information."""
    std: float
    """Mean standard deviation of the policy's actions, in half widths of their range."""
    clipped: float
    """Share of actions outside their bounds."""
    kl: float
    """Divergence between the policies before and after."""
    critic_loss: tuple[float, ...]
    """Mean squared error of each critic, in variances of its targets."""
    seconds: float
    """Seconds since the run began."""


@dataclass(frozen=True)
class LatentReport:
    """The state of a latent model in training."""

    iteration: int
    """Number of the trial before it."""
    update: int
    """Gradient steps since that trial."""
    updates: int
    """Gradient steps planned after that trial."""
    loss: float
    """Negative evidence bound of the last batch, in nats per step."""
    observation: float
    """Observation part of the loss."""
    cost: float
    """Cost part of the loss."""
    safety: float
    """Safety cost part of the loss."""
    kl: float
    """Divergence part of the loss."""
    seconds: float
    """Seconds since the run began."""


@dataclass(frozen=True)
class Notice:
    """Something that the user should know."""

    text: str


@dataclass(frozen=True)
class PolicyReady:
    """A policy is about to make a trial."""

    iteration: int
    """Number of the trial before it."""
    policy: Policy


@dataclass(frozen=True)
class EpisodesMeasured:
    """Some or all episodes of a trial are over and safely stored."""


@dataclass(frozen=True)
class TrialDue:
    """A trial is to be made outside of this program before the loop goes on."""

    trial: int
    """Number of the trial."""
    policy: Policy
    """The policy that makes it."""
    told: int
    """Episodes of it that are there already."""
    episodes: int
    """Episodes of it in all."""


@dataclass(frozen=True)
class PauseDue:
    """The system failed and should be looked at before the run continues."""

    text: str


Event = TrialReport | ImprovementReport | LatentReport | Notice
"""What is logged and kept with a run."""
Signal = PolicyReady | EpisodesMeasured | TrialDue | PauseDue
"""What the consumer of a training loop may act on. Signals are not kept, and no checkpoint is taken at one: an
improvement that has just ended would be made again."""
Log = Callable[[Event], None]


@final
class Clock:
    """Measures seconds by phase."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._phases = {"real": 0.0, "fit": 0.0, "rollout": 0.0, "update": 0.0, "feasibility": 0.0, "gate": 0.0}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count the time spent inside towards a phase."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._phases[phase] += time.perf_counter() - begin

    def state_dict(self) -> State:
        """Return the time so far."""
        return {"seconds": self.seconds, "phases": dict(self._phases)}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self._begin = time.perf_counter() - float(state["seconds"])
        self._phases.update({name: float(seconds) for name, seconds in state["phases"].items()})

    @property
    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._begin

    def by_phase(self) -> dict[str, float]:
        """Return the seconds of each phase; time outside every phase is "other"."""
        return {**self._phases, "other": self.seconds - sum(self._phases.values())}
