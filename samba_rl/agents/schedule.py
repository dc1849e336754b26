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

    def finishes(self, spent: int, *, last: bool) -> bool:
        """Return whether the improvement that begins finishes the policy.

        It begins after the `last` trial, or after another one with so many real samples spent.
        """
        return not self._finished(spent) if last else self._confirms and self._to_come(spent) == 1

    def controls(self, spent: int, *, last: bool) -> int:
        """Return the control iterations of the improvement that begins with so many real samples spent."""
        each, finishing = self.settings.updates
        if last:
            return 0 if self._finished(spent) else finishing
        return each + (finishing if self.finishes(spent, last=False) else 0)

    def progress(self, work: Improvement, spent: int) -> float:
        """Return the share of the planned control iterations that is done, with so many real samples spent."""
        each, finishing = self.settings.updates
        to_come = 0 if work.last else self._to_come(spent)
        left = max(0, work.planned - work.control) + max(0, to_come - 1) * each
        left += (to_come > self._confirms) * finishing
        return max(0.0, 1 - left / (self._own_trials * each + finishing))

    def starts(self, count: int, spent: int) -> int:
        """Return `count` after the trial that has spent half of the real samples, else 0."""
        half, trial = self.settings.real_samples / 2, self.settings.episodes * self.horizon
        return count if spent - trial < half <= spent else 0

    @property
    def _confirms(self) -> bool:
        """Return whether the last trial confirms the policy, rather than the first one being the last."""
        return self.settings.confirms and self._own_trials > 0

    def _finished(self, spent: int) -> bool:
        """Return whether the policy made the last trial: not in a run that is ended before its budget is spent."""
        return self._confirms and not self._to_come(spent)

    @property
    def _own_trials(self) -> int:
        """Return the number of trials of the policy if every episode lasts to its horizon."""
        return self._to_come(self.settings.first.samples)

    def _to_come(self, spent: int) -> int:
        """Return how many trials are still to come with so many real samples spent."""
        return self._trials_in(self.settings.real_samples - spent)

    def _trials_in(self, samples: int) -> int:
        """Return how many trials of whole episodes fit in so many real steps."""
        return -(-(samples // self.horizon) // self.settings.episodes)
