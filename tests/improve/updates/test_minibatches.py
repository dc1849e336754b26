"""Minibatches: plain ones, and those that other steps fill up without an effect."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

from samba_rl.improve.updates.minibatches import Minibatches, mean, spread
from tests.traces import seeded

CPU = torch.device("cpu")


@given(st.integers(1, 500), st.integers(1, 600))
def test_minibatches_are_of_nearly_equal_size_and_cover_all_steps(count: int, wanted: int) -> None:
    sizes = Minibatches(count, wanted, CPU).sizes
    assert sum(sizes) == count and max(sizes) - min(sizes) <= 1
    assert len(sizes) == max(1, round(count / wanted))


def test_a_single_minibatch_needs_no_order() -> None:
    generator = seeded(0)
    before = generator.get_state()
    assert Minibatches(5, 5, CPU).draw(generator).rows is None
    assert torch.equal(generator.get_state(), before)
    rows = Minibatches(5, 2, CPU).draw(generator).rows
    assert rows is not None and sorted(rows.tolist()) == [0, 1, 2, 3, 4]


def test_tensors_are_cut_and_reordered_together() -> None:
    a, b = torch.arange(6), 10 * torch.arange(6)
    order = Minibatches(6, 3, CPU).draw(seeded(0))
    assert order.rows is not None
    parts = [part for _, part in order.parts([a, b], dim=0)]
    assert [each.tolist() for each, _ in parts] == [order.rows[:3].tolist(), order.rows[3:].tolist()]
    assert all(torch.equal(10 * x, y) for x, y in parts)


@settings(max_examples=30)
@given(st.integers(1, 3000), st.integers(1, 2000))
def test_what_fills_up_weighs_nothing(count: int, wanted: int) -> None:
    """The weighed sums over filled minibatches are the means over plain ones with the same order."""
    values = torch.arange(float(count))
    plain, filled = (Minibatches(count, wanted, CPU, fill=fill) for fill in (False, True))
    tensors = filled.filled([values], 0)
    assert all(len(each) % 1024 == 0 for each in tensors) and set(tensors[0].tolist()) == set(values.tolist())
    orders = plain.draw(seeded(1)), filled.draw(seeded(1))
    expected = [float(mean(part, share)) for share, (part,) in orders[0].parts([values], 0)]
    found = [float(mean(part, share)) for share, (part,) in orders[1].parts(tensors, 0)]
    assert found == pytest.approx(expected, rel=1e-5)
    ((share, (whole,)),) = filled.whole.parts(tensors, 0)
    assert float(mean(whole, share)) == pytest.approx(float(values.mean()), rel=1e-5)
    ((share, (whole,)),) = plain.whole.parts([values], 0)
    assert share is None and torch.equal(whole, values)


def test_shares_by_hand() -> None:
    values = torch.tensor([[1.0, 3.0, 100.0]])
    share = torch.tensor([0.5, 0.5, 0.0])
    assert mean(values, share).tolist() == [2.0] and mean(values[:, :2], None).tolist() == [2.0]
    assert spread(values, share).tolist() == [[0.5, 1.5, 0.0]] and spread(values[:, :2], None).tolist() == [[0.5, 1.5]]
