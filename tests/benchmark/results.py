"""Results of cells that were never run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from samba_rl.benchmark.cells import Cell, CellResult
from samba_rl.runs.evaluation import Evaluation

PENDULUM, DOUBLE, FETCH = "safe-pendulum", "safe-cart-pole-double-pendulum", "safe-fetch-reach"
SYSTEM = {PENDULUM: "Safe Pendulum", DOUBLE: "Safe Cart-Pole Double Pendulum", FETCH: "Safe Fetch Reach"}


def an_evaluation() -> Evaluation:
    return Evaluation(3, 20.0, 300, 10, -120.0, 4.0, (0.0, 1.0, 2.5), 6.0, 0.9, None, (), 0, deterministic=False)


def a_result(cell: Cell) -> CellResult:
    return CellResult(cell, 600, 7.5, 2, 12.0, "cpu", an_evaluation(), replace(an_evaluation(), deterministic=True))


def result(
    task: str = DOUBLE, learner: str = "samba", seed: int = 0, *, samples: int = 1500, tc: float = 50.0,
    cell: dict[str, Any] | None = None, **evaluation: Any,
) -> CellResult:  # fmt: skip
    noisy = Evaluation(
        TV=10, TC=100.0, steps=10_000, episodes=400, return_mean=-20.0, return_std=1.0,
        safety_quartiles=(0.1, 0.2, 0.3), cvar=0.5, alpha=0.9, limit=None, constraints=(), seed=0, deterministic=False,
    )  # fmt: skip
    still = replace(noisy, TV=9999, TC=9999.0, return_mean=9999.0, deterministic=True)
    return CellResult(
        Cell(task, learner, seed, **(cell or {})), samples, tc, 5, 1.0, "cpu", replace(noisy, **evaluation), still
    )
