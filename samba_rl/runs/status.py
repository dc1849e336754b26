"""What a waiting run needs next, read from its folder without its system."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from samba_rl.data.journal import Journal
from samba_rl.data.plain import from_plain
from samba_rl.errors import UserError
from samba_rl.runs.extending import budgets_in
from samba_rl.runs.folder import CONFIG, JOURNAL, NEXT, SUMMARY, read_next
from samba_rl.runs.loading import current_config
from samba_rl.runs.lock import held
from samba_rl.runs.summary import TOLD, trials_of
from samba_rl.runs.told import samples_told, told_so_far


@dataclass(frozen=True)
class Status:
    """Where a waiting run stands."""

    state: Literal["ask", "tell", "busy", "finished"]
    """What comes next: ask for a policy, tell the trial that is due, wait for a process that is at work, or nothing."""
    trial: int
    """Number of the trial that is due, or that the next policy will make."""
    told: int
    """Episodes of that trial that are told."""
    episodes: int | None
    """Episodes of that trial in all; None before it was asked for."""
    real_samples: int
    """Steps of the trials that were asked for, so far."""
    budget: int
    """Steps that the run may ask for in all."""
    other_samples: int
    """Steps that were taken in as data, beside the budget."""


def status(folder: Path) -> Status:
    """Return where the waiting run in a folder stands."""
    config = current_config(folder)
    if trials_of(config) != TOLD:
        raise UserError(f"{folder} runs its trials itself; see its state with: samba-rl runs {folder}")
    where = f"{folder / CONFIG}: settings"
    settings = config.get("settings")
    budget = from_plain(int, settings.get("real_samples") if isinstance(settings, dict) else None, where)
    budget = (budget, *budgets_in(folder))[-1]
    journal = Journal.read(folder / JOURNAL)
    asked, others = samples_told(journal)
    content = read_next(folder)
    trial = int(content.get("trial", 0))
    due = from_plain(int, content.get("episodes"), str(folder / NEXT)) if content.get("asked") else None
    told = told_so_far(journal, trial)
    if (folder / SUMMARY).exists():
        return Status("finished", trial, 0, None, asked, budget, others)
    if held(folder):
        return Status("busy", trial, told, due, asked, budget, others)
    if due is not None and told < due:
        return Status("tell", trial, told, due, asked, budget, others)
    return Status("ask", trial + (due is not None), 0, None, asked, budget, others)
