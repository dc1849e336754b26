"""The Lagrangian of a batch."""

from __future__ import annotations

import pytest
import torch

from samba_rl.improve.updates.batch import Batch

BATCH = Batch(
    inputs=torch.zeros(2, 1),
    raw=torch.zeros(2, 1),
    objective=torch.tensor([1.0, -2.0]),
    tails=torch.zeros(0, 2),
    critic_inputs=torch.zeros(1, 2, 3),
    targets=torch.zeros(1, 2),
)


def test_without_constraints_the_lagrangian_is_the_objective() -> None:
    assert torch.equal(BATCH.lagrangian, BATCH.objective)


def test_constraints_are_weighed_by_their_multipliers_in_the_unit_of_the_cost() -> None:
    batch = BATCH._replace(
        tails=torch.tensor([[1.0, 0.0], [0.5, 4.0]]), multipliers=(3.0, 0.5), unit=10.0
    )  # fmt: skip
    # (objective + 10 (3 · first + 0.5 · second)) / (1 + 3 + 0.5)
    expected = [(1 + 10 * (3 + 0.25)) / 4.5, (-2 + 10 * 2) / 4.5]
    assert batch.lagrangian.tolist() == pytest.approx(expected)


def test_a_large_multiplier_makes_no_large_advantage() -> None:
    batch = BATCH._replace(tails=torch.tensor([[1.0, 0.5]]), multipliers=(1e9,))
    assert batch.lagrangian.tolist() == pytest.approx([1.0, 0.5])


def test_every_constraint_needs_a_multiplier() -> None:
    with pytest.raises(ValueError, match="longer"):
        _ = BATCH._replace(tails=torch.ones(1, 2)).lagrangian
