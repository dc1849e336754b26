"""Runs on the line that are stopped, and how to tell whether two runs are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samba_rl.errors import Stopped
from samba_rl.events import Event
from samba_rl.runs import Run, train
from tests.line import Line
from tests.runs.systems import same_bits

SEED = 6


def stopped(folder: Path, after: Callable[[list[Event]], bool], **how: Any) -> list[Event]:
    """A run on the line that is stopped when the events so far say so."""
    heard: list[Event] = []
    how = {"preset": "smoke", "seed": SEED, **how}
    with pytest.raises(Stopped):
        train(how.pop("task", Line()), out=folder, log=heard.append, stop=lambda: after(heard), **how)
    return heard


def reports(events: list[Event], kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in events)


def same(one: Run, other: Run) -> bool:
    mine, due = one.policy.state_dict(), other.policy.state_dict()
    data = vars(other.data.transitions)
    return all(same_bits(mine[name], due[name]) for name in due) and all(
        same_bits(getattr(one.data.transitions, name), values) for name, values in data.items()
    )
