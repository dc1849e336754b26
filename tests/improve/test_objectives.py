from __future__ import annotations

from typing import get_args

import pytest
import torch

from samba_rl import UserError
from samba_rl.improve.objectives import OBJECTIVES, ObjectiveName, cost, information
from tests.traces import by_hand


def test_the_cost_is_what_the_steps_cost() -> None:
    traces = by_hand([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], lengths=[3, 1])
    assert cost(traces).tolist() == [[1, 2, 3], [4, 0, 0]]


def test_information_is_minimised_with_a_minus_sign() -> None:
    traces = by_hand([[1.0, 2.0]], zeta=[[0.5, 0.25]])
    assert information(traces).tolist() == [[-0.5, -0.25]]
    assert torch.equal(OBJECTIVES["safety"](traces), traces.safety.sum(-1))
    assert torch.equal(OBJECTIVES["cost"](traces) + OBJECTIVES["information"](traces), traces.cost - traces.zeta)  # type: ignore[operator]


def test_information_of_traces_without_zeta_is_refused() -> None:
    with pytest.raises(UserError, match="these traces carry no ζ"):
        information(by_hand([[1.0]]))


def test_every_name_has_its_objective() -> None:
    assert set(OBJECTIVES) == set(get_args(ObjectiveName))
