"""Limits that a run does not keep, on the model and as measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samba_rl.data.plain import to_plain
from samba_rl.errors import UserError
from samba_rl.improve.results import ConstraintResult
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.evaluation import Evaluation, StandardErrors, read_evaluations
from samba_rl.runs.folder import EVALUATION, SUMMARY
from samba_rl.runs.limits import Breach, breaches, breaches_in, measured_breaches
from samba_rl.runs.listing import overview
from samba_rl.runs.manifest import seal
from tests.benchmark.results import an_evaluation

TAIL, MEAN = "CVaR 0.9 of the edge cost of a trajectory", "mean of the edge cost of a trajectory"


def evaluation(*measured: tuple[float, float], limit: float = 0.75) -> Evaluation:
    """An evaluation with these values of its constraints and their standard errors."""
    results = tuple(
        ConstraintResult("x", words, value, limit) for (value, _), words in zip(measured, (TAIL, MEAN), strict=False)
    )
    errors = StandardErrors(1, 1, 1, 1, (1, 1, 1), 1, 1, tuple(error for _, error in measured))
    return replace(an_evaluation(), constraints=results, errors=errors)


def row(**changes: Any) -> dict[str, Any]:
    return {"constraint": TAIL, "limit": 0.75, "target": 0.64, "bound": 1.2, "accepted": 0.73, **changes}


def summary(*rows: dict[str, Any], kept: bool | None = False) -> dict[str, Any]:
    return {"constraints": list(rows), "limit_kept": kept}


# On the model ---------------------------------------------------------------------------------------------------------


def test_a_bound_above_what_is_accepted_is_said_with_the_numbers() -> None:
    fine = row(constraint=MEAN, bound=0.5)
    assert breaches(summary(fine, row()), None) == [
        Breach(f"{TAIL} is bounded by 1.2 on the model; 0.73 is accepted, limit 0.75")
    ]
    assert len(breaches(summary(row(), row()), None)) == 2


@pytest.mark.parametrize("kept", [True, None])
def test_without_a_verdict_against_it_the_model_says_nothing(kept: bool | None) -> None:
    assert breaches(summary(row(), kept=kept), None) == []
    # As versions before the verdict wrote it.
    assert breaches({"constraints": [{"constraint": TAIL, "limit": 0.75}]}, None) == []


def test_a_bound_that_is_not_a_number_is_a_breach_too() -> None:
    """NaN and infinity are null and text in the file."""
    for bound, shown in ((None, "nan"), ("inf", "inf")):
        (one,) = breaches(summary(row(bound=bound)), None)
        assert f"bounded by {shown} on the model" in one.words and not one.expected


def test_a_verdict_without_numbers_is_told_all_the_same() -> None:
    assert breaches({"limit_kept": False}, None) == [Breach("a limit is not kept on the model")]


# As measured ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "broken"),
    [
        (0.70, 0.0, False),
        (0.75, 0.0, False),
        (0.76, 0.0, True),
        (0.80, 0.03, False),  # 0.80 - 1.96 · 0.03 = 0.741
        (0.80, 0.02, True),
        (2.50, 1.00, False),
    ],
)
def test_a_value_is_above_its_limit_if_its_whole_interval_is(value: float, error: float, broken: bool) -> None:
    assert bool(measured_breaches(evaluation((value, error)))) is broken


def test_the_words_have_value_interval_and_limit() -> None:
    (one,) = breaches(summary(row(target=0.75), kept=None), evaluation((2.0, 0.1)))
    assert one == Breach(f"{TAIL} is measured above its limit: 2 ± 0.2, limit 0.75")


def test_each_limit_counts() -> None:
    found = measured_breaches(evaluation((0.5, 0.1), (2.0, 0.1)))
    assert [one.words.split(" is ")[0] for one in found] == [MEAN]


@pytest.mark.parametrize(("value", "expected"), [(2.6, True), (2.9, True), (3.2, False)])
def test_a_limit_that_cannot_be_met_is_expected_to_be_broken_up_to_its_target(value: float, expected: bool) -> None:
    (one,) = measured_breaches(evaluation((value, 0.2)), [2.6])
    assert one.expected is expected
    assert one.words.endswith("limit 0.75, which cannot be met on the model; the target is 2.6")


def test_a_target_below_the_limit_changes_nothing() -> None:
    """The margin between them is there for errors of the model."""
    assert measured_breaches(evaluation((0.70, 0.0)), [0.64]) == []
    assert measured_breaches(evaluation((0.80, 0.0)), [0.64]) == measured_breaches(evaluation((0.80, 0.0)))
    assert measured_breaches(evaluation((0.80, 0.0)), [math.nan]) == measured_breaches(evaluation((0.80, 0.0)))


def test_without_standard_errors_nothing_is_said() -> None:
    """A single episode, or a file of version 0.1."""
    assert measured_breaches(replace(evaluation((9.0, 0.1)), errors=None)) == []
    assert measured_breaches(an_evaluation(), [0.3]) == []


# In a folder ----------------------------------------------------------------------------------------------------------


def write(folder: Path, name: str, value: Any) -> None:
    """Write a file as a run does, with the checksums that are due."""
    plain = to_plain(value)
    content = json.dumps(signed(plain) if name == EVALUATION else plain).encode()
    if name == SUMMARY:
        seal(folder, content)
    (folder / name).write_bytes(content)


def test_a_folder_is_read(folder: Path) -> None:
    told = json.loads((folder / "summary.json").read_text())
    write(folder, "summary.json", {**told, **summary(row(target=0.75), kept=True)})
    assert read_evaluations(folder) is None and breaches_in(folder) == []
    assert (overview(folder).limit_kept, overview(folder).missed) == (True, ())
    bad, fine = evaluation((2.0, 0.1)), evaluation((0.5, 0.1))
    write(folder, "evaluation.json", {"with_noise": fine, "without_noise": bad})
    # The limit is one of the policy with its noise.
    assert read_evaluations(folder) == (fine, bad) and breaches_in(folder) == []
    write(folder, "evaluation.json", {"with_noise": bad, "without_noise": fine})
    (one,) = breaches_in(folder)
    assert (overview(folder).limit_kept, overview(folder).missed) == (False, (one.words,))
    write(folder, "summary.json", {**told, **summary(row(target=2.6), kept=None)})
    assert (overview(folder).limit_kept, overview(folder).missed) == (None, ())
    write(folder, "summary.json", {**told, **summary(row(bound="much"))})
    with pytest.raises(UserError, match=r"summary.json: bound is 'much'; it must be a number"):
        breaches_in(folder)
    assert overview(folder).state == "damaged"
