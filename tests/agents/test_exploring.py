"""A copy of the policy seeks information before each trial; the policy itself minimises the cost alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.step import WeightSettings
from samba_rl.learners import LEARNERS
from samba_rl.models.information import InformationGain
from tests.agents.agents import PLAIN, QUICK, agent_of, improvements, notices, real, same_policy
from tests.threads import one_thread

SEEKING = LEARNERS["samba"].with_zeta(InformationGain())
ALWAYS = WeightSettings(explore=3, worth=-1e9)
NEVER = WeightSettings(explore=3, worth=1e9)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def settings(weights: WeightSettings, base: ModelBasedSettings = PLAIN) -> ModelBasedSettings:
    return replace(base, weights=weights, real_samples=1000)


def test_the_policy_itself_minimises_the_cost_and_its_copy_seeks_information_too() -> None:
    agent, events = agent_of(learner=SEEKING, settings=settings(ALWAYS))
    agent.tell(real(2))
    agent.ask()
    reports = improvements(events)
    assert [each.lambda_pi for each in reports[:2]] == [1, 1] and [each.model_zeta for each in reports[:2]] == [0, 0]
    assert len(reports) == 5 and all(0 < each.lambda_pi < 1 and each.model_zeta > 0 for each in reports[2:])


@pytest.mark.parametrize("base", [PLAIN, QUICK])
def test_the_copy_acts_and_the_policy_goes_on_as_if_there_had_been_none(base: ModelBasedSettings) -> None:
    agent, events = agent_of(learner=SEEKING, settings=settings(ALWAYS, base))
    other, others = agent_of(learner=SEEKING, settings=settings(NEVER, base))
    for one in (agent, other):
        one.tell(real(2))
    acting, itself = agent.ask(), other.ask()
    assert isinstance(acting, GaussianPolicy) and isinstance(itself, GaussianPolicy)
    assert same_policy(agent.policy, other.policy) and same_policy(agent.policy, itself)
    assert not same_policy(acting, agent.policy)
    assert any("a copy of the policy that seeks information makes it" in text for text in notices(events))
    assert not any("a copy of the policy" in text for text in notices(others))
    assert [each.value for each in agent.multipliers.each] == [each.value for each in other.multipliers.each]


def test_a_learner_without_information_has_no_copy() -> None:
    agent, events = agent_of(learner=SEEKING.with_zeta(None), settings=settings(ALWAYS))
    agent.tell(real(2))
    agent.ask()
    assert len(improvements(events)) == 2


def test_nothing_is_sought_after_the_last_trial() -> None:
    agent, events = agent_of(learner=SEEKING, settings=settings(ALWAYS))
    agent.tell(real(2))
    agent.ask(last=True)
    assert {each.lambda_pi for each in improvements(events)} == {1.0}


def test_a_run_that_stops_while_the_copy_seeks_information_goes_on_to_the_same_end() -> None:
    agent, _ = agent_of(learner=SEEKING, settings=settings(ALWAYS, QUICK))
    agent.tell(real(2))
    states = [agent.state_dict() for _ in agent.improve()]
    seeking = [state for state in states if state["improvement"]["base"] is not None]
    assert len(seeking) == 3
    for state in seeking:
        copy = torch.utils._pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, state)
        other, _ = agent_of(learner=SEEKING, settings=settings(ALWAYS, QUICK))
        list(other.load_state_dict(copy, agent.data))
        list(other.improve())
        one, two = agent.acting(), other.acting()
        assert isinstance(one, GaussianPolicy) and isinstance(two, GaussianPolicy)
        assert same_policy(other.policy, agent.policy) and same_policy(one, two)
