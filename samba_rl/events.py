"""What a run tells of itself while it goes, and the clock that it keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from samba_rl.types import State


@dataclass(frozen=True)
class TrialReport:
    """What came of a real trial."""

    iteration: int
    """From 0, the trial that was made before there was a model."""
    real_samples: int
    """Real steps so far."""
    episodes: int
    """In this trial."""
    return_mean: float
    safety_cost: float
    """Of an episode of this trial, on average."""
    violations: int
    """Steps of this trial in the unsafe region."""
    learning_TC: float
    """Safety cost of all trials so far."""
    learning_TV: int
    """Steps of all trials in the unsafe region."""
    predicted_return: float
    """What the model expected of this policy (NaN where there was no model yet), and below: of its safety cost."""
    predicted_safety: float
    surprise: float
    """How far the trial was from what the model had predicted, step by step: root mean square in predictive standard
    deviations. 1 is calibrated, far above is overconfident."""
    z_std: tuple[float, ...]
    """Of the new model's leave-one-out z-scores, by output."""
    coverage95: tuple[float, ...]
    seconds: float
    """Since the beginning."""
    broken: int = 0
    """Episodes of this trial that were broken off because the system failed."""


@dataclass(frozen=True)
class ImprovementReport:
    """What came of a control iteration on the model."""

    iteration: int
    """The trial that it followed."""
    control: int
    """From 1."""
    controls: int
    """How many there will be after this trial."""
    model_return: float
    model_safety: float
    model_zeta: float
    """Of a trajectory, on average; 0 where ζ is not used."""
    values: tuple[float, ...]
    """Of the constraints."""
    targets: tuple[float, ...]
    """What they are held under."""
    multipliers: tuple[float, ...]
    lambda_pi: float
    """The weight of the cost against information."""
    std: float
    """Of the policy's actions, in half widths of their range."""
    clipped: float
    """Share of actions that were outside the bounds."""
    kl: float
    critic_loss: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class LatentReport:
    """How a latent model is coming on."""

    iteration: int
    """The trial that it followed."""
    update: int
    """Gradient steps since that trial,"""
    updates: int
    """and how many there will be."""
    loss: float
    """The negative evidence bound of the last batch and its parts, in nats a step."""
    observation: float
    cost: float
    safety: float
    kl: float
    seconds: float


@dataclass(frozen=True)
class Notice:
    """Something that the user should know."""

    text: str


Event = TrialReport | ImprovementReport | LatentReport | Notice
Log = Callable[[Event], None]


@final
class Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._phases = {"real": 0.0, "fit": 0.0, "rollout": 0.0, "update": 0.0, "feasibility": 0.0}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count what happens inside as this phase."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._phases[phase] += time.perf_counter() - begin

    def state_dict(self) -> State:
        """What it shows."""
        return {"seconds": self.seconds, "phases": dict(self._phases)}

    def load_state_dict(self, state: State) -> None:
        """Go on from there."""
        self._begin = time.perf_counter() - float(state["seconds"])
        self._phases.update({name: float(seconds) for name, seconds in state["phases"].items()})

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.perf_counter() - self._begin

    def by_phase(self) -> dict[str, float]:
        """Seconds; what belongs to no phase is other."""
        return {**self._phases, "other": self.seconds - sum(self._phases.values())}
