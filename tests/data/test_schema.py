from typing import Any

import pytest

from samba_rl import UserError
from samba_rl.data import Schema
from tests.data.examples import SCHEMA


def test_columns() -> None:
    assert SCHEMA.columns == (
        *("episode", "step", "terminated", "x:θ", "x:θ̇", "u:torque", "next:θ", "next:θ̇", "cost"),
        *("safety:hazard", "safety:wall, left", "violation:hazard", "violation:wall, left"),
    )


@pytest.mark.parametrize(
    ("states", "actions", "constraints", "message"),
    [
        ((), ("u",), ("c",), r"states = \(\); give at least one"),
        (("x",), "u", ("c",), "actions = 'u'; give at least one name, as a tuple"),
        (("x",), ("u", ""), ("c",), "actions has the name ''"),
        (("x",), ("u",), (3,), "constraints has the name 3"),
        (("x\0",), ("u",), ("c",), "give non-empty text without NUL"),
        (("x\ud800",), ("u",), ("c",), "not valid Unicode"),
        (("x", "x"), ("u",), ("c",), "two columns 'x:x'"),
        (("x",), ("u",), ("c", "c"), "two columns 'safety:c'"),
    ],
)
def test_bad_schemas(states: Any, actions: Any, constraints: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Schema(states, actions, constraints)
