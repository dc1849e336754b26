"""Formatting of values."""

import math

import pytest

from samba_rl.cli.text import duration, number


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations_are_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words
    assert number(math.nan) == "–" and number(-1.239) == "-1.24"
