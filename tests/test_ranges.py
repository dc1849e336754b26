"""Ranges of settings: every field has one, and it is the one that is checked and shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import pytest
from hypothesis import given, strategies as st

from samba_rl.agents.settings import ModelBasedSettings, ModelFreeSettings, Settings
from samba_rl.errors import UserError
from samba_rl.improve.limits import FurtherConstraint, MultiplierSettings
from samba_rl.improve.policies import PolicySettings
from samba_rl.learners import LEARNERS
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.settings import GPSettings
from samba_rl.planet.planner import PlannerSettings
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import PRESETS, make_settings
from samba_rl.ranges import In, check, check_value, range_in
from samba_rl.tasks import TASKS, make_task
from tests.fuzz.ranges import FAMILIES, lies_in
from tests.fuzz.trees import changed, leaves

# Intervals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "words"),
    [
        ("(0, 1]", [1e-300, 0.5, 1], [0, -1, 1.0001, math.nan, math.inf], "above 0 and at most 1"),
        ("[0, 1)", [0, 0.999], [1, -1e-9, math.nan], "at least 0 and below 1"),
        ("[0, inf)", [0, 1e308], [math.inf, -math.inf, math.nan, -1], "at least 0 and finite"),
        ("(1, inf]", [2, math.inf], [1, math.nan], "above 1 (or inf)"),
        ("[1, 1e9]", [1, 10**9], [0, 10**9 + 1, 10**400], "at least 1 and at most 1e9"),
    ],
)
def test_an_interval(interval: str, inside: list[float], outside: list[float], words: str) -> None:
    assert all(value in In(interval) for value in inside) and not any(value in In(interval) for value in outside)
    assert In(interval).in_words == words


@given(st.floats(allow_nan=True), st.floats(-5, 5), st.floats(-5, 5), st.sampled_from("[("), st.sampled_from("])"))
def test_an_interval_is_what_mathematics_means_by_it(value: float, a: float, b: float, left: str, right: str) -> None:
    low, high = sorted((a, b))
    above = value >= low if left == "[" else value > low
    below = value <= high if right == "]" else value < high
    assert (value in In(f"{left}{low!r}, {high!r}{right}")) is (above and below)


One: TypeAlias = Annotated[float, In("[0, 1]")]
Two: TypeAlias = Annotated[float, In("(0, inf]")]


def test_the_range_of_a_type_is_found_inside_it() -> None:
    assert range_in(One) == "[0, 1]" and range_in(One | None) == "[0, 1]"
    assert range_in(tuple[One, ...]) == range_in(tuple[One, One]) == "[0, 1]"
    assert range_in(tuple[One, Two]) == "[0, 1], (0, inf]"
    assert range_in(bool) == range_in(Literal["on", "off"]) == ""


# Trees ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    share: Annotated[float, In("[0, 1]")] = 0.5
    maybe: Annotated[int, In("[1, 9]")] | None = None
    sizes: tuple[Annotated[int, In("[1, 9]")], ...] = (3,)
    pair: tuple[float, float] = (1.0, 2.0)
    how: Literal["fast", "slow"] = "fast"
    name: str = ""
    flag: bool = True

    def misfits(self) -> Iterator[tuple[str, str]]:
        if self.pair[0] > self.pair[1]:
            yield "pair", "in ascending order"


@dataclass(frozen=True)
class Outer:
    count: int = 1
    inner: Inner = field(default_factory=Inner)
    more: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Outer(count=True), "count = True: must be a whole number"),
        (Outer(count=1.0), "count = 1.0: must be a whole number"),  # type: ignore[arg-type]
        (Outer(count="1"), "count = '1': must be a whole number"),  # type: ignore[arg-type]
        (Outer(inner=Inner(share=math.nan)), "inner.share = nan: must be at least 0 and at most 1"),
        (Outer(inner=Inner(share="0.5")), "inner.share = '0.5': must be a number"),  # type: ignore[arg-type]
        (Outer(inner=Inner(share=False)), "inner.share = False: must be a number"),
        (Outer(inner=Inner(share=None)), "inner.share = None: must be a number"),  # type: ignore[arg-type]
        (Outer(inner=Inner(share=10**5000)), "inner.share = about 10^5000: must be at least 0 and at most 1"),
        (Outer(inner=Inner(maybe=0)), "inner.maybe = 0: must be at least 1 and at most 9"),
        (Outer(inner=Inner(sizes=(3, 0))), "inner.sizes.1 = 0: must be at least 1 and at most 9"),
        (Outer(inner=Inner(sizes=[3])), "inner.sizes = [3]: must be a tuple"),  # type: ignore[arg-type]
        (Outer(inner=Inner(pair=(1.0,))), "inner.pair = (1.0,): must be a tuple of 2"),  # type: ignore[arg-type]
        (Outer(inner=Inner(pair=(2.0, 1.0))), "inner.pair = (2.0, 1.0): must be in ascending order"),
        (Outer(inner=Inner(how="fsat")), "inner.how = 'fsat': did you mean 'fast'?"),  # type: ignore[arg-type]
        (Outer(inner=Inner(how=1)), "inner.how = 1: must be one of fast, slow"),  # type: ignore[arg-type]
        (Outer(inner=Inner(name="\ud800")), "inner.name = '\\ud800': must be text without null characters and lone"),
        (Outer(inner=Inner(name="a\0")), "inner.name = 'a\\x00': must be text without"),
        (Outer(inner=Inner(name="x" * 300 + "\0")), "inner.name = '" + "x" * 79 + "...: must be text without"),
        (Outer(inner=Inner(flag=1)), "inner.flag = 1: must be True or False"),  # type: ignore[arg-type]
        (Outer(inner=3), "inner = 3: must be Inner(...)"),  # type: ignore[arg-type]
        (Outer(more=(Inner(), Inner(share=2))), "more.1.share = 2: must be at least 0 and at most 1"),
    ],
)
def test_the_first_wrong_value_of_a_tree_is_named_by_its_path(wrong: Outer, message: str) -> None:
    with pytest.raises(UserError) as error:
        check(wrong)
    assert str(error.value).startswith(message)


def test_a_path_must_be_a_name_that_a_file_can_have() -> None:
    check_value(Path, Path("ζ\udcff"), "out")  # bytes that are not UTF-8, as Linux allows them
    check_value(Path | None, None, "out")
    for name in ("\ud800", "a\0"):
        with pytest.raises(UserError, match=r"^out = '.*': must be a name that a file can have$"):
            check_value(Path | None, Path(name), "out")


def test_right_values_pass() -> None:
    check(Outer(3, Inner(1, 9, (), (1, 1), "slow", "ζ", flag=False), (Inner(0),)))
    with pytest.raises(UserError, match=r"^group\.share = 2: "):
        check(Inner(share=2), "group.")


# Settings -------------------------------------------------------------------------------------------------------------

FAMILY = {
    "ModelBasedSettings": ModelBasedSettings(more_constraints=(FurtherConstraint(),)),
    "ModelFreeSettings": ModelFreeSettings(more_constraints=(FurtherConstraint(),)),
    "PlanetSettings": PlanetSettings(),
}


@pytest.mark.parametrize("family", FAMILY)
def test_every_number_among_the_settings_has_a_range(family: str) -> None:
    optional = {"real.timeout", "weights.least_cost_weight", "first.stop", "first.data_dt"}
    numbers = {
        path for path, value in leaves(FAMILY[family]).items() if type(value) in (int, float) or path in optional
    }
    assert numbers == set(FAMILIES[family])


CASES = [(family, path) for family, ranges in FAMILIES.items() for path in ranges]


RELATED = (
    "at most initial =",
    "at most cap =",
    "at most candidates =",
    "adaptive schedule",
    "set both to 0",
    "in ascending",
    "at least first.samples =",
)
"""Parts of errors about settings that do not fit others."""


def refusal(settings: Settings, path: str, value: float) -> str:
    """The error that a value is refused with; empty if it is accepted."""
    try:
        changed(settings, path, value)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("family", "path"), CASES)
def test_a_setting_accepts_what_lies_in_its_range_and_nothing_else(family: str, path: str) -> None:
    interval, settings = FAMILIES[family][path], FAMILY[family]
    low, _, high, _ = interval
    whole = isinstance(leaves(settings)[path], int)
    finite = [value for value in (-1, 0, 10**30, low, high, low - 1, high + 1) if math.isfinite(value)]
    for value in finite:
        exact = int(value) if whole else float(value)
        why = refusal(settings, path, exact)
        if lies_in(exact, interval):
            assert not why or any(part in why for part in RELATED)
        else:
            assert why.startswith(f"{path} = ") and (": must be at least " in why or ": must be above " in why)
    for value in (math.nan, math.inf, -math.inf):
        why = refusal(settings, path, value)
        if whole or not lies_in(value, interval):
            assert why.startswith(f"{path} = {value}: must be ")


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_within_their_ranges(learner: str, preset: str) -> None:
    for task in (*TASKS, ""):
        settings = make_settings(task, learner, preset)
        ranges = FAMILIES[type(settings).__name__]
        for path, value in leaves(settings).items():
            assert path not in ranges or value is None or lies_in(value, ranges[path])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"multiplier": MultiplierSettings(floor=2.0, initial=1.0)}, "multiplier.floor = 2.0: must be at most initial"),
        ({"multiplier": MultiplierSettings(initial=60.0)}, "multiplier.initial = 60.0: must be at most cap = 50.0"),
        ({"multiplier": MultiplierSettings(cap=math.inf)}, "multiplier.cap = inf: must be finite with the adaptive"),
        ({"multiplier": MultiplierSettings(initial=0, floor=0)}, "multiplier.initial = 0: must be above 0 with the"),
        ({"policy": PolicySettings(std_floor=0.0)}, "policy.std_floor = 0.0: must be above 0 if std_floor_first is"),
        ({"policy": PolicySettings(std_floor_first=0.0)}, "policy.std_floor_first = 0.0: must be above 0 if std_floor"),
        (
            {"model": GPSettings(fit=FitSettings(noise_bounds=(1.0, 0.1)))},
            "model.fit.noise_bounds = (1.0, 0.1): must be in ascending order",
        ),
    ],
)
def test_settings_must_fit_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        ModelBasedSettings(**settings)
    assert str(error.value).startswith(message)


def test_planners_have_no_more_elites_than_candidates() -> None:
    with pytest.raises(UserError, match=r"^planner\.elites = 2000: must be at most candidates = 1000$"):
        PlanetSettings(planner=PlannerSettings(elites=2000))


@pytest.mark.parametrize(
    "family", [ModelBasedSettings, ModelFreeSettings, PlanetSettings], ids=lambda family: str(family.__name__)
)
def test_copies_are_checked_too(family: type[Settings]) -> None:
    with pytest.raises(UserError, match=r"^episodes = 0: must be at least 1 and at most 1e9$"):
        replace(family(), episodes=0)


def test_settings_of_a_model_are_checked_where_they_are_used_alone() -> None:
    with pytest.raises(UserError, match=r"^model\.fit\.iterations = 0: "):
        GPDynamics(make_task("safe-pendulum"), GPSettings(fit=FitSettings(iterations=0)))
