"""Bounded minimisation by L-BFGS, shared by the fits of all kinds of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Objective: TypeAlias = Callable[[Vector], tuple[float, Vector]]
"""Maps parameters [k] to a value and its gradient [k]."""


def minimise(
    objective: Objective, start: Vector, bounds: Vector, *, iterations: int, tolerance: float
) -> tuple[Vector, float]:
    """Minimise the objective from `start` [k] inside `bounds` [k, 2]; return the minimum and its value.

    Raise ValueError if the search ends at parameters that are not finite or at a higher value than it began with.
    """
    from scipy.optimize import minimize

    before = objective(start)[0]
    options = {"maxiter": iterations, "ftol": tolerance, "gtol": 1e-5}
    result = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    if not (np.isfinite(result.x).all() and result.fun <= before):
        raise ValueError(f"the objective went from {before:.4g} to {result.fun:.4g}")
    return result.x, float(result.fun)
