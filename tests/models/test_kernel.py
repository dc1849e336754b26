import math

import pytest
import torch

from samba_rl import UserError
from samba_rl.models.kernel import _in_place, factorise, kernel, scaled
from tests.traces import seeded


def test_kernel_by_hand_and_far_away() -> None:
    a, b = torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[1.0, 2.0], [1e9, -1e300]]]).double()
    signal = torch.tensor([4.0]).double()
    value = kernel(scaled(a[0].double(), torch.ones(1, 2).double()), scaled(b[0], torch.ones(1, 2).double()), signal)
    assert value[0, 0].tolist() == pytest.approx([4 * math.exp(-2.5), 0.0])


def test_jitter_is_escalated_until_the_factor_exists() -> None:
    ones = torch.ones(1, dtype=torch.float64)
    singular = torch.ones(1, 5, 5, dtype=torch.float64)
    factor, jitter = factorise(singular, 0 * ones, ones)
    assert jitter > 0 and bool(torch.isfinite(factor).all())
    _, none = factorise(singular, 0.1 * ones, ones)
    assert none == 0
    with pytest.raises(UserError, match="has no Cholesky factor even with jitter"):
        factorise(singular * math.nan, ones, ones)


@pytest.mark.parametrize("transpose", [False, True])
def test_an_accelerators_triangular_product_is_the_product(transpose: bool) -> None:
    rows = torch.randn(2, 5, 50, generator=seeded(0), dtype=torch.float64)
    lower = torch.randn(2, 50, 50, generator=seeded(1), dtype=torch.float64).tril()
    expected = rows @ (lower.mT if transpose else lower)
    for blocks in (1, 3):
        assert torch.allclose(_in_place(rows, lower, transpose=transpose, blocks=blocks), expected)
