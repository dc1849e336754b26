"""The critics' regression: both losses by hand, and how well critics learn."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest
import torch
from torch import Tensor

from samba_rl.improve.advantages import Critics
from samba_rl.improve.updates.minibatches import Order
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.regression import CriticRegression
from tests.traces import seeded

PLAIN = ProximalSettings(clip=0.2, max_gradient_norm=1e9)


def regress(
    critics: Critics, inputs: Tensor, targets: Tensor, settings: ProximalSettings, epochs: int
) -> tuple[float, ...]:
    """Make passes over the whole batch and return the losses after them."""
    with torch.no_grad():
        regression = CriticRegression(critics, settings).of(inputs, targets)
        for _ in range(epochs):
            regression.epoch(Order((inputs.shape[1],), None, None))
        return tuple(regression.losses().tolist())


def line_critic(rate: float, kind: Literal["squared", "clipped"], epochs: int = 2) -> tuple[float, float, float]:
    """Train a critic w·x, from w = 0, to say x at x = ±1; return its w, its last gradient and its loss."""
    critics = Critics(1, 1, (), seeded(0))
    with torch.no_grad():
        critics.weights[0].zero_()
    x = torch.tensor([[[1.0], [-1.0]]])
    settings = dataclasses.replace(PLAIN, critic_rate=rate, critic_loss=kind)
    (loss,) = regress(critics, x, x[..., 0], settings, epochs)
    gradient = critics.weights[0].grad
    assert gradient is not None
    return critics.weights[0].item(), gradient.item(), loss


def test_the_squared_loss_by_hand() -> None:
    # The gradient of (w - 1)² is 2(w - 1); Adam's first step is the rate itself.
    w, gradient, loss = line_critic(0.5, "squared", epochs=1)
    assert (w, gradient, loss) == pytest.approx((0.5, -2.0, 0.25), rel=1e-4)
    assert line_critic(0.5, "squared")[1] == pytest.approx(-1.0, rel=1e-4)
    assert line_critic(1.5, "squared")[1] == pytest.approx(1.0, rel=1e-4)


def test_the_clipped_loss_by_hand() -> None:
    """From 0 the value may go to 0.2, where the loss is 0.64; only a greater loss still has a gradient."""
    assert line_critic(0.5, "clipped", epochs=1)[1] == pytest.approx(-2.0, rel=1e-4)  # at first as the squared loss
    assert line_critic(0.1, "clipped")[1] == pytest.approx(2 * (0.1 - 1), rel=1e-4)  # within the clip as well
    assert line_critic(0.5, "clipped")[1] == 0  # (0.5 - 1)² = 0.25
    assert line_critic(1.5, "clipped")[1] == 0  # (1.5 - 1)² = 0.25
    assert line_critic(2.0, "clipped")[1] == pytest.approx(2.0, rel=1e-4)  # (2 - 1)² = 1


def test_critics_learn_targets_in_their_own_units_and_report_how_well() -> None:
    critics = Critics(2, 4, (), seeded(1))
    x = torch.randn(2, 200, 4, generator=seeded(0))
    targets = torch.stack([20 + 3 * x[0, :, 0] - x[0, :, 1], 0.5 + 0.2 * x[1, :, 2]])
    losses = regress(critics, x, targets, dataclasses.replace(PLAIN, critic_rate=0.05), 400)
    error = (critics.values(x) - targets).square().mean(1)
    assert float((error / targets.var(1)).max()) < 1e-3
    assert losses == pytest.approx((error / targets.var(1, correction=0)).tolist(), rel=0.05, abs=1e-6)


def test_minibatches_keep_inputs_and_targets_together() -> None:
    """Shuffled passes over minibatches learn a function that mixed-up rows could not teach."""
    critics = Critics(1, 1, (), seeded(1))
    x = torch.linspace(-1, 1, 90)[None, :, None]
    with torch.no_grad():
        regression = CriticRegression(critics, dataclasses.replace(PLAIN, critic_rate=0.05)).of(x, 3 * x[..., 0])
        for i in range(100):
            regression.epoch(Order((30, 30, 30), torch.randperm(90, generator=seeded(i)), None))
        assert float(regression.losses()) < 1e-4


@pytest.mark.parametrize("kind", ["squared", "clipped"])
def test_a_critic_with_nothing_to_learn_rests_and_the_others_learn_as_without_it(
    kind: Literal["squared", "clipped"],
) -> None:
    inputs = torch.randn(3, 40, 2, generator=seeded(1))
    targets = torch.stack([inputs[0].sum(-1), torch.full((40,), 5.0), inputs[2].prod(-1)])
    three, two, live = Critics(3, 2, (6,), seeded(0)), Critics(2, 2, (6,), seeded(0)), torch.tensor([0, 2])
    with torch.no_grad():
        for all_, some in zip(three.parameters(), two.parameters(), strict=True):
            some.copy_(all_[live])
    before = [parameter.clone() for parameter in three.parameters()]
    settings = dataclasses.replace(PLAIN, critic_loss=kind, max_gradient_norm=0.1)
    losses = regress(three, inputs, targets, settings, 5)
    assert losses == pytest.approx((*regress(two, inputs[live], targets[live], settings, 5)[:1], 0.0, losses[2]))
    for all_, some, first in zip(three.parameters(), two.parameters(), before, strict=True):
        assert torch.allclose(all_[live], some, atol=1e-6) and torch.equal(all_[1], first[1])
        assert not torch.equal(all_[0], first[0])
    assert torch.equal(three.values(inputs)[1], targets[1])
