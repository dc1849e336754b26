"""Multipliers: both schedules step by step, their bounds, and the relaxed target of a limit out of reach."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings, strategies as st

from samba_rl.improve.constraints import CVaR, Expectation
from samba_rl.improve.limits import MultiplierSettings
from samba_rl.improve.multipliers import Multiplier, Multipliers

DUAL = MultiplierSettings(schedule="dual-ascent", initial=1.0, rate=0.05, reaction=0.0, floor=0.0, cap=20.0, margin=0.0)
ADAPTIVE = MultiplierSettings(
    schedule="adaptive",
    initial=1.0,
    factor=1.2,
    steepness=0.0,
    reaction=0.0,
    tolerance=1.5,
    floor=0.05,
    cap=20.0,
    margin=0.0,
)


def test_dual_ascent_step_by_step() -> None:
    multiplier = Multiplier(DUAL, limit=2.0)
    for measured, expected in (
        (3.0, 1.025),  # half above the limit
        (9.0, 1.075),  # 3.5 times above it, which counts as one
        (2.0, 1.075),
        (1.6, 1.065),
        (0.0, 1.015),
    ):
        multiplier.update(measured)
        assert multiplier.value == pytest.approx(expected)


def test_dual_ascent_on_the_plain_excess() -> None:
    start = dataclasses.replace(DUAL, excess="absolute", cap=math.inf)
    multiplier = Multiplier(start, limit=2.0)
    for measured, expected in ((3.0, 1.05), (102.0, 6.05), (1.0, 6.0), (0.0, 5.9)):
        multiplier.update(measured)
        assert multiplier.value == pytest.approx(expected)
    for _ in range(100):
        multiplier.update(0.0)
    assert multiplier.value == 0
    # Then λ weighs the constraint itself.
    constraints = (CVaR(name="hazard", limit=2.0),)
    assert Multipliers(start, constraints).scales is None and Multipliers(DUAL, constraints).scales == (2.0,)


def test_the_adaptive_schedule_step_by_step() -> None:
    multiplier = Multiplier(ADAPTIVE, limit=1.5)
    for measured, expected in (
        (2.0, 1.2),
        (90.0, 1.44),
        (1.5, 1.44),  # it rests at the limit
        (1.01, 1.44),  # and down to two thirds of the limit
        (0.9, 1.2),
        (0.0, 1.0),
        (0.0, 1 / 1.2),
    ):
        multiplier.update(measured)
        assert multiplier.value == pytest.approx(expected)


def test_a_steep_schedule_moves_faster_the_larger_the_excess() -> None:
    steep = dataclasses.replace(ADAPTIVE, steepness=2.0, cap=1e6)
    for measured, expected in ((1.5, 1.0), (1.65, 1.2**1.2), (1e9, 1.2**3), (0.5, 1.2 ** -(1 + 2 / 3 - 1 / 3))):
        multiplier = Multiplier(steep, limit=1.5)
        multiplier.update(measured)
        assert multiplier.value == pytest.approx(expected)


@pytest.mark.parametrize("start", [DUAL, ADAPTIVE], ids=lambda s: s.schedule)
def test_an_infeasible_limit_does_not_wind_the_multiplier_up(start: MultiplierSettings) -> None:
    multiplier = Multiplier(start, limit=0.75)
    before = multiplier.value
    for _ in range(1000):
        multiplier.update(10.0)
        assert before <= multiplier.value <= start.cap
        before = multiplier.value
    assert multiplier.value == start.cap
    # It keeps no memory of the excess: it continues like one that began at the cap.
    fresh = Multiplier(dataclasses.replace(start, initial=start.cap), limit=0.75)
    for _ in range(5):
        for one in (multiplier, fresh):
            one.update(0.4)
        assert multiplier.value == fresh.value < before
        before = multiplier.value


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([DUAL, ADAPTIVE]), st.lists(st.floats(0, 1e6), max_size=60), st.floats(0, 10), st.floats(1, 3))
def test_the_multiplier_stays_between_its_floor_and_the_cap(
    start: MultiplierSettings, measured: list[float], limit: float, cap: float
) -> None:
    multiplier = Multiplier(dataclasses.replace(start, floor=0.3, cap=cap, rate=0.5), limit)
    for one in measured:
        before = multiplier.value
        multiplier.update(one)
        assert 0.3 <= multiplier.value <= cap
        assert (multiplier.value >= before) if one > limit else (multiplier.value <= before)


@pytest.mark.parametrize("start", [DUAL, ADAPTIVE], ids=lambda s: s.schedule)
def test_after_a_long_peace_it_rises_again_at_once(start: MultiplierSettings) -> None:
    multiplier = Multiplier(start, limit=0.75)
    for _ in range(1000):
        multiplier.update(0.0)
    assert multiplier.value == start.floor
    multiplier.update(10.0)
    assert multiplier.value == pytest.approx(0.05 if start is DUAL else 0.05 * 1.2)


def test_an_immediate_response_comes_and_goes_with_the_excess() -> None:
    multiplier = Multiplier(dataclasses.replace(ADAPTIVE, reaction=2.0), limit=1.0)
    for measured, slow, value in (
        (1.25, 1.2, 1.2 * math.exp(0.5)),
        (0.9, 1.2, 1.2 * math.exp(-0.2)),  # slow rests within the tolerance, the response does not
        (1.0, 1.2, 1.2),
        (9.0, 1.44, 1.44 * math.exp(2.0)),  # the excess counts as one at most
    ):
        multiplier.update(measured)
        assert [multiplier.slow, multiplier.value] == pytest.approx([slow, value])


def test_the_aim_lies_below_the_target_by_the_margin() -> None:
    multiplier = Multiplier(dataclasses.replace(DUAL, margin=0.2), limit=2.0)
    assert [multiplier.target, multiplier.aim] == pytest.approx([2.0, 1.6])
    multiplier.update(1.8)  # below the limit, but an eighth above the aim
    assert multiplier.value == pytest.approx(1 + 0.05 / 8)


def test_caution_lowers_the_aim_by_what_a_bound_exceeds_and_eases_again() -> None:
    multiplier = Multiplier(dataclasses.replace(DUAL, margin=0.2), limit=2.0)
    for bound, caution in (
        (4.0, 0.5),
        (4.0, 0.25),
        (100.0, 0.25),  # its least
        (1.0, 0.3125),  # it eases by a quarter at most
        (0.0, 0.390625),
        (1.9, 0.390625 * 2 / 1.9),
    ):
        multiplier.adapt_caution(bound, 2.0)
        assert multiplier.caution == pytest.approx(caution)
        assert multiplier.aim == pytest.approx(1.6 * caution)
    for _ in range(10):
        multiplier.adapt_caution(0.5, 2.0)
    assert multiplier.caution == 1


def test_the_least_reachable_value_relaxes_the_target() -> None:
    multiplier = Multiplier(dataclasses.replace(DUAL, margin=0.1, slack=0.15), limit=2.0)
    for least, target, aim, infeasible in (
        (None, 2.0, 1.8, False),
        (1.0, 2.0, 1.8, False),  # well within the limit
        (1.9, 2.0, 1.9, False),  # between the usual aim and the limit
        (4.0, 4.6, 4.14, True),
    ):
        multiplier.least = least
        assert [multiplier.target, multiplier.aim] == pytest.approx([target, aim])
        assert multiplier.infeasible is infeasible
    multiplier.update(2.07)  # above the limit, but half the aim
    assert multiplier.value == pytest.approx(1 - 0.05 * 0.5)
    multiplier.update(4.554)  # a tenth above the aim
    assert multiplier.value == pytest.approx(1 - 0.05 * 0.5 + 0.05 * 0.1)
    multiplier.caution = 0.25
    assert multiplier.aim == 4.0  # nothing is gained by aiming at less than can be reached


def test_the_least_reachable_value_relaxes_the_adaptive_target_as_well() -> None:
    multiplier = Multiplier(dataclasses.replace(ADAPTIVE, slack=0.15), limit=0.75)
    multiplier.least = 4.0
    for measured, expected in ((4.5, 1.0), (3.1, 1.0), (3.0, 1 / 1.2), (4.7, 1.0)):
        multiplier.update(measured)
        assert multiplier.value == pytest.approx(expected)


def test_without_slack_an_infeasible_limit_is_pursued_all_the_same() -> None:
    multiplier = Multiplier(dataclasses.replace(DUAL, slack=None), limit=0.75)
    multiplier.least = 4.0
    assert multiplier.infeasible and multiplier.target == 0.75
    multiplier.update(4.0)
    assert multiplier.value == pytest.approx(1.05)


def test_a_multiplier_found_elsewhere_is_taken_up_to_the_cap() -> None:
    multiplier = Multiplier(MultiplierSettings(cap=5.0), 1.0)
    multiplier.adopt(0.25)
    assert multiplier.value == 0.25
    multiplier.adopt(math.inf)
    assert multiplier.value == 5.0


@pytest.mark.parametrize("start", [DUAL, ADAPTIVE], ids=lambda s: s.schedule)
@pytest.mark.parametrize("measured", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_ignored(start: MultiplierSettings, measured: float) -> None:
    multiplier = Multiplier(start, limit=0.75)
    multiplier.update(measured)
    assert multiplier.value == start.initial


def test_a_multiplier_is_restored_from_its_state() -> None:
    multiplier, other = Multiplier(ADAPTIVE, limit=0.75), Multiplier(ADAPTIVE, limit=0.75)
    multiplier.update(2.0)
    for least in (4.0, None):
        multiplier.least = least
        other.load_state_dict(multiplier.state_dict())
        assert other.value == multiplier.value != ADAPTIVE.initial
        assert other.least == least and other.target == multiplier.target


# All of them together -------------------------------------------------------------------------------------------------


def both() -> Multipliers:
    return Multipliers(DUAL, (CVaR(name="hazard", limit=2.0), Expectation(name="wall", limit=0.5, column=1)))


def test_each_constraint_has_its_own_multiplier() -> None:
    multipliers = both()
    assert multipliers.values == (1.0, 1.0) and multipliers.targets == (2.0, 0.5) and multipliers.units == (2.0, 0.5)
    multipliers.update((3.0, 0.25))
    assert multipliers.values == pytest.approx((1.025, 0.975))
    assert multipliers.excess((3.0, 0.25)) == pytest.approx((1.0, -0.25))
    multipliers.each[0].least = 4.0
    assert multipliers.targets == pytest.approx((1.3 * 4.0, 0.5))
    assert multipliers.excess((4.0, 0.5)) == pytest.approx((-1.2, 0.0))


def test_a_target_of_zero_has_a_unit_too() -> None:
    assert Multipliers(DUAL, (CVaR(name="hazard", limit=0.0),)).units == (1.0,)


def test_a_multiplier_that_an_update_found_is_taken() -> None:
    multipliers = Multipliers(DUAL, (CVaR(name="hazard", limit=2.0),))
    multipliers.adopt(0.5)
    assert multipliers.values == (0.5,)
    multipliers.adopt(None)
    assert multipliers.values == (0.5,)
    multipliers.adopt(math.inf)
    assert multipliers.values == (DUAL.cap,)


def test_without_constraints_there_is_nothing_to_do() -> None:
    multipliers = Multipliers(DUAL, ())
    multipliers.update(())
    multipliers.adopt(None)
    assert multipliers.values == multipliers.targets == multipliers.excess(()) == ()
