"""Following a run that another process writes: its events so far, read again and again, and how long it will take."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import final

from samba_rl.data.files import reading_own
from samba_rl.data.plain import from_plain
from samba_rl.errors import UserError
from samba_rl.events import Event, Notice, TrialReport
from samba_rl.runs.folder import KINDS, METRICS

RECENT = 6
"""Number of latest trials from which the remaining time is estimated; they get slower as the model grows."""
_SEEN = 200
"""Number of bytes before the place reached that are compared, to notice that the file was cut and written again."""


@final
class Follower:
    """Reads the events of a run as they are written, without writing or locking anything."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / METRICS
        self.events: list[Event] = []
        """Events so far."""
        self._place, self._before = 0, b""

    def refresh(self) -> bool:
        """Read what was written since the last call; return whether there is anything new."""
        try:
            with reading_own(self._path) as file:
                start = max(0, self._place - _SEEN)
                file.seek(start)
                content = file.read()
        except OSError:
            return False  # a run that is being made has no metrics yet
        known = self._place - start
        if content[:known] != self._before:
            # A resumed run has cut its metrics at the checkpoint, and what follows happens again.
            self.events, self._place, self._before = [], 0, b""
            return self.refresh() or True
        whole = content[known:].rpartition(b"\n")[0]
        if not whole:
            return False
        self.events += [self._event(line) for line in whole.split(b"\n")]
        self._place += len(whole) + 1
        self._before = content[: known + len(whole) + 1][-_SEEN:]
        return True

    def _event(self, line: bytes) -> Event:
        try:
            row = json.loads(line)
            kind = KINDS[row.pop("kind")]
            event: Event = from_plain(kind, row, METRICS)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{self._path} is damaged ({error}); see: samba-rl verify {self._path.parent}") from error
        return event


def seconds_left(events: list[Event], budget: int | None) -> float:
    """Estimate the remaining seconds of a run from its latest trials; NaN while that cannot be known."""
    trials = [event for event in events if isinstance(event, TrialReport)][-RECENT:]
    if budget is None or len(trials) < 2:
        return math.nan
    samples = trials[-1].real_samples - trials[0].real_samples
    each = (trials[-1].seconds - trials[0].seconds) / max(samples, 1)
    since = max(seconds_of(events) - trials[-1].seconds, 0.0)
    return max(each * (budget - trials[-1].real_samples) - since, 0.0)


def seconds_of(events: list[Event]) -> float:
    """Return the seconds from the beginning of a run to its latest event."""
    return max((event.seconds for event in events if not isinstance(event, Notice)), default=0.0)
