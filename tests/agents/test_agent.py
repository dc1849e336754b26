"""Ask and tell: what agents count, keep and report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
import torch

from samba_rl.agents.settings import ModelBasedSettings, ModelFreeSettings
from samba_rl.errors import UserError
from samba_rl.events import Event
from samba_rl.learners import LEARNERS
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import make_agent, make_settings
from samba_rl.tasks.rollout import rollout
from samba_rl.types import Fault, Transitions
from tests.agents.agents import (
    PLAIN,
    QUICK,
    agent_of,
    finished,
    improvements,
    model_of,
    notices,
    real,
    same,
    stripped,
    trials,
)
from tests.line import Line
from tests.threads import one_thread
from tests.traces import by_hand, seeded


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def test_nothing_can_be_asked_before_something_was_told() -> None:
    agent, events = agent_of()
    for attempt in (agent.ask, lambda: agent.ask(last=True), lambda: agent.policy):
        with pytest.raises(UserError, match=r"nothing is known of line yet: tell\(traces\) of a first trial comes bef"):
            attempt()
    assert not events and len(agent.data) == 0


def test_tell_counts_the_steps_that_took_place_their_safety_costs_and_the_unsafe_ones() -> None:
    places = 4 * torch.rand(2, 3, 1, generator=seeded(0), dtype=torch.float64) - 3
    first = by_hand(
        [[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]],
        safety=[[[0.5, 0.0, 1.0], [0.25, 0.0, 9.0]], [[0.0, 0.0, 1.0], [1.0, 0.0, 9.0]]],
        violation=[[[0, 0, 1], [0, 0, 1]], [[0, 0, 1], [1, 0, 1]]],  # the last step counts once, though unsafe twice
        lengths=[3, 2],
        observation=places,
    )
    second = by_hand(
        [[1.0, 1.0]], safety=[[[0.0, 0.5]], [[0.0, 0.0]]], violation=[[[0, 0]], [[0, 0]]], observation=places[:1, :2]
    )
    agent, events = agent_of(Line(constraints=("edge", "wall")))
    agent.tell(first)
    assert (agent.real_samples, agent.iteration, agent.learning_TV) == (5, 0, 2)
    assert agent.learning_TC == pytest.approx(3.75) and len(model_of(agent)) == 5
    agent.tell(second)
    assert (agent.real_samples, agent.iteration, agent.learning_TV) == (7, 1, 2)
    assert agent.learning_TC == pytest.approx(4.25) and len(model_of(agent)) == 7
    one, two = trials(events)
    assert (one.iteration, one.real_samples, one.episodes, one.violations) == (0, 5, 2, 2)
    assert (one.return_mean, one.safety_cost) == pytest.approx((-7.5, 1.875))
    assert (one.learning_TC, one.learning_TV) == pytest.approx((3.75, 2))
    assert (two.iteration, two.real_samples, two.episodes, two.violations) == (1, 7, 1, 0)
    assert (two.return_mean, two.safety_cost) == pytest.approx((-2.0, 0.5))
    assert (two.learning_TC, two.learning_TV) == pytest.approx((4.25, 2))
    assert len(events) == 2 and 0 < one.seconds < two.seconds


def test_all_that_is_told_is_kept_as_it_is() -> None:
    agent, _ = agent_of()
    first, second = real(2), real(3, seed=1)
    agent.tell(first)
    agent.tell(second)
    kept, all_of_them = agent.data.transitions, [first.transitions(), second.transitions(first_episode=2)]
    for f in fields(Transitions):
        assert torch.equal(getattr(kept, f.name), torch.cat([getattr(each, f.name) for each in all_of_them]))
    assert agent.data.episodes == 5 and agent.data.schema.states == ("x",)


def test_a_trial_is_set_beside_what_the_model_had_said_of_it() -> None:
    agent, events = agent_of(learner="samba", settings=PLAIN)
    agent.tell(real(2))
    policy = agent.ask()
    (first,) = trials(events)
    assert math.isnan(first.predicted_return) and math.isnan(first.predicted_safety) and math.isnan(first.surprise)
    said = improvements(events)
    assert [(each.iteration, each.control, each.controls) for each in said] == [(0, 1, 2), (0, 2, 2)]
    for each in said:
        assert each.values[0] >= 0 and each.targets == (0.75,) and each.model_zeta > 0
        assert each.model_return < 0 <= each.model_safety and len(each.critic_loss) == 3 and each.kl >= 0
        assert 0 < each.lambda_pi < 1 and 0 < each.std < 1 and 0 <= each.clipped <= 1
    traces = rollout(Line().world(), policy, 1, generator=seeded(1))
    surprise = model_of(agent).surprise(traces.transitions())
    agent.tell(traces)
    second = trials(events)[1]
    assert (second.predicted_return, second.predicted_safety) == (said[-1].model_return, said[-1].model_safety)
    assert second.surprise == surprise and math.isfinite(surprise)  # of the model that had not seen the trial
    report = model_of(agent).report
    assert report is not None and (second.z_std, second.coverage95) == (report.z_std, report.coverage95)


def test_without_exploration_and_limits_the_reports_say_so() -> None:
    agent, events = agent_of(learner="ppilco")
    agent.tell(real(1))
    agent.ask()
    for each in improvements(events):
        assert each.model_zeta == 0 and each.lambda_pi == 1 and len(each.critic_loss) == 1
        assert each.values == each.targets == each.multipliers == ()


def test_earlier_transitions_teach_the_model_and_do_not_count() -> None:
    agent, events = agent_of()
    earlier = real(3).transitions()
    agent.tell_earlier(earlier)
    assert (agent.real_samples, agent.learning_TC, agent.learning_TV, agent.iteration) == (0, 0.0, 0, -1)
    assert not events and len(model_of(agent)) == 30 and same(agent.data.transitions, earlier)
    traces = rollout(Line().world(), agent.ask(), 1, generator=seeded(1))
    agent.tell(traces)
    (trial,) = trials(events)
    assert trial.real_samples == agent.real_samples == 10 and trial.iteration == 0 and len(agent.data) == 40
    # There was a model before the first trial.
    assert math.isfinite(trial.surprise) and trial.predicted_return == improvements(events)[-1].model_return


def test_what_is_asked_for_is_a_copy() -> None:
    agent, _ = agent_of()
    agent.tell(real(1))
    mine = agent.policy
    with torch.no_grad():
        mine.actor.log_std.fill_(5.0)
    assert float(agent.policy.std.detach()) < 1


def test_faults_are_reported_after_the_trial_was_learned_from() -> None:
    agent, events = agent_of()
    agent.tell(real(2), [Fault(0, 3, "the motor stopped"), Fault(0, 5, "it stopped again"), Fault(1, 2, "so did this")])
    assert notices(events) == [
        f"{text}; the episode is kept up to there" for text in ("the motor stopped", "it stopped again", "so did this")
    ]
    (trial,) = trials(events)
    assert events[-1] is trial and trial.broken == 2


def test_a_trial_without_a_step_leaves_only_its_faults() -> None:
    agent, events = agent_of()
    traces = real(2)
    nothing = replace(traces, active=torch.zeros_like(traces.active))
    agent.tell(nothing, [Fault(0, 0, "the system does not answer")])
    assert notices(events) == ["the system does not answer; the episode is kept up to there"] and len(events) == 1
    assert agent.iteration == -1 and not len(agent.data) and agent.real_samples == 0


# Settings of another family -------------------------------------------------------------------------------------------

FAMILIES = {"samba": ModelBasedSettings, "ppo": ModelFreeSettings, "planet": PlanetSettings}


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("other", FAMILIES)
def test_settings_of_another_family_are_refused(learner: str, other: str) -> None:
    settings, source = make_settings("line", other), LEARNERS[learner].source
    if isinstance(make_settings("line", learner), FAMILIES[other]):
        assert make_agent(Line(), learner, settings).settings is settings
        return
    with pytest.raises(UserError) as error:
        make_agent(Line(), learner, settings)
    assert str(error.value) == (
        f"{FAMILIES[other].__name__} are not for a learner on {source.title}; "
        "make_settings(task, learner) gives those that are"
    )


# A log that raises ----------------------------------------------------------------------------------------------------


class Breaking:
    """A log that raises at one of its events, once."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) == self.at + 1:
            raise RuntimeError("the log is full")


@pytest.mark.parametrize("at", range(2))
def test_a_log_that_raises_during_ask_reaches_the_caller_and_the_agent_goes_on(at: int) -> None:
    whole, events = agent_of(learner="samba", settings=QUICK)
    whole.tell(real(2))
    whole.ask()
    agent, _ = agent_of(learner="samba", settings=QUICK)
    agent.tell(real(2))
    log = agent.log = Breaking(at)
    with pytest.raises(RuntimeError, match="the log is full"):
        agent.ask()
    agent.ask()
    assert finished(agent) == finished(whole)
    # Every event was logged once, the one that broke the log included.
    assert stripped(log.events) == stripped(events[1:])


def test_a_log_that_raises_during_tell_reaches_the_caller_and_the_trial_is_learned() -> None:
    whole, _ = agent_of()
    agent, _ = agent_of()
    agent.log = Breaking(0)
    with pytest.raises(RuntimeError, match="the log is full"):
        agent.tell(real(2), [Fault(0, 3, "the motor stopped")])
    whole.tell(real(2))
    assert agent.real_samples == 20 and finished(agent) == finished(whole)
    agent.ask()
    whole.ask()
    assert finished(agent) == finished(whole)


def test_without_a_log_nothing_is_logged() -> None:
    agent, _ = agent_of()
    agent.log = None
    agent.tell(real(1))
    agent.ask()
    assert agent.iteration == 0
