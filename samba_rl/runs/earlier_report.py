"""Report on real transitions measured before a run: what was used, and how well a model learns from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from samba_rl.agents.settings import ModelBasedSettings, Settings
from samba_rl.data import DataSet
from samba_rl.models.gp import GPDynamics
from samba_rl.models.normalise import inputs_and_targets
from samba_rl.models.settings import GPSettings
from samba_rl.runs.earlier import Source
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions

SHARE = 5
"""One episode in so many is held out."""
MOST = 400
"""Largest number of steps that the model of the report learns from, and is tried on."""
LEAST = 10
"""Least number of steps to learn from and to try the model on."""
INTERVAL = 1.959964
"""Half of a 95 % interval, in standard deviations."""


@dataclass(frozen=True)
class Range:
    """Smallest and largest value of a quantity."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """How a model predicts one state, a step ahead, where it has not learned."""

    name: str
    """Name of the state."""
    error: float
    """Root mean square error, in the unit of the state."""
    relative: float
    """The same as a share of the standard deviation of the change of state; 1 is no better than the mean change."""
    coverage95: float
    """Share of the changes inside their 95 % interval."""


@dataclass(frozen=True)
class HeldOut:
    """How a model does on steps that it has not learned from."""

    learned: int
    """Number of steps that it learned from."""
    tried: int
    """Number of steps that it was tried on."""
    by: str
    """What was held out: whole episodes, or the last steps of the only one."""
    states: tuple[Fit, ...]
    """Results by state."""


@dataclass(frozen=True)
class EarlierReport:
    """What a run took from earlier data."""

    episodes: int
    """Number of episodes."""
    steps: int
    """Number of steps."""
    sources: tuple[Source, ...]
    """What was taken from each file; empty for a data set."""
    ranges: tuple[Range, ...]
    """Ranges of states, actions, cost and safety costs."""
    unsafe: int
    """Number of steps in the unsafe region."""
    outside: int
    """Number of steps with an action outside the bounds."""
    held_out: HeldOut | None
    """How a model does on a part of the data; None without a GP model, or with too few steps."""

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        found = [one.in_words() for one in self.sources]
        found.append(
            f"{self.episodes} earlier episodes with {self.steps} steps ({self.unsafe} unsafe): "
            + ", ".join(f"{one.name} {one.low:.3g} to {one.high:.3g}" for one in self.ranges)
        )
        if self.outside:
            found.append(f"{self.outside} steps have an action outside the bounds; their costs count it as clipped")
        if self.held_out is not None:
            states = "; ".join(
                f"{fit.name}: error {fit.error:.3g} ({fit.relative:.0%} of its usual change), {fit.coverage95:.0%} "
                "in the 95 % interval"
                for fit in self.held_out.states
            )
            found.append(
                f"a model of {self.held_out.learned} of these steps, tried on {self.held_out.tried} others "
                f"({self.held_out.by}): {states}"
            )
        return found


def report_on(task: Task, data: DataSet, sources: tuple[Source, ...], settings: Settings) -> EarlierReport:
    """Return the report on earlier data."""
    steps = data.transitions
    columns: list[tuple[str, Tensor]] = [
        (q.name, torch.cat([steps.x[:, i], steps.x_next[:, i]])) for i, q in enumerate(task.states)
    ]
    columns += [(q.name, steps.u[:, i]) for i, q in enumerate(task.actions)]
    columns += [("cost", steps.cost)]
    columns += [(f"safety:{name}", steps.safety[:, i]) for i, name in enumerate(task.constraints)]
    return EarlierReport(
        episodes=data.episodes,
        steps=len(data),
        sources=sources,
        ranges=tuple(Range(name, float(values.min()), float(values.max())) for name, values in columns),
        unsafe=int(steps.violation.any(1).sum()),
        outside=int((task.clip(steps.u) != steps.u).any(1).sum()),
        held_out=_held_out(task, data, settings.model) if isinstance(settings, ModelBasedSettings) else None,
    )


def _held_out(task: Task, data: DataSet, settings: GPSettings) -> HeldOut | None:
    """Fit a model to most of the data and try it on the rest; None if there is too little."""
    steps = data.transitions
    if data.episodes > 1:
        _, number = steps.episode.unique_consecutive(return_inverse=True)  # type: ignore[no-untyped-call]
        # The last episode of each group, and at least the last of all.
        apart = (number % SHARE == SHARE - 1) | (number == data.episodes - 1)
        by = "whole episodes"
    else:
        apart = torch.arange(len(steps)) >= len(steps) * (SHARE - 1) // SHARE
        by = "the last steps of the only episode"
    learned, tried = _part(steps, ~apart), _part(steps, apart)
    if min(len(learned), len(tried)) < LEAST:
        return None
    # The fit draws random numbers, which must not change those of the run.
    with torch.random.fork_rng(devices=[]):
        model = GPDynamics(task, settings)
        model.fit(learned)
        inputs, targets = inputs_and_targets(task, tried, torch.device("cpu"))
        mean, variance, _ = model.predict(inputs)
    error = targets - mean.double()
    inside = error.abs() <= INTERVAL * (variance + model.noise).double().sqrt()
    usual = inputs_and_targets(task, learned, torch.device("cpu"))[1].std(0, correction=0)
    states = []
    for column, index in enumerate(task.predicted):
        rms = float(error[:, column].square().mean().sqrt())
        share = rms / max(float(usual[column]), 1e-300)
        states.append(Fit(task.states[index].name, rms, share, float(inside[:, column].double().mean())))
    return HeldOut(len(learned), len(tried), by, tuple(states))


def _part(steps: Transitions, which: Tensor) -> Transitions:
    """Return some steps, at most `MOST` of them, spread evenly."""
    rows = which.nonzero()[:, 0]
    if len(rows) > MOST:
        rows = rows[torch.linspace(0, len(rows) - 1, MOST).round().long()]
    return Transitions(**{name: values[rows] for name, values in vars(steps).items()})
