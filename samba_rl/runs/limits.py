"""Limits that a finished run does not keep: on the model, or on the real system as its evaluation measured it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from samba_rl.data.plain import from_plain
from samba_rl.runs.evaluation import HALF_WIDTH, Evaluation, read_evaluations
from samba_rl.runs.folder import SUMMARY, read_json

Standing = Literal["kept", "unclear", "broken"]
"""What a measurement says of a limit. unclear: the value is above it, but its 95 % interval is not."""


def standing(value: float, limit: float, half_width: float | None) -> Standing:
    """Return what a measured value says of a limit; without half the width of its interval it is taken as it is."""
    if value <= limit:
        return "kept"
    return "unclear" if half_width is not None and value - half_width <= limit else "broken"


def beside(value: float, limit: float) -> str:
    """Return a value with three digits, or with as many as it takes to see on which side of the limit it lies."""
    for digits in range(3, 17):
        shown = f"{value:.{digits}g}"
        if (float(shown) > limit) == (value > limit):
            return shown
    return repr(value)


def measured(evaluation: Evaluation, i: int) -> tuple[str, Standing]:
    """Return constraint i of an evaluation in words, such as "0.52 ± 0.08", and whether its limit is kept."""
    one = evaluation.constraints[i]
    half = None if evaluation.errors is None else HALF_WIDTH * evaluation.errors.constraints[i]
    shown = beside(one.value, one.limit)
    return shown if half is None else f"{shown} ± {half:.2g}", standing(one.value, one.limit, half)


class Breach(NamedTuple):
    """A limit that a policy does not keep."""

    words: str
    """Description with the numbers."""
    expected: bool = False
    """Whether the limit cannot be met on the model, and the policy keeps to the target that was set instead."""


def breaches(summary: Mapping[str, object], evaluation: Evaluation | None) -> list[Breach]:
    """Return the limits that a run's policy does not keep, from its summary and, if there is one, its evaluation."""
    measured = [] if evaluation is None else measured_breaches(evaluation, targets_of(summary))
    return [*_on_model(summary), *measured]


def breaches_in(folder: Path) -> list[Breach]:
    """Return the limits that the policy of the finished run in a folder does not keep."""
    both = read_evaluations(folder)
    return breaches(read_json(folder / SUMMARY), None if both is None else both[0])


def measured_breaches(evaluation: Evaluation, targets: Sequence[float] = ()) -> list[Breach]:
    """Return the limits whose 95 % interval lies above them; `targets` are the values that the learner aimed at."""
    found = []
    constraints = evaluation.constraints
    errors = () if evaluation.errors is None else evaluation.errors.constraints[: len(constraints)]
    for one, error, target in zip_longest(constraints, errors, targets[: len(constraints)]):
        if error is None or not one.value - HALF_WIDTH * error > one.limit:
            continue
        words = (
            f"{one.words} is measured above its limit: {beside(one.value, one.limit)} ± {HALF_WIDTH * error:.2g}, "
            f"limit {one.limit:g}"
        )
        expected = False
        if target is not None and target > one.limit:
            words += f", which cannot be met on the model; the target is {target:.3g}"
            expected = one.value - HALF_WIDTH * error <= target
        found.append(Breach(words, expected))
    return found


def targets_of(summary: Mapping[str, object]) -> list[float]:
    """Return the value that a run aimed at for each constraint, from its summary."""
    return [_number(row, "target") for row in _rows(summary)]


def _on_model(summary: Mapping[str, object]) -> list[Breach]:
    if summary.get("limit_kept") is not False:
        return []
    found = []
    for row in _rows(summary):
        limit, bound, most = (_number(row, name) for name in ("limit", "bound", "accepted"))
        if not bound <= most:
            words = f"{row.get('constraint')} is bounded by {beside(bound, most)} on the model"
            found.append(Breach(f"{words}; {most:.3g} is accepted, limit {limit:g}"))
    return found or [Breach("a limit is not kept on the model")]


def _rows(summary: Mapping[str, object]) -> list[Mapping[str, object]]:
    rows = summary.get("constraints")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _number(row: Mapping[str, object], name: str) -> float:
    """Return a number of a summary, which may have been edited; NaN if it is missing."""
    number: float = from_plain(float, row.get(name), f"{SUMMARY}: {name}")
    return number
