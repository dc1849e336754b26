"""A few seconds of awkward data for the Gaussian process; `fuzz_data.fuzz` runs for as long as you like."""

from __future__ import annotations

from tests.fuzz.fuzz_data import fuzz


def test_awkward_data_are_refused_or_learned_from() -> None:
    assert fuzz(2.0, seed=0) == []
