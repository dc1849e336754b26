"""Outliers among measured steps: readings far outside of everything measured so far, or that a model contradicts.

**Range.** The believed values of a column span a range. A new value that lies beyond it by less than `RARE` times its
width extends the range, and the test is repeated until nothing changes: a system that explores, or diverges step by
step, reaches any value. What stays outside is an outlier if it is rare in its trial, or farther away than any system
gets in one trial. Before there are earlier data, the trial's own quantiles are the range.

**Model.** A reading inside the range is an outlier if the step into it and the step out of it both miss the prediction,
in opposite directions, by more than `MISS` standard deviations and the whole width of all changes so far. A jump after
which the system goes on from where it is, such as an angle that wraps, is none.

A single bad reading spoils the step that led to it and the one that began there. These two are set aside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from samba_rl.data import Schema
from samba_rl.models.normalise import LARGEST, inputs_and_targets
from samba_rl.types import State, Traces, Transitions

if TYPE_CHECKING:
    from samba_rl.models.gp import GPDynamics
    from samba_rl.tasks.task import Task

RARE = 10.0
"""Widths of the believed range by which a rare reading may lie outside of it."""
FIRST_FAR, FAR = 1e5, 1e3
"""Widths by which any number of readings may lie outside, in the first trial and later."""
TAIL = 0.05
"""Share of a trial's readings, at each end, that are still rare."""
FEW = 2
"""Number of readings of a trial, at each end, that are rare in any case."""
COSTS_FAR = 1e6
"""Widths by which a cost or a safety cost may lie outside: a crash may cost a thousand times as much as all else."""
MISS = 10.0
"""Standard deviations by which steps must miss the model's prediction."""
SHOWN = 3
"""Number of outliers of a trial that are reported one by one."""


@dataclass(frozen=True)
class Outlier:
    """A value that is not believed."""

    name: str
    """Name of the component."""
    value: float
    """Measured value."""
    low: float
    """Lower end of the expected range."""
    high: float
    """Upper end of the expected range."""
    episode: int
    """Number of the episode in the data."""
    step: int
    """Index of the step that measured it; -1 for the state in which the episode started."""

    def __str__(self) -> str:
        place = "at the start" if self.step < 0 else f"at step {self.step}"
        return (
            f"episode {self.episode}: {self.name} is {self.value:.6g} {place}, expected {self.low:.4g} to "
            f"{self.high:.4g}"
        )


class Judgement(NamedTuple):
    """Result of the test on N steps of E episodes."""

    aside: Tensor
    """Steps to set aside [N] (bool)."""
    bad: Tensor
    """Readings that are not believed, by component [N + E, nx] (bool); see `_readings`."""
    outliers: tuple[Outlier, ...] = ()
    """Values that are not believed, in the order of the steps."""


@final
class OutlierTest:
    """Judges the steps of trial after trial, and remembers the ranges of those that were believed."""

    def __init__(self, task: Task, schema: Schema) -> None:
        self._task, self._names = task, (*schema.states, "cost", *schema.constraints)
        width = len(self._names) + len(task.predicted)
        self._low = torch.full((width,), math.inf, dtype=torch.float64)
        self._high = -self._low
        """Range of each state, cost, safety cost, and change of a predicted state; reversed before the first data."""

    @property
    def begun(self) -> bool:
        """Return whether anything has been believed."""
        return bool((self._low <= self._high).any())

    def judge(self, steps: Transitions, model: GPDynamics | None) -> Judgement:
        """Return which of these new steps are outliers, and extend the ranges by the others."""
        before, readings = _readings(steps)
        nx, far = readings.shape[1], FAR if self.begun else FIRST_FAR
        costs = torch.cat([steps.cost[:, None], steps.safety], dim=1)
        low, high = self._low.clone(), self._high.clone()
        bad, wrong = torch.zeros_like(readings, dtype=torch.bool), torch.zeros_like(costs, dtype=torch.bool)
        for i in range(nx):
            bad[:, i], low[i], high[i] = _unbelieved(readings[:, i], low[i], high[i], far)
        expected = self._contradicted(model, steps, before, bad) if model is not None and len(model) else {}
        for place in expected:
            bad[place] = True
        spoilt = bad.any(1)[before] | bad.any(1)[before + 1]
        for i in range(costs.shape[1]):
            wrong[:, i], low[nx + i], high[nx + i] = _unbelieved(costs[:, i], low[nx + i], high[nx + i], COSTS_FAR)
        wrong &= ~spoilt[:, None]  # the cost of a bad reading is not another outlier
        aside = spoilt | wrong.any(1)
        if bool(aside.all()) and not self.begun:
            # There is nothing to compare with, and nothing would be left.
            return Judgement(aside & False, bad & False)
        found = []
        for place, i in bad.nonzero().tolist():
            ends = expected.get((place, i)) or _wider(low[i], high[i], RARE)
            found.append(Outlier(self._names[i], float(readings[place, i]), *ends, *_place(steps, before, place)))
        for row, i in wrong.nonzero().tolist():
            ends, where = _wider(low[nx + i], high[nx + i], COSTS_FAR), (int(steps.episode[row]), int(steps.step[row]))
            found.append(Outlier(self._names[nx + i], float(costs[row, i]), *ends, *where))
        self._extend(steps, ~aside)
        return Judgement(aside, bad, tuple(sorted(found, key=lambda one: (one.episode, one.step))))

    def shown(self, traces: Traces, judgement: Judgement) -> Traces:
        """Return traces in which a reading that is not believed lies between its neighbours.

        Without neighbours it lies in the middle of the range. The costs and safety costs of steps that are set aside
        are held within the range of the others.
        """
        if not bool(judgement.aside.any()):
            return traces
        aside = torch.zeros_like(traces.active)
        aside[traces.active] = judgement.aside
        nx, x, observation = len(self._task.states), traces.x.clone(), traces.observation.clone()
        start = 0
        for episode, length in enumerate(traces.active.sum(1).tolist()):
            wrong = judgement.bad[start : start + length + 1]
            start += length + 1
            if not bool(wrong.any()):
                continue
            for i in range(nx):
                bad = wrong[:, i].numpy()
                if bad.all():
                    x[episode, : length + 1, i] = (self._low[i] + self._high[i]) / 2
                elif bad.any():
                    good = np.flatnonzero(~bad)
                    values = np.interp(np.arange(length + 1), good, x[episode, good, i].numpy())
                    x[episode, : length + 1, i][wrong[:, i]] = torch.from_numpy(values)[wrong[:, i]].to(x)
            x[episode, length:] = x[episode, length].clone()
            rows = wrong.any(1).nonzero()[:, 0]
            rows = rows[rows < observation.shape[1]]
            observation[episode, rows] = self._task.observe(x[episode, rows])
        low, high = self._low[nx : len(self._names)], self._high[nx : len(self._names)]
        cost = torch.where(aside, traces.cost.clamp(float(low[0]), float(high[0])), traces.cost)
        safety = torch.where(aside[..., None], traces.safety.clamp(low[1:].to(x), high[1:].to(x)), traces.safety)
        return replace(traces, x=x, observation=observation, cost=cost, safety=safety)

    def state_dict(self) -> State:
        """Return the ranges."""
        return {"low": self._low.clone(), "high": self._high.clone()}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self._low, self._high = state["low"].clone(), state["high"].clone()

    def _contradicted(
        self, model: GPDynamics, steps: Transitions, before: Tensor, bad: Tensor
    ) -> dict[tuple[int, int], tuple[float, float]]:
        """Return the ranges that the model expected for readings that it contradicts, by reading and component."""
        largest = torch.cat([steps.x, steps.x_next], dim=1).abs().amax(1)
        rows = (~(bad.any(1)[before] | bad.any(1)[before + 1]) & (largest < LARGEST / 2)).nonzero()[:, 0]
        if len(rows) < 2:
            return {}
        some = Transitions(**{name: value[rows] for name, value in vars(steps).items()})
        inputs, changes = inputs_and_targets(self._task, some, model.target_scale.device)
        mean, variance, _ = model.predict(inputs)
        states = slice(0, len(self._task.predicted))  # measured costs come after them
        spread = (variance + model.noise)[:, states].double().sqrt().cpu()
        errors, mean = (changes - mean.double())[:, states].cpu(), mean[:, states].double().cpu()
        width = (self._high - self._low)[len(self._names) :]
        missed = (errors.abs() > MISS * spread) & (errors.abs() > width)
        follows = (before[rows][1:] == before[rows][:-1] + 1)[:, None]
        both = missed[1:] & missed[:-1] & (errors[1:].sign() == -errors[:-1].sign()) & follows
        expected = {}
        for k, i in both.nonzero().tolist():
            column, reach = self._task.predicted[i], MISS * float(spread[k, i])
            predicted = float(some.x[k, column] + mean[k, i])
            expected[int(before[rows[k]]) + 1, column] = predicted - reach, predicted + reach
        return expected

    def _extend(self, steps: Transitions, kept: Tensor) -> None:
        """Extend the ranges by the steps that are kept."""
        if not bool(kept.any()):
            return
        x, x_next = steps.x[kept], steps.x_next[kept]
        columns = [torch.cat([x, x_next])]
        after = torch.cat([steps.cost[:, None], steps.safety], dim=1)[kept]
        changes = (x_next - x)[:, list(self._task.predicted)]
        low = torch.cat([part.min(0).values for part in (*columns, after, changes)])
        high = torch.cat([part.max(0).values for part in (*columns, after, changes)])
        self._low, self._high = torch.minimum(self._low, low), torch.maximum(self._high, high)


def _readings(steps: Transitions) -> tuple[Tensor, Tensor]:
    """Return the index of the reading before each step [N], and all readings [N + E, nx], episode after episode.

    The reading after step i has the index behind that of the reading before it.
    """
    begins = torch.ones(len(steps), dtype=torch.bool)
    begins[1:] = steps.episode[1:] != steps.episode[:-1]
    before = torch.arange(len(steps)) + begins.cumsum(0) - 1
    readings = steps.x.new_empty(len(steps) + int(begins.sum()), steps.x.shape[1])
    readings[before], readings[before + 1] = steps.x, steps.x_next
    return before, readings


def _place(steps: Transitions, before: Tensor, reading: int) -> tuple[int, int]:
    """Return the episode of a reading, and the step that led to it or -1."""
    led = (before == reading - 1).nonzero()[:, 0]
    row = int(led[0]) if len(led) else int((before == reading).nonzero()[0, 0])
    return int(steps.episode[row]), int(steps.step[row]) if len(led) else -1


def _wider(low: Tensor, high: Tensor, factor: float) -> tuple[float, float]:
    """Return a range with `factor` times its width added at both ends."""
    reach = factor * float(high - low)
    return float(low) - reach, float(high) + reach


def without(steps: Transitions, aside: Tensor | None) -> Transitions:
    """Return the steps [N] but for those with these indices [K]; the steps themselves if there are none."""
    if aside is None or not len(aside):
        return steps
    kept = torch.ones(len(steps), dtype=torch.bool)
    kept[aside[aside < len(steps)]] = False
    return Transitions(**{name: value[kept] for name, value in vars(steps).items()})


def _unbelieved(values: Tensor, low: Tensor, high: Tensor, far: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return which values [M] are not believed, given the range so far, and the range of the others."""
    if bool(low > high):
        middle = values.median()
        spread = (values - middle).abs().median()
        low, high = middle - spread, middle + spread
    inside, near_low, near_high = _grown(values, low, high, far)
    if far == COSTS_FAR or not bool(inside.any()):
        return ~inside, near_low, near_high
    # Values that are not rare belong to the system, even if nothing like them has been measured before.
    ordered = values[inside].sort().values
    cut = min(max(FEW, math.ceil(TAIL * len(ordered))), len(ordered) - 1)
    low, high = torch.minimum(low, ordered[cut]), torch.maximum(high, ordered[-1 - cut])
    inside, low, high = _grown(values, low, high, RARE)
    return ~inside, low, high


def _grown(values: Tensor, low: Tensor, high: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Extend a range by the values [M] that are within `factor` widths of it, until nothing changes."""
    while True:
        width = high - low
        size = torch.maximum(low.abs(), high.abs())
        # A column that has been constant says nothing about how far it may move.
        reach = factor * width if bool(width > 1e-9 * size) else FIRST_FAR * size.clamp(min=1.0)
        inside = (values >= low - reach) & (values <= high + reach)
        if not bool(inside.any()):
            return inside, low, high
        wider = torch.minimum(low, values[inside].min()), torch.maximum(high, values[inside].max())
        if wider == (low, high):
            return inside, low, high
        low, high = wider
