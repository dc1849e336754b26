"""The package stays readable: each measure of tests/measures.py within its bound."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from torch import Generator

from samba_rl.algorithm import train
from samba_rl.presets import make_agent, make_settings
from samba_rl.runs.trials import Trials
from samba_rl.tasks import make_task
from tests.measures import PACKAGE, WALK, measures
from tests.threads import one_thread


@pytest.mark.parametrize("what", measures())
def test_a_measure_is_within_its_bound(what: str) -> None:
    value, most = measures()[what]
    assert value <= most


def test_samba_runs_through_every_file_of_the_walk() -> None:
    task = make_task("safe-pendulum")
    agent = make_agent(task, "samba", make_settings(task.name, "samba", "smoke"))
    seen: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        seen.add(frame.f_code.co_filename)

    with one_thread():
        sys.setprofile(note)
        try:
            for _ in train(agent, Trials(task.world()), Generator().manual_seed(0)):
                pass
        finally:
            sys.setprofile(None)
    rows = {"learners.py"}  # the row is a value: it is made when the module is imported
    assert {name for name in WALK if str(PACKAGE / name) not in seen} <= rows
