"""Algorithm 1 on a point on a line: what a run may spend, the events that it yields, and rows of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from samba_rl.agents.agent import Learned
from samba_rl.agents.first import FirstSettings
from samba_rl.agents.policy_gradient import Agent
from samba_rl.algorithm import improve, train
from samba_rl.events import EpisodesMeasured, Event, ImprovementReport, PauseDue, PolicyReady, Signal, TrialReport
from samba_rl.improve.constraints import Chance, CVaR
from samba_rl.improve.objectives import Cost, Information
from samba_rl.improve.updates.rules import Projection, TrustRegion
from samba_rl.learners import GPModel, Learner
from samba_rl.models.zeta import Bootstrap, Entropy, LeaveOneOut
from samba_rl.runs.trials import Trials
from samba_rl.tasks.faults.settings import RealSettings
from samba_rl.tasks.rollout import rollout
from tests.agents.agents import PLAIN, QUICK, agent_of, improvements, real, same, same_policy, trials
from tests.line import Line, quick_settings, spend
from tests.threads import one_thread
from tests.traces import seeded


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def events_of(agent: Agent, trials: Trials | None = None) -> list[Event | Signal]:
    """Run to the end and return all events and signals."""
    return list(train(agent, trials or Trials(agent.task.world()), seeded(0)))


# Spending -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "episodes", "expected"), [(49, 1, [20, 30, 40]), (60, 3, [20, 50, 60])])
def test_a_run_spends_whole_episodes_and_no_more_than_it_may(samples: int, episodes: int, expected: list[int]) -> None:
    settings = replace(PLAIN, real_samples=samples, episodes=episodes, first=FirstSettings(samples=11, how="uniform"))
    agent, events = agent_of(settings=settings)
    spend(agent)
    assert [trial.real_samples for trial in trials(events)] == expected
    assert agent.data.transitions.step.tolist() == list(range(10)) * (expected[-1] // 10)
    last = improvements(events)[-1]
    assert last.control == last.controls == PLAIN.imagination.last_iterations and last.iteration == len(expected) - 1


@pytest.mark.parametrize("seed", [0, 1])
def test_episodes_that_end_early_do_not_lead_to_overspending(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "done", lambda self, x, recent: x[:, 0] > -2)
    agent, events = agent_of(settings=replace(PLAIN, episodes=2), seed=seed)
    spend(agent, seed=seed)
    steps = agent.data.transitions
    assert 30 < agent.real_samples == len(steps) <= 40  # less than another whole episode is left
    assert len(trials(events)) > 2  # it was not all spent on two times two episodes
    lengths = torch.bincount(steps.episode)
    ends = steps.terminated[lengths.cumsum(0) - 1]
    assert bool(((lengths == 10) | ends).all()) and bool((lengths < 10).any())
    assert int(steps.terminated.sum()) == int(ends.sum())


def test_the_seed_decides_on_the_policy_and_the_data() -> None:
    def once(seed: int) -> tuple[Learned, Agent]:
        agent, _ = agent_of(learner="samba", settings=QUICK, seed=seed)
        return spend(agent, seed=seed), agent

    (policy, agent), (again, agent_again), (other, agent_other) = once(0), once(0), once(1)
    assert same_policy(policy, again) and same(agent.data.transitions, agent_again.data.transitions)
    assert not same_policy(policy, other) and not same(agent.data.transitions, agent_other.data.transitions)
    assert same_policy(policy, agent.policy)


# Events ---------------------------------------------------------------------------------------------------------------


def kinds(events: list[Event | Signal]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_the_events_of_a_run_in_their_order() -> None:
    agent, _ = agent_of(learner="samba", settings=replace(PLAIN, real_samples=40))
    trial, improvement, measured = "TrialReport", ["ImprovementReport"] * 2, "EpisodesMeasured"
    assert kinds(events_of(agent)) == [
        *(measured, trial),
        *(*improvement, "PolicyReady", measured, trial),
        *(*improvement, "PolicyReady", measured, trial),
        *improvement,
    ]


def test_a_policy_is_shown_before_its_trial() -> None:
    agent, _ = agent_of()
    events = events_of(agent)
    shown = [event for event in events if isinstance(event, PolicyReady)]
    assert [event.iteration for event in shown] == [0, 1]
    assert all(isinstance(event.policy, torch.nn.Module) for event in shown)


def test_on_a_single_system_episodes_are_measured_one_by_one() -> None:
    agent, _ = agent_of(Line(parallel=False), settings=replace(PLAIN, episodes=2))
    assert kinds(events_of(agent)).count("EpisodesMeasured") == 4  # two in the first trial, two in the next


def test_nothing_happens_before_the_first_event_is_asked_for() -> None:
    agent, _ = agent_of()
    events = train(agent, Trials(Line().world()), seeded(0))
    assert agent.iteration == -1 and not len(agent.data)
    assert isinstance(next(events), EpisodesMeasured) and not len(agent.data)
    assert isinstance(next(events), TrialReport) and len(agent.data) == 20


def test_the_clock_counts_the_phases() -> None:
    agent, _ = agent_of(learner="samba", settings=QUICK)
    events_of(agent)
    phases = agent.clock.by_phase()
    assert all(phases[name] > 0 for name in ("real", "fit", "rollout", "update"))


class Trouble:
    """A line that fails at the second step of every trial."""

    def __init__(self, task: Line) -> None:
        self.task, self._world, self._steps = task, task.world(), 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._world, name)

    def step(self, *arguments: object, **more: object) -> object:
        self._steps += 1
        if self._steps % 2 == 0:
            raise RuntimeError("the motor stopped")
        return self._world.step(*arguments, **more)  # type: ignore[arg-type]


def test_a_system_that_fails_makes_the_loop_ask_for_a_pause() -> None:
    agent, _ = agent_of(settings=PLAIN)
    trouble = Trials(Trouble(Line()), RealSettings(on_fault="pause"))  # type: ignore[arg-type]
    for event in train(agent, trouble, seeded(0)):
        if isinstance(event, PauseDue):
            break
    # The trial has been learned from when the pause is due.
    assert isinstance(event, PauseDue) and "the motor stopped" in event.text
    assert agent.iteration == 0 and len(agent.data) == agent.real_samples == 2


def test_a_consumer_that_goes_away_ends_the_run_where_it_is() -> None:
    agent, _ = agent_of()
    for event in train(agent, Trials(Line().world()), seeded(0)):
        if isinstance(event, ImprovementReport):
            break
    assert agent.iteration == 0 and agent.work.control == 1
    # The rest of the improvement is still to come.
    rest = list(agent.improve())
    assert [report.control for report in improvements(rest)] == [2]


def test_the_inner_loop_counts_the_control_iterations() -> None:
    agent, _ = agent_of()
    agent.tell(real(1))
    agent._begin(last=False)
    agent.work.control = 1
    (report,) = improve(agent)
    assert isinstance(report, ImprovementReport) and (report.control, report.controls) == (2, 2)


# Rows of one's own ----------------------------------------------------------------------------------------------------

ROWS = {
    "SAMBA with a trust region": Learner(GPModel(), (Cost(), Information(LeaveOneOut())), CVaR, TrustRegion()),
    "a trust region for the cost alone": Learner(GPModel(), (Cost(),), None, TrustRegion()),
    "CPO on a model": Learner(GPModel(), (Cost(),), CVaR, Projection()),
    "entropy under a chance constraint": Learner(GPModel(), (Cost(), Information(Entropy())), Chance, TrustRegion()),
    "bootstrap": Learner(GPModel(), (Cost(), Information(Bootstrap(partitions=2))), CVaR, Projection()),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_ones_own_trains(name: str) -> None:
    row = ROWS[name]
    agent, events = agent_of(learner=row, settings=PLAIN)
    policy = spend(agent)
    reports = improvements(events)
    assert len(trials(events)) == 3 and len(reports) == 6
    assert all(len(report.values) == (row.constraint is not None) for report in reports)
    # After the last trial information counts for nothing, and is not measured.
    assert all((report.model_zeta != 0) is (row.zeta is not None) for report in reports[:-2])
    assert all(bool(parameter.isfinite().all()) for parameter in policy.parameters())
    assert any(report.kl > 0 for report in reports)


def test_a_model_and_a_trust_region_learn_the_line() -> None:
    row = ROWS["SAMBA with a trust region"]
    agent, _ = agent_of(learner=row, settings=quick_settings(row), seed=1)
    policy = spend(agent, seed=1)
    before = rollout(Line().world(), lambda o, _: torch.zeros_like(o), 100, generator=seeded(5))
    after = rollout(Line().world(), policy, 100, generator=seeded(5))
    assert float(after.returns.mean()) > 0.5 * float(before.returns.mean())  # returns are negative
