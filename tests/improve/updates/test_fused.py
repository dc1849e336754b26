"""The networks' kernel on a GPU against the same losses without it."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest
import torch

from samba_rl.capture import Recorder
from samba_rl.improve.advantages import Critics
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.batch import Batch
from samba_rl.improve.updates.proximal import ProximalUpdate
from tests.improve.updates.batches import PLAIN, a_batch, numbers
from tests.traces import seeded, simple_policy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CUDA = torch.device("cuda")


def parts(actions: int) -> tuple[GaussianPolicy, Critics]:
    policy = simple_policy(3, actions, hidden=(32, 20), mean_bound=1.1).to(CUDA)
    return policy, Critics(3, 4, (20, 32), seeded(1)).to(CUDA)


def on_the_gpu(batch: Batch) -> Batch:
    names = ("inputs", "raw", "objective", "tails", "critic_inputs", "targets")
    inputs, raw, objective, tails, critic_inputs, targets = (getattr(batch, name).to(CUDA) for name in names)
    return Batch(inputs, raw, objective, tails, critic_inputs, targets)


@pytest.mark.parametrize("loss", ["squared", "clipped"])
@pytest.mark.parametrize("actions", [1, 2])
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_the_kernel_agrees_with_the_layers(loss: Literal["squared", "clipped"], actions: int, recorded: bool) -> None:
    settings = dataclasses.replace(PLAIN, epochs=4, minibatch=500, critic_loss=loss)
    found = []
    for fused in (True, False):
        policy, critics = parts(actions)
        update = ProximalUpdate(policy, critics, settings)
        if not recorded:
            update.recorder = Recorder(torch.device("cpu"))
        if not fused:
            update._actor.fused = update.regression.networks.fused = None
        generator = torch.Generator(CUDA).manual_seed(0)
        for seed in range(3):
            report = update(on_the_gpu(a_batch(simple_policy(3, actions, hidden=(4,)), 990 + seed, 3, seed)), generator)
        assert not update.recorder.refused
        found.append((numbers(policy), numbers(critics), torch.tensor([report.kl, *report.critic_loss])))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-3)
