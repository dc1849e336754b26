"""Findings of `check_env`, and the list that its checks write them to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    level: Literal["fine", "note", "problem"]
    """Severity: fine, note (unusual but usable) or problem."""
    subject: str
    """Part of the environment that was checked."""
    text: str
    """Explanation in plain words."""


@final
class Findings:
    """Findings in the order in which the checks made them."""

    def __init__(self) -> None:
        self.list: list[Finding] = []

    def problems_of(self, subject: str = "") -> int:
        """Return the number of problems so far, of one subject or (if empty) of all."""
        return sum(finding.level == "problem" and subject in ("", finding.subject) for finding in self.list)

    def fine(self, subject: str, text: str) -> None:
        """Add a check that passed."""
        self.list.append(Finding("fine", subject, text))

    def note(self, subject: str, text: str) -> None:
        """Add something unusual but usable."""
        self.list.append(Finding("note", subject, text))

    def problem(self, subject: str, text: str) -> None:
        """Add a problem that must be solved before the environment can be used."""
        self.list.append(Finding("problem", subject, text))
