"""Objectives as functions of traces."""

from __future__ import annotations

import pytest

from samba_rl import UserError
from samba_rl.improve.objectives import Cost, Information, Objective, Safety
from samba_rl.models.zeta import Entropy, LeaveOneOut
from tests.traces import by_hand


def test_the_cost_is_that_of_the_steps() -> None:
    traces = by_hand([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], lengths=[3, 1])
    assert Cost()(traces).tolist() == [[1, 2, 3], [4, 0, 0]]


def test_information_is_minimised_with_a_minus_sign() -> None:
    traces = by_hand([[1.0, 2.0]], zeta=[[0.5, 0.25]])
    assert Information(LeaveOneOut())(traces).tolist() == [[-0.5, -0.25]]


def test_the_safety_cost_is_summed_over_the_constraints() -> None:
    traces = by_hand(safety=[[[0.5, 0.0], [0.25, 1.0]], [[0.25, 0.0], [0.5, 0.0]]], lengths=[2, 1])
    assert Safety()(traces).tolist() == [[0.75, 0.0], [0.75, 0.0]]


def test_information_of_traces_without_zeta_is_refused() -> None:
    with pytest.raises(UserError, match="these traces carry no ζ"):
        Information(LeaveOneOut())(by_hand([[1.0]]))


def test_every_objective_has_the_word_that_files_use() -> None:
    objectives: tuple[Objective, ...] = (Cost(), Information(Entropy()), Safety())
    assert [one.label for one in objectives] == ["cost", "information", "safety"]


def test_objectives_are_values() -> None:
    assert Cost() == Cost() and len({Cost(), Safety(), Cost()}) == 2
    assert Information(LeaveOneOut()) == Information(LeaveOneOut()) != Information(Entropy())
