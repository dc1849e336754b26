"""The policy-gradient agent: the policy that it hands over, a stranded policy, and the multiplier of a projection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from samba_rl.agents.experience import Imagination
from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.settings import ImaginationSettings, ModelBasedSettings, ModelFreeSettings
from samba_rl.events import Event
from samba_rl.improve.limits import ConstraintSettings, MultiplierSettings
from samba_rl.improve.policies import GaussianPolicy, PolicySettings
from samba_rl.improve.shield import Shield
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.proximal import ProximalUpdate
from samba_rl.tasks.rollout import RealSource, rollout
from tests.agents.agents import COST_ALONE, PLAIN, agent_of, improvements, notices, real, same_policy
from tests.line import Line, quick_settings, spend
from tests.threads import one_thread
from tests.traces import double, last_layer, seeded


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


# The last policy ------------------------------------------------------------------------------------------------------

SPEEDS = (0.1, 0.2, 0.3, 0.35, 0.4)
"""Speeds of the policies after five control iterations, the faster the cheaper; beyond 0.2 they are unsafe."""
AVERAGE = 0.1 * 0.95**4 + 0.05 * (0.2 * 0.95**3 + 0.3 * 0.95**2 + 0.35 * 0.95 + 0.4)
"""Moving average of these speeds."""


def going_at(
    speeds: tuple[float, ...], settings: ModelBasedSettings, patch: pytest.MonkeyPatch
) -> tuple[Agent, list[Event]]:
    """Return an agent whose updates give its policy these speeds, on a model that knows the truth; the goal is 1."""
    remaining = iter(speeds)

    def go(update: Any, batch: Batch, generator: Generator) -> UpdateReport:
        policy: GaussianPolicy = update._policy
        with torch.no_grad():
            last_layer(policy).weight.zero_()
            last_layer(policy).bias.fill_(next(remaining))
        return UpdateReport(0.0, 0.0, 0, (0.0, 0.0))

    patch.setattr(ProximalUpdate, "__call__", go)
    patch.setattr(Imagination, "_source", lambda self, zeta, starts=None, share=1: RealSource(self._task.world()))
    still = PolicySettings(hidden=(8,), std=1e-3, std_floor_first=1e-3, std_floor=1e-3, mean_bound=None)
    return agent_of(Line(goal=1.0), COST_ALONE, replace(settings, policy=still))


def chosen_speed(
    speeds: tuple[float, ...], limit: float, patch: pytest.MonkeyPatch, *, candidates: int = 3, last: bool = True
) -> float:
    """Return the speed of the policy that `ask` gives, on a model that knows the truth; the goal is 1."""
    settings = replace(
        PLAIN,
        constraint=ConstraintSettings(limit=limit),
        multiplier=MultiplierSettings(margin=0.0),
        imagination=ImaginationSettings(len(speeds), len(speeds), 20, candidates=candidates, starts=0, confirm="off"),
    )
    agent, _ = going_at(speeds, settings, patch)
    agent.tell(real(1))
    policy = agent.ask(last=last)
    assert isinstance(policy, GaussianPolicy) and same_policy(policy, agent.policy)
    return round(float(policy.mean_action(double([[0.0]]))), 6)


@pytest.mark.parametrize(
    ("speeds", "limit", "expected"),
    [
        # The first, third and fifth are kept, and the average of all; of those within the limit it is the cheapest.
        (SPEEDS, 0.05, AVERAGE),
        ((0.1, 0.9, 0.2, 0.9, 0.4), 0.05, 0.2),  # the cheaper of two within it
        ((0.4, 0.1, 0.35, 0.1, 0.9), 0.01, 0.35),  # none of the kept ones is: the safest
        (SPEEDS, 50.0, 0.4),
    ],
)
def test_the_last_policy_is_the_best_of_every_second_one(
    speeds: tuple[float, ...], limit: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen_speed(speeds, limit, monkeypatch) == pytest.approx(expected)


def test_with_one_candidate_the_last_policy_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_speed(SPEEDS, 0.05, monkeypatch, candidates=1) == pytest.approx(0.4)


def test_before_the_last_ask_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shield, "best", lambda *_, **__: pytest.fail("there is nothing to choose from"))
    assert chosen_speed(SPEEDS, 0.05, monkeypatch, last=False) == pytest.approx(0.4)


@pytest.mark.parametrize(("most", "speeds", "made"), [(1.0, 16, 8), (1.5, 16, 12), (3.0, 9, 12)])
def test_improvement_goes_on_while_the_cost_falls(
    most: float, speeds: int, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each policy is faster, and thus cheaper, than the last one, until the speeds are used up.
    series = tuple(0.03 * min(step, speeds) for step in range(1, 33))
    imagination = replace(PLAIN.imagination, iterations=8, trajectories=1000, most=most)
    agent, events = going_at(series, replace(PLAIN, imagination=imagination), monkeypatch)
    agent.tell(real(1))
    agent.ask()
    assert [each.control for each in improvements(events)] == list(range(1, made + 1))


# A policy that is stranded --------------------------------------------------------------------------------------------


def test_a_policy_where_the_cost_is_flat_starts_afresh_for_the_cost_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, events = agent_of(learner="samba", settings=PLAIN)
    agent.tell(real(2))
    agent.ask()
    before = agent.policy
    assert not notices(events)
    monkeypatch.setattr(Line, "_cost", lambda self, x, u: torch.ones_like(x[:, 0]))
    agent.tell(real(1, seed=1))
    events.clear()
    policy = agent.ask()
    assert notices(events) == ["the policy is stranded where the cost is flat: it starts afresh, for the cost alone"]
    assert [each.lambda_pi for each in improvements(events)] == [1.0, 1.0]
    # Another network, not the old one a little further on.
    assert isinstance(policy, GaussianPolicy)
    first, old = policy.network[0].weight, before.actor.network[0].weight
    assert isinstance(first, Tensor) and isinstance(old, Tensor) and float((first - old).detach().abs().max()) > 0.3


def test_after_the_first_trial_and_where_the_cost_varies_no_policy_starts_afresh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, events = agent_of()
    spend(agent)
    assert not notices(events)
    monkeypatch.setattr(Line, "_cost", lambda self, x, u: torch.ones_like(x[:, 0]))
    fresh, events = agent_of()
    fresh.tell(real(1))
    fresh.ask()
    assert not notices(events)


# The multiplier of a projection ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1e3, 0.0),  # far from the limit the constraint weighs nothing
        (0.0, 7.0),  # out of reach nothing else does: the cap
    ],
)
def test_a_projection_reports_the_multiplier_that_its_step_found(limit: float, expected: float) -> None:
    """No schedule has a say in it."""
    settings = quick_settings("cpo")
    assert isinstance(settings, ModelFreeSettings)
    settings = replace(
        settings,
        constraint=replace(settings.constraint, limit=limit),
        multiplier=replace(settings.multiplier, cap=7.0, initial=3.0),
        trust_region=replace(settings.trust_region, kl=1e-6),
    )
    agent, events = agent_of(learner="cpo", settings=settings, seed=1)
    agent.tell(real(3))
    agent.tell(rollout(Line().world(), agent.ask(), 40, generator=seeded(1)))
    agent.ask()
    (report,) = improvements(events)
    assert report.multipliers == agent.multipliers.values == (expected,)
