"""Constraints of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from samba_rl import UserError, register_constraint
from samba_rl.improve.constraints import KINDS, Constraint, CVaR, Expectation


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    before = dict(KINDS)
    yield
    KINDS.clear()
    KINDS.update(before)


def test_a_kind_is_known_by_its_label_and_a_later_one_replaces_it() -> None:
    class Peak(Expectation):  # type: ignore[misc]
        label = "peak"

    assert register_constraint(Peak) is Peak and KINDS["peak"] is Peak
    again: Any = type("Peak", (Expectation,), {"label": "peak"})
    register_constraint(again)
    assert KINDS["peak"] is again


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (int, "is no constraint; derive a class from samba_rl.Constraint"),
        (3, "is no constraint"),
        (CVaR, "is called 'cvar', which is taken"),
        (type("Own", (Expectation,), {"label": "none"}), "is called 'none', which is taken"),
        (type("Own", (Expectation,), {"label": "two words"}), "has the label 'two words'"),
        (type("Half", (Constraint,), {"label": "half"}), "the constraint Half lacks amounts, contributions"),
    ],
)
def test_what_is_no_constraint_is_refused(kind: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        register_constraint(kind)
