"""Settings for a real system that fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from samba_rl.errors import UserError


@dataclass(frozen=True)
class RealSettings:
    """What is done when the real system fails: NaN, infinity, a wrong shape, an error, no answer."""

    on_fault: Literal["pause", "continue"] = "pause"
    """The episode is kept up to there and learned from. pause: then the run stops, to be resumed when the system is in
    order. continue: it goes on with the next trial."""
    faults_in_a_row: int = 3
    """After this many trials with a fault, one behind the other, the run pauses in any case."""
    timeout: float | None = None
    """Seconds within which a reset or a step must answer. None: it is waited for."""

    def __post_init__(self) -> None:
        if self.faults_in_a_row < 1:
            raise UserError(f"real.faults_in_a_row = {self.faults_in_a_row}; it must be at least 1")
        if self.timeout is not None and not self.timeout > 0:
            raise UserError(f"real.timeout = {self.timeout}; give a positive number of seconds, or leave it out")
