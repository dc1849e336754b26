"""A few seconds of odd environments; `fuzz_environments.fuzz` runs for as long as you like."""

from __future__ import annotations

import pytest

from samba_rl.tasks.faults.timed import one_line
from tests.fuzz.fuzz_environments import fuzz


def test_odd_environments_end_no_run_without_a_word() -> None:
    assert fuzz(2.0, seed=0) == []


@pytest.mark.slow
def test_environments_that_end_their_process_do_not_either() -> None:
    assert fuzz(10.0, seed=0, exits=True) == []


def test_control_characters_in_an_exception_are_escaped() -> None:
    """Found by fuzzing: a message that moved the cursor reached whoever caught the pause."""
    assert one_line(RuntimeError("\x1b[2J it\nbroke")) == "RuntimeError: \\x1b[2J it broke"
