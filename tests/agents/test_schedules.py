"""What changes over a run: the lower bounds of λ_π and of the policy's noise follow the share of samples spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.events import ImprovementReport
from samba_rl.improve import step
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.step import WeightSettings
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.ranges import unchecked
from tests.agents.agents import PLAIN, agent_of, improvements, real
from tests.line import spend
from tests.threads import one_thread

DONE = ((0 / 8, 1 / 8), (2 / 8, 3 / 8), (4 / 8, 5 / 8), (6 / 8, 7 / 8))
"""Shares of the control iterations of a run that are done before each of them, by improvement."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def run(settings: ModelBasedSettings) -> list[list[ImprovementReport]]:
    """Return the reports of the improvements of a run, whose episodes of 10 steps do not fill the budget."""
    settings = replace(settings, weights=replace(settings.weights, explore=0))
    agent, events = agent_of(learner="samba", settings=replace(settings, real_samples=55, episodes=1))
    spend(agent)
    assert agent.real_samples == 50
    reports = improvements(events)
    return [[each for each in reports if each.iteration == number] for number in range(len(DONE))]


def least_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the gradients ask for information alone, so that λ_π is at its lower bound."""

    def information(gradients: Tensor) -> Tensor:
        return torch.tensor([0.0, 1.0], dtype=torch.float64)

    monkeypatch.setattr(step, "comparable_weights", information)


def test_the_least_weight_of_the_cost_rises_to_one_after_the_last_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    least_weights(monkeypatch)
    found = run(replace(PLAIN, weights=WeightSettings(least_cost_weight=0.4)))
    for reports, done in zip(found[:-1], DONE, strict=False):
        assert [each.lambda_pi for each in reports] == pytest.approx([0.4 + 0.6 * share for share in done])
    assert [each.lambda_pi for each in found[-1]] == [1.0, 1.0]


def test_after_the_last_trial_the_cost_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of the budget is left."""
    least_weights(monkeypatch)
    weights = WeightSettings(least_cost_weight=0.7, explore=0)
    agent, events = agent_of(learner="samba", settings=replace(PLAIN, real_samples=1000, weights=weights))
    agent.tell(real(2))
    agent.ask()
    early = improvements(events)[-1].lambda_pi
    events.clear()
    agent.ask(last=True)
    # One of 98 trials with 2 control iterations each, and 2 at the end.
    assert early == pytest.approx(0.7 + 0.3 * 1 / 198)
    assert [each.lambda_pi for each in improvements(events)] == [1.0] * len(improvements(events)) != []


def test_the_floor_of_the_noise_follows_the_control_iterations() -> None:
    """A policy with less noise than the floor is lifted to it; here the floor rises, so that it always decides."""
    policy = PolicySettings(hidden=(8,), std=0.01, std_floor_first=0.1, std_floor=0.6)
    still = ProximalSettings(policy_rate=1e-9, kl_target=None)
    for reports, done in zip(run(replace(PLAIN, policy=policy, update=still)), DONE, strict=True):
        assert [each.std for each in reports] == pytest.approx([0.1 * 6**share for share in done], rel=1e-4)


def test_the_noise_may_fall_with_its_floor() -> None:
    """The floor of the beginning must not hold to the end."""
    policy = PolicySettings(hidden=(8,), std=0.5, std_floor_first=0.5, std_floor=0.01)
    # A policy that is punished for noise, which a user cannot ask for: it shrinks as fast as the floor lets it.
    eager = ProximalSettings(policy_rate=0.3, epochs=20, entropy=-10.0, kl_target=None, kl_stop=1e9)
    with unchecked():
        found = run(replace(PLAIN, policy=policy, update=eager))
    for reports, done in zip(found, DONE, strict=True):
        assert reports[-1].std == pytest.approx(0.5 * 0.02 ** done[-1], rel=0.05)
