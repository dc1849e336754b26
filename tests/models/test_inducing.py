import numpy as np
import pytest
import torch

from samba_rl.models.inducing import choose
from samba_rl.models.kernel import scaled
from samba_rl.models.likelihood import Hyper

HYPER = Hyper(
    torch.tensor([[0.9, 1.3], [1.7, 0.6]], dtype=torch.float64),
    torch.tensor([1.2, 0.7], dtype=torch.float64),
    torch.tensor([2e-2, 5e-3], dtype=torch.float64),
)


def test_inducing_inputs_are_greedy_in_the_conditional_variance() -> None:
    inputs = 1.5 * torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = scaled(inputs, HYPER.lengthscales)
    picks, used = choose(z, HYPER, 12)
    assert bool(used.bool().all())
    for d in range(2):
        x, signal = z[d].numpy(), float(HYPER.signal[d])
        gram = signal * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1))
        chosen = picks[d].tolist()
        for step in range(1, 12):
            have = chosen[:step]
            left = gram.diagonal() - (gram[have] * np.linalg.solve(gram[np.ix_(have, have)], gram[have])).sum(0)
            assert left[chosen[step]] == pytest.approx(left.max(), abs=1e-10)
    assert picks[0].tolist() != picks[1].tolist()
    assert torch.equal(picks, choose(z, HYPER, 12)[0])
