"""Grouping of results by limit."""

from __future__ import annotations

from typing import Any

import pytest

from samba_rl.benchmark.groups import limit_of
from tests.benchmark.results import DOUBLE, FETCH, result


@pytest.mark.parametrize(
    ("task", "learner", "cell", "limit"),
    [
        (DOUBLE, "samba", {}, 0.75),
        (DOUBLE, "samba", {"limit": 0.25}, 0.25),
        (DOUBLE, "samba", {"preset": "paper"}, 0.75),  # 30 steps of 0.025
        (FETCH, "samba", {"preset": "paper"}, 0.5),  # 30 steps of 0.0166...
        (DOUBLE, "ppo", {}, None),
        (DOUBLE, "planet-rs", {"limit": 0.25}, None),
        (DOUBLE, "sppo", {"budget_scale": 0.1}, 0.75),
    ],
)
def test_the_limit_is_that_of_a_trajectory(task: str, learner: str, cell: dict[str, Any], limit: float | None) -> None:
    assert limit_of(result(task, learner, cell=cell)) == limit


def test_an_unknown_system_has_the_limit_of_its_evaluation() -> None:
    assert limit_of(result("crane", limit=0.3)) == 0.3
    assert limit_of(result("crane", "mine", limit=None)) is None
