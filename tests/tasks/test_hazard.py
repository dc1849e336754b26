import math

import pytest
import torch
from hypothesis import given, strategies as st

from samba_rl import AngleHazard, UserError
from samba_rl.tasks.hazard import wrap

DEGREE = math.pi / 180


def degrees(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64) * DEGREE


def test_safety_cost_by_hand() -> None:
    """The paper's hazard: one at 25°, zero at -25° and 75°, linear in between; upright costs a half."""
    cost = AngleHazard().safety(degrees(25, 0, 50, -25, 75, 74, 100, -180, 385))
    assert cost.tolist() == pytest.approx([1, 0.5, 0.5, 0, 0, 0.02, 0, 0, 1], abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_violation_by_hand(dtype: torch.dtype) -> None:
    hazard = AngleHazard()
    unsafe = hazard.violation(hazard.safety(degrees(20, 30, 25, 19.99, 30.01, 0, 380, -340).to(dtype)))
    assert unsafe.tolist() == [True, True, True, False, False, False, True, True]


def test_a_hazard_may_lie_across_the_bottom() -> None:
    hazard = AngleHazard(low=170 * DEGREE, high=190 * DEGREE, margin=10 * DEGREE)
    cost = hazard.safety(degrees(180, -180, 171, -171, 165, -165, 0))
    assert cost.tolist() == pytest.approx([1, 1, 0.55, 0.55, 0.25, 0.25, 0], abs=1e-12)
    assert hazard.violation(cost).tolist() == [True, True, True, True, False, False, False]


@given(st.floats(-50, 50), st.integers(-3, 3))
def test_cost_is_in_range_and_periodic(angle: float, turns: int) -> None:
    hazard = AngleHazard()
    here, there = hazard.safety(torch.tensor([angle, angle + 2 * math.pi * turns], dtype=torch.float64)).tolist()
    assert 0 <= here <= 1
    assert here == pytest.approx(there, abs=1e-9)
    # Inside the unsafe region the cost is above what it is at the region's ends, 0.9.
    wrapped = math.remainder(angle, 2 * math.pi)
    unsafe = bool(hazard.violation(torch.tensor([here], dtype=torch.float64)))
    if abs(wrapped - 20 * DEGREE) > 1e-9 and abs(wrapped - 30 * DEGREE) > 1e-9:
        assert unsafe == (20 * DEGREE <= wrapped <= 30 * DEGREE)


@given(st.floats(-1e3, 1e3))
def test_wrap(angle: float) -> None:
    wrapped = float(wrap(torch.tensor(angle, dtype=torch.float64)))
    assert -math.pi <= wrapped <= math.pi
    assert math.cos(wrapped) == pytest.approx(math.cos(angle), abs=1e-9)
    assert math.sin(wrapped) == pytest.approx(math.sin(angle), abs=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 0.5, "high": 0.3}, r"low = 0\.5 lies above high = 0\.3"),
        ({"low": math.nan}, "low = nan is not a finite angle"),
        ({"high": math.inf}, "high = inf is not a finite angle"),
        ({"margin": -0.1}, r"margin = -0\.1 is negative"),
        ({"margin": 4.0}, "more than the whole circle"),
        ({"low": 0.1, "high": 0.1, "margin": 0.0}, "is empty"),
    ],
)
def test_impossible_hazards_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AngleHazard(**settings)
