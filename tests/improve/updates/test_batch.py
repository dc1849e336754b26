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


def test_without_constraints_the_lagrangian_is_the_objective_in_its_standard_deviation() -> None:
    assert BATCH.lagrangian.tolist() == pytest.approx([1 / 1.5, -2 / 1.5])
    assert BATCH._replace(objective=torch.full((2,), 7.0)).lagrangian.tolist() == [0, 0]


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_scales_of_cost_and_safety_cost_do_not_matter(scale: float) -> None:
    tails = torch.tensor([[1.0, 0.5]])
    plain = BATCH._replace(tails=tails, multipliers=(3.0,), units=(0.6,))
    dear = plain._replace(objective=scale * BATCH.objective)
    harmful = plain._replace(tails=scale * tails, units=(scale * 0.6,))
    for other in (dear, harmful):
        assert torch.allclose(other.lagrangian, plain.lagrangian)


@pytest.mark.parametrize("shift", [-7.0, 1e3])
def test_a_shift_of_the_cost_does_not_change_the_balance(shift: float) -> None:
    """A shift of all advantages by the same amount moves the Lagrangian as a whole; updates subtract its mean."""
    plain = BATCH._replace(tails=torch.tensor([[1.0, 0.5]]), multipliers=(3.0,), units=(0.6,))
    moved = plain._replace(objective=BATCH.objective + shift)
    about = [batch.lagrangian - batch.lagrangian.mean() for batch in (plain, moved)]
    assert torch.allclose(about[0], about[1], atol=1e-4)


def test_constraints_are_weighed_by_their_multipliers_by_their_units() -> None:
    batch = BATCH._replace(
        tails=torch.tensor([[1.0, 0.0], [0.5, 4.0]]), multipliers=(3.0, 0.5), units=(10.0, 5.0)
    )  # fmt: skip
    # (objective / 1.5 + 3 / 10 · first + 0.5 / 5 · second) / (1 + 3 + 0.5)
    expected = [(1 / 1.5 + 0.3 + 0.05) / 4.5, (-2 / 1.5 + 0.4) / 4.5]
    assert batch.lagrangian.tolist() == pytest.approx(expected)


def test_a_large_multiplier_makes_no_large_advantage() -> None:
    batch = BATCH._replace(tails=torch.tensor([[1.0, 0.5]]), multipliers=(1e9,), units=(1.0,))
    assert batch.lagrangian.tolist() == pytest.approx([1.0, 0.5])


def test_every_constraint_needs_a_multiplier() -> None:
    with pytest.raises(ValueError, match="longer"):
        _ = BATCH._replace(tails=torch.ones(1, 2)).lagrangian


def test_without_units_the_lagrangian_is_the_plain_sum() -> None:
    tails = torch.tensor([[1.0, 0.0], [0.5, 4.0]])
    batch = BATCH._replace(tails=tails, multipliers=(3.0, 0.5), units=None)
    assert batch.lagrangian.tolist() == pytest.approx([1 + 3 + 0.25, -2 + 2])
    assert BATCH._replace(units=None).lagrangian.tolist() == [1, -2]
