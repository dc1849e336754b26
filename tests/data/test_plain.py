"""Dataclasses as plain JSON values and back."""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.improve.limits import FurtherConstraint
from samba_rl.learners import LEARNERS
from samba_rl.presets import make_settings


@dataclass(frozen=True)
class Inner:
    number: float = 1.0
    pair: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Outer:
    count: int
    inner: Inner
    many: tuple[Inner, ...] = ()
    choice: Literal["a", "b"] | Literal["c"] = "a"
    maybe: float | None = None
    flag: bool = True
    name: str = ""


@dataclass(frozen=True)
class Renamed:
    new: int

    @staticmethod
    def upgrade(value: Any) -> Any:
        return {"new": value["old"]} if "old" in value else value


def round_trip(value: Any) -> Any:
    return from_plain(type(value), json.loads(json.dumps(to_plain(value), allow_nan=False)), "it")


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("preset", ["default", "paper", "smoke"])
@pytest.mark.parametrize("task", ["", "safe-pendulum", "safe-fetch-reach"])
def test_every_preset_round_trips(task: str, learner: str, preset: str) -> None:
    settings = make_settings(task, learner, preset)
    assert round_trip(settings) == settings


def test_nested_tuples_infinity_and_nan_round_trip() -> None:
    limits = (FurtherConstraint(kind="chance", limit=0.1), FurtherConstraint(of="hazard"))
    settings = ModelBasedSettings(more_constraints=limits)
    assert round_trip(settings) == settings
    outer = Outer(3, Inner(-math.inf), (Inner(), Inner(math.inf, (2.0, 3.0))), "c", 0.5, False, "ζ")
    assert round_trip(outer) == outer
    assert to_plain(Inner(math.nan))["number"] is None
    assert math.isnan(round_trip(Inner(math.nan)).number)


def test_whole_numbers_become_floats_and_missing_fields_take_their_defaults() -> None:
    made = from_plain(Outer, {"count": 1, "inner": {"number": 2}}, "it")
    assert made == Outer(1, Inner(2.0)) and isinstance(made.inner.number, float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 1.5}, "it.count is 1.5; it must be a whole number"),
        ({"count": True}, "it.count is True; it must be a whole number"),
        ({"flag": 1}, "it.flag is 1; it must be true or false"),
        ({"name": None}, "it.name is None; it must be text"),
        ({"inner": 3}, "it.inner is 3; it must be a group of named values"),
        ({"inner": {"nomber": 3}}, "it.inner has no 'nomber'; did you mean 'number'?"),
        ({"inner": {"number": "high"}}, "it.inner.number is 'high'; it must be a number"),
        ({"inner": {"number": False}}, "it.inner.number is False; it must be a number"),
        ({"inner": {"pair": [1]}}, r"it.inner.pair is \[1\]; it must be a list of 2"),
        ({"many": {}}, "it.many is {}; it must be a list"),
        ({"many": [{}, {"pair": [1, "x"]}]}, r"it.many\[1\].pair\[1\] is 'x'; it must be a number"),
        ({"choice": "d"}, "it.choice is 'd'; it must be one of a, b, c"),
        ({"choice": ["a"]}, r"it.choice is \['a'\]; it must be one of a, b, c"),
        ({"maybe": "x"}, "it.maybe is 'x'; it must be a number"),
    ],
)
def test_values_that_do_not_fit_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_plain(Outer, {"count": 1, "inner": {}, **change}, "it")


def test_missing_and_invalid_fields_are_rejected() -> None:
    with pytest.raises(UserError, match="it lacks 'inner'"):
        from_plain(Outer, {"count": 1}, "it")
    with pytest.raises(UserError, match=r"constraint\.limit = -1\.0"):
        from_plain(ModelBasedSettings, {"constraint": {"limit": -1}}, "settings")


def test_a_class_can_translate_the_values_of_an_earlier_version() -> None:
    assert from_plain(Renamed, {"old": 3}, "it") == from_plain(Renamed, {"new": 3}, "it") == Renamed(3)
    assert from_plain(tuple[Renamed, ...], [{"old": 1}, {"new": 2}], "it") == (Renamed(1), Renamed(2))
