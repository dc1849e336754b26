import math

import pytest
import torch

from samba_rl import UserError
from samba_rl.models.kernel import factorise, kernel, scaled


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
