"""The measured value of a constraint, and the estimate of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ConstraintResult:
    """The measured value of a constraint, beside its limit."""

    kind: str
    """Short label, such as "CVaR 0.9" or "mean"."""
    words: str
    """Full description, such as "CVaR 0.9 of the hazard cost of a trajectory"."""
    value: float
    """Measured value, in the units of the limit."""
    limit: float
    """Limit that the value should not exceed."""

    @property
    def kept(self) -> bool:
        """Return whether the value is within the limit."""
        return self.value <= self.limit

    @staticmethod
    def upgrade(value: Any) -> Any:
        """Translate the list [words, value, limit] that files of version 0.1 hold."""
        if not (isinstance(value, list) and len(value) == 3):
            return value
        words = str(value[0])
        return {"kind": words.split(" of ")[0], "words": words, "value": value[1], "limit": value[2]}


class Estimate(NamedTuple):
    """The estimated value of a constraint."""

    value: float
    """Mean over the sample, or CVaR of it."""
    error: float
    """Standard error."""
