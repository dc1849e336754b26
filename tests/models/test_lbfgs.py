from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.optimize

from samba_rl.models.lbfgs import Vector, minimise

BOUNDS = np.array([[-1.0, 1.0], [-5.0, 5.0]])


def bowl(at: Vector) -> tuple[float, Vector]:
    """A paraboloid with its minimum at (2, 3)."""
    off = at - np.array([2.0, 3.0])
    return float(off @ off), 2 * off


def valley(at: Vector) -> tuple[float, Vector]:
    """Rosenbrock's function."""
    return float(scipy.optimize.rosen(at)), scipy.optimize.rosen_der(at)


def test_the_minimum_is_found_inside_the_bounds() -> None:
    at, value = minimise(bowl, np.zeros(2), BOUNDS, iterations=50, tolerance=1e-9)
    assert at.tolist() == pytest.approx([1.0, 3.0], abs=1e-5) and value == pytest.approx(1.0)


def test_iterations_and_tolerance_limit_the_search() -> None:
    def value(iterations: int, tolerance: float) -> float:
        box = np.array([[-5.0, 5.0]] * 2)
        return minimise(valley, np.array([-1.0, 2.0]), box, iterations=iterations, tolerance=tolerance)[1]

    assert value(100, 1e-12) == pytest.approx(0, abs=1e-6)
    assert value(3, 1e-12) > 0.1 and value(100, 0.5) > 0.1


@pytest.mark.parametrize("end", [(np.array([math.nan, 0.0]), 0.0), (np.zeros(2), 14.0), (np.zeros(2), math.nan)])
def test_a_search_that_ends_badly_is_an_error(end: tuple[Vector, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def minimize(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(x=end[0], fun=end[1])

    monkeypatch.setattr(scipy.optimize, "minimize", minimize)
    with pytest.raises(ValueError, match=f"the objective went from 13 to {end[1]:.4g}"):
        minimise(bowl, np.zeros(2), BOUNDS, iterations=50, tolerance=1e-9)
