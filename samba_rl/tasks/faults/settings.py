"""Settings for failures of the real system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from samba_rl.ranges import Count, In


@dataclass(frozen=True)
class RealSettings:
    """Reaction to failures of the real system (NaN, a wrong shape, an exception, no answer) and to outliers."""

    on_fault: Literal["pause", "continue"] = "pause"
    """Reaction to a failed episode, which is kept up to the failure and learned from. pause: stop the run, to be
    resumed once the system works again. continue: go on with the next trial."""
    faults_in_a_row: Count = 3
    """Number of consecutive trials with a fault after which the run pauses in any case."""
    timeout: Annotated[float, In("(0, 1e6]")] | None = None
    """Time limit for one reset or step, in seconds; None means no limit."""
    outliers: Literal["aside", "keep"] = "aside"
    """Treatment of steps whose measurements lie far outside of everything measured so far, or that the model
    contradicts. aside: keep them in the data, do not learn from them, and say so. keep: learn from them."""
