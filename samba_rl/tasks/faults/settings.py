"""Settings for failures of the real system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from samba_rl.errors import UserError


@dataclass(frozen=True)
class RealSettings:
    """Reaction to failures of the real system (NaN, a wrong shape, an exception, no answer) and to outliers."""

    on_fault: Literal["pause", "continue"] = "pause"
    """Reaction to a failed episode, which is kept up to the failure and learned from. pause: stop the run, to be
    resumed once the system works again. continue: go on with the next trial."""
    faults_in_a_row: int = 3
    """Number of consecutive trials with a fault after which the run pauses in any case."""
    timeout: float | None = None
    """Time limit for one reset or step, in seconds; None means no limit."""
    outliers: Literal["aside", "keep"] = "aside"
    """Treatment of steps whose measurements lie far outside of everything measured so far, or that the model
    contradicts. aside: keep them in the data, do not learn from them, and say so. keep: learn from them."""

    def __post_init__(self) -> None:
        if self.faults_in_a_row < 1:
            raise UserError(f"real.faults_in_a_row = {self.faults_in_a_row}; it must be at least 1")
        if self.timeout is not None and not self.timeout > 0:
            raise UserError(f"real.timeout = {self.timeout}; give a positive number of seconds, or leave it out")
