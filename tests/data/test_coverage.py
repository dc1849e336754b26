"""Coverage: representatives, the radius that counts as seen, and distances."""

from __future__ import annotations

import pytest
import torch

from samba_rl import UserError
from samba_rl.data.coverage import Coverage
from tests.traces import double, seeded


def test_distances_are_to_the_nearest_representative_in_units_of_the_data() -> None:
    # Two episodes on a line, at 0, 1, 2 and 0.1, 1.1, 2.1; a second component never changes and counts in halves.
    seen = double([[0.0, 5], [1, 5], [2, 5], [0.1, 5], [1.1, 5], [2.1, 5]])
    found = Coverage.of(seen, torch.tensor([0, 0, 0, 1, 1, 1]), points=6, constant=double([1, 0.5]))
    spread = float(seen[:, 0].std(correction=0))
    assert found.scale.tolist() == pytest.approx([spread, 0.5])
    # Every step has a step of the other episode at a distance of 0.1.
    assert found.radius == pytest.approx(0.1 / spread)
    queries = double([[1.0, 5], [2.3, 5], [1.0, 5 + 0.5 * 3 * 0.1 / spread]])
    assert found.distance(queries).tolist() == pytest.approx([0, 2, 3], abs=1e-9)
    assert found.distance(queries[1]).shape == () and found.distance(queries[None]).shape == (1, 3)


def test_representatives_reach_the_ends_of_the_data_before_its_middle_is_filled() -> None:
    many = torch.cat([0.01 * torch.randn(500, 1, generator=seeded(0), dtype=torch.float64), double([[9.0], [-9]])])
    found = Coverage.of(many, torch.arange(502), points=3)
    assert sorted(round(value) for value in found.points[:, 0].tolist()) == [-9, 0, 9]


def test_equal_observations_are_represented_once_and_leave_a_positive_radius() -> None:
    found = Coverage.of(torch.ones(50, 2, dtype=torch.float64), torch.zeros(50), points=10)
    assert len(found.points) == 1 and found.radius > 0
    assert float(found.distance(torch.ones(2))) == 0 and float(found.distance(torch.zeros(2))) > 1e3


def test_one_in_a_hundred_steps_of_a_fresh_episode_lies_beyond_the_edge() -> None:
    """Episodes are circles of random radii; fresh ones are drawn from the same distribution, others are larger."""

    def circles(n: int, seed: int, size: float = 1.0) -> torch.Tensor:
        radii = size * (1 + torch.rand(n, 1, generator=seeded(seed), dtype=torch.float64))
        angles = torch.arange(30, dtype=torch.float64) / 30 * 6.28 + 6.28 * torch.rand(
            n, 1, generator=seeded(seed + 1), dtype=torch.float64
        )
        return torch.stack([radii * angles.cos(), radii * angles.sin()], dim=-1)

    data = circles(20, 0).reshape(-1, 2)
    found = Coverage.of(data, torch.arange(20).repeat_interleave(30))
    fresh, beyond = (float((found.distance(c) > 1).double().mean()) for c in (circles(500, 7), circles(500, 7, 2.0)))
    assert 0.001 < fresh < 0.04 and beyond > 0.5
    assert float((found.distance(data) > 1).double().mean()) < 0.01


def test_too_few_points_are_refused() -> None:
    with pytest.raises(UserError, match="1 representative points of 3 observations; give at least 2"):
        Coverage.of(torch.zeros(3, 1), torch.zeros(3), points=1)
