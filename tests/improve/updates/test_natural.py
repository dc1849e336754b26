"""The natural-gradient update: one step of the policy, and the regression of the critics beside it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from samba_rl.improve.advantages import Critics
from samba_rl.improve.updates.batch import Batch
from samba_rl.improve.updates.natural import NaturalStep, NaturalUpdate
from samba_rl.improve.updates.proximal import ProximalSettings
from tests.traces import seeded

SETTINGS = ProximalSettings(epochs=40, minibatch=30, critic_rate=0.05)


class Stepper:
    """Records the batches that it is given, and the floor of the standard deviation at each."""

    def __init__(self, *, accepted: bool = True) -> None:
        self.std_floor, self.accepted = 0.2, accepted
        self.calls: list[tuple[Batch, float]] = []

    def step(self, batch: Batch) -> NaturalStep:
        self.calls.append((batch, self.std_floor))
        return NaturalStep(0.01, self.accepted, nu=3.0)


def a_batch(n: int = 90) -> Batch:
    x = torch.randn(1, n, 2, generator=seeded(0))
    nothing = torch.zeros(n, 1)
    return Batch(nothing, nothing, nothing[:, 0], torch.zeros(0, n), x, 3 * x[..., 0] + 5)


@pytest.mark.parametrize("accepted", [True, False])
def test_one_step_is_taken_and_reported(accepted: bool) -> None:
    stepper = Stepper(accepted=accepted)
    update = NaturalUpdate(stepper, Critics(1, 2, (), seeded(0)), SETTINGS)
    batch = a_batch()
    report = update(batch, seeded(0))
    assert [given for given, _ in stepper.calls] == [batch]
    assert (report.kl, report.clipped, report.epochs, report.nu) == (0.01, 0.0, int(accepted), 3.0)


def test_the_critics_learn_whether_or_not_the_policy_moves() -> None:
    for accepted in (True, False):
        critics = Critics(1, 2, (), seeded(0))
        report = NaturalUpdate(Stepper(accepted=accepted), critics, SETTINGS)(a_batch(), seeded(0))
        assert report.critic_loss[0] < 1e-2
        batch = a_batch()
        assert torch.allclose(critics.values(batch.critic_inputs), batch.targets, atol=0.5)


def test_the_floor_is_passed_on() -> None:
    stepper = Stepper()
    update = NaturalUpdate(stepper, Critics(1, 2, (), seeded(0)), dataclasses.replace(SETTINGS, epochs=1))
    assert update.std_floor == 0.2
    update.std_floor = 0.7
    update(a_batch(), seeded(0))
    assert stepper.calls[0][1] == 0.7


def test_the_generator_decides_on_the_minibatches_alone() -> None:
    def learned(seed: int) -> torch.Tensor:
        critics = Critics(1, 2, (4,), seeded(0))
        NaturalUpdate(Stepper(), critics, dataclasses.replace(SETTINGS, epochs=3))(a_batch(), seeded(seed))
        return torch.cat([parameter.detach().flatten() for parameter in critics.parameters()])

    assert torch.equal(learned(0), learned(0)) and not torch.equal(learned(0), learned(1))


def test_the_only_optimiser_is_that_of_the_critics() -> None:
    critics = Critics(1, 2, (4,), seeded(0))
    (optimiser,) = NaturalUpdate(Stepper(), critics, SETTINGS).optimisers
    assert {id(p) for group in optimiser.param_groups for p in group["params"]} == {id(p) for p in critics.parameters()}
