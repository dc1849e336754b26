"""The schedule of a run: its progress by control iterations, and the moment of fresh starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from samba_rl.agents.first import FirstSettings
from samba_rl.agents.schedule import Schedule
from samba_rl.agents.settings import ImaginationSettings
from samba_rl.improve.gates import Improvement
from tests.agents.agents import PLAIN

SETTINGS = replace(
    PLAIN,
    real_samples=100,
    episodes=2,
    first=FirstSettings(samples=20, how="uniform"),
    imagination=replace(PLAIN.imagination, iterations=5, last_iterations=10),
)
SCHEDULE = Schedule(SETTINGS, horizon=10)
"""After the first trial of 20 steps come four of 20 each: 4 · 5 + 10 = 30 control iterations."""


@pytest.mark.parametrize(
    ("last", "control", "spent", "done"),
    [
        (False, 0, 20, 0),
        (False, 4, 20, 4),
        (False, 7, 20, 5),  # further iterations of a policy that looks too unsafe do not count
        (False, 0, 40, 5),
        (False, 2, 80, 17),
        (True, 0, 100, 20),
        (True, 10, 100, 30),
        (True, 14, 100, 30),
        (False, 0, 35, 5),  # an episode ended early, and four trials still fit: 65 steps are 3 of them and an episode
    ],
)
def test_progress_is_the_share_of_the_planned_control_iterations(
    last: bool, control: int, spent: int, done: int
) -> None:
    planned = 10 if last else 5
    work = Improvement(last, planned=planned, controls=planned, control=control)
    assert SCHEDULE.progress(work, spent) == pytest.approx(done / 30)


def begun(confirm: Literal["on", "off"], last: bool, spent: int, control: int = 0) -> tuple[int, bool, float]:
    """Return the planned control iterations, whether they finish the policy, and the progress in iterations."""
    schedule = Schedule(replace(SETTINGS, imagination=replace(SETTINGS.imagination, confirm=confirm)), horizon=10)
    planned, finishing = schedule.controls(spent, last=last), schedule.finishes(spent, last=last)
    done = schedule.progress(Improvement(last, finishing, planned, planned, control=control), spent)
    return planned, finishing, round(done * 30, 6)


def test_the_policy_is_finished_before_the_last_trial_which_confirms_it() -> None:
    # The last trial of 20 steps follows once 80 are spent.
    found = [begun("on", last, spent) for last, spent in ((False, 20), (False, 60), (False, 80), (True, 100))]
    assert found == [(5, False, 0), (5, False, 10), (15, True, 15), (0, False, 30)]
    assert begun("on", False, 80, 15) == (15, True, 30)
    # In a run that is ended before its budget is spent, nothing has been finished.
    assert begun("on", True, 40) == (10, True, 20)


def test_without_confirmation_it_is_finished_after_the_last_trial() -> None:
    assert [begun("off", last, spent)[:2] for last, spent in ((False, 80), (True, 100))] == [(5, False), (10, True)]


def test_a_first_trial_that_is_the_last_one_confirms_nothing() -> None:
    schedule = Schedule(replace(SETTINGS, real_samples=20, imagination=ImaginationSettings(5, 10)), horizon=10)
    assert schedule.controls(20, last=True) == 10 and schedule.finishes(20, last=True)


def test_fresh_policies_start_once_when_half_of_the_samples_are_spent() -> None:
    assert [SCHEDULE.starts(2, spent) for spent in (20, 40, 60, 80)] == [0, 0, 2, 0]
    assert SCHEDULE.starts(2, 50) == 2 and SCHEDULE.starts(0, 60) == 0
