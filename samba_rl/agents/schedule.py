"""The schedule of a run: the share of its control iterations that is done, and the moment of fresh starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from samba_rl.agents.settings import PolicyGradientSettings
from samba_rl.improve.gates import Improvement


@final
@dataclass(frozen=True)
class Schedule:
    """The schedule of a run, as far as it follows from the settings and the real samples that are spent."""

    settings: PolicyGradientSettings
    """Settings of the learner."""
    horizon: int
    """Number of steps per episode."""

    def progress(self, work: Improvement, spent: int) -> float:
        """Return the share of the planned control iterations that is done, with so many real samples spent."""
        settings, (each, after_last) = self.settings, self.settings.updates
        to_come = 0 if work.last else self._trials_in(settings.real_samples - spent)
        left = max(0, work.planned - work.control) + max(0, to_come - 1) * each + (to_come > 0) * after_last
        return max(
            0.0, 1 - left / (self._trials_in(settings.real_samples - settings.first.samples) * each + after_last)
        )

    def starts(self, count: int, spent: int) -> int:
        """Return `count` after the trial that has spent half of the real samples, else 0."""
        half, trial = self.settings.real_samples / 2, self.settings.episodes * self.horizon
        return count if spent - trial < half <= spent else 0

    def _trials_in(self, samples: int) -> int:
        """Return how many trials of whole episodes fit in so many real steps."""
        return -(-(samples // self.horizon) // self.settings.episodes)
