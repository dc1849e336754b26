"""What becomes non-finite is rolled back to the last good, and said; and an agent goes on from its state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from samba_rl.agents.policy_gradient import Agent
from samba_rl.data.packing import pack, unpack
from samba_rl.errors import UserError
from samba_rl.events import Event, ImprovementReport, Notice
from samba_rl.improve.policies import UniformPolicy
from samba_rl.improve.step import Control, ControlReport
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import Hyper, HyperFit
from samba_rl.runs import load_run, train
from samba_rl.tasks.rollout import rollout
from samba_rl.types import Traces
from tests.line import Line, quick_settings, spend
from tests.threads import one_thread


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


def trial(seed: int = 0, n: int = 3) -> Traces:
    generator = torch.Generator().manual_seed(seed)
    return rollout(Line().world(), UniformPolicy((-1.0,), (1.0,)), n, generator=generator)


def an_agent(log: Any = None) -> Agent:
    agent = Agent(Line(), quick_settings(), seed=1, log=log)
    agent.tell(trial())
    return agent


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


# Rolled back ----------------------------------------------------------------------------------------------------------


class Poison:
    """Spoils something at the given calls of the update."""

    def __init__(self, what: str, calls: tuple[int, ...]) -> None:
        self.what, self.calls, self.count = what, calls, 0
        self.before: list[dict[str, Any]] = []
        self.update = Control.__call__

    def __call__(self, control: Control, *args: Any) -> ControlReport:
        self.count += 1
        if self.count in self.calls:
            self.before.append(control.state_dict())
        report = self.update(control, *args)
        if self.count in self.calls:
            moments = control.update.optimisers[0].state[control.policy.log_std]
            victims = {
                "policy": next(iter(control.policy.parameters())),
                "std": control.policy.log_std,
                "critic": control.critics.biases[0],
                "scale": control.critics.std,
                "optimiser": moments["exp_avg"],
            }
            victims[self.what].data.view(-1)[0] = math.nan if self.what == "policy" else math.inf
        return report


@pytest.mark.parametrize("what", ["policy", "std", "critic", "scale", "optimiser"])
def test_an_update_that_is_not_finite_is_taken_back(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    agent = an_agent(events.append)
    poison = Poison(what, (3, 4))
    monkeypatch.setattr(Control, "__call__", lambda control, *args: poison(control, *args))
    seen: list[dict[str, Any]] = []
    heard = agent._log

    def log(event: Event) -> None:
        heard(event)
        if isinstance(event, ImprovementReport):
            seen.append(agent._control.state_dict())

    agent._log = log
    agent.ask()
    assert pack(seen[2]) == pack(poison.before[0]) == pack(seen[3]) != pack(seen[4])
    assert agent._control.finite and all(bool(p.isfinite().all()) for p in agent.policy.parameters())
    said = [text for text in notices(events) if "stays as it was before control iteration" in text]
    assert said == ["the policy stays as it was before control iteration 3: it led to numbers that are not finite"]
    reports = [event for event in events if isinstance(event, ImprovementReport)]
    assert math.isnan(reports[2].kl) and math.isfinite(reports[4].kl) and len(reports) == 10


def test_it_is_in_the_metrics_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison = Poison("policy", (2,))
    monkeypatch.setattr(Control, "__call__", lambda control, *args: poison(control, *args))
    train(Line(), preset="smoke", out=tmp_path / "run")
    monkeypatch.undo()
    run = load_run(tmp_path / "run", Line())
    assert any("stays as it was before control iteration" in notice.text for notice in run.notices)
    assert run.evaluate(100).episodes == 10


def test_imagined_costs_that_are_not_finite_teach_nothing() -> None:
    events: list[Event] = []
    task = Line()
    agent = Agent(task, quick_settings(), seed=1, log=events.append)
    agent.tell(trial())
    before = {**agent._control.state_dict(), "update": 0}
    object.__setattr__(task, "_cost", lambda x, u: x[..., 0] * torch.nan)
    agent.ask()
    assert agent.multipliers[0].value == agent.settings.multiplier.initial
    assert pack({**agent._control.state_dict(), "update": 0}) == pack(before)
    assert [text for text in notices(events) if "imagined steps is not finite" in text]


def test_a_model_that_is_not_finite_keeps_its_last_good_hyper_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    agent = an_agent(events.append)
    good = agent.model._hyper
    assert isinstance(good, Hyper)
    bad = replace(good, noise=good.noise * math.nan)
    monkeypatch.setattr("samba_rl.models.gp.fit_hyper", lambda *_: HyperFit(bad, (0.0,), 1, 0.0, ()))
    agent.tell(trial(1))
    assert agent.model._hyper is good and len(agent.model) == len(agent.data) == 60
    assert any("the model keeps its last good hyper-parameters" in text for text in notices(events))
    agent.ask()


def test_a_model_that_cannot_take_the_last_trial_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    agent = an_agent(events.append)
    before = agent.model.state_dict()
    fit = GPDynamics.fit

    def fail(self: GPDynamics, transitions: Any) -> None:
        raise UserError("the covariance has no Cholesky factor")

    monkeypatch.setattr(GPDynamics, "fit", fail)
    agent.tell(trial(1))
    assert pack(agent.model.state_dict()) == pack(before) and len(agent.model) == 30 and len(agent.data) == 60
    assert any("stays as it was before the last trial: the covariance has no Chol" in text for text in notices(events))
    state = unpack(pack(agent.state_dict()))
    monkeypatch.setattr(GPDynamics, "fit", fit)
    other = Agent(Line(), quick_settings(), seed=9)
    other.load_state_dict(state, agent.data)
    assert pack(other.model.state_dict()) == pack(before)
    monkeypatch.setattr(GPDynamics, "fit", fail)
    with pytest.raises(UserError, match="Cholesky"):
        Agent(Line(), quick_settings()).tell(trial())


# Going on -------------------------------------------------------------------------------------------------------------


def test_an_agent_goes_on_from_its_state_at_every_report() -> None:
    """Taken at each report, through bytes; each of the agents that come of it ends with the same policy."""
    states: list[tuple[bytes, Any, type[Event]]] = []

    def log(event: Event) -> None:
        if not isinstance(event, Notice):
            states.append((pack(agent.state_dict()), agent.data, type(event)))

    agent = Agent(Line(goal=1.0), quick_settings(), seed=1, log=log)
    due = spend(agent, seed=3).state_dict()
    del agent._log
    last = [one for one in states if len(one[1]) == 60]
    for packed, data, kind in (last[0], last[7], last[-1]):
        other = Agent(Line(goal=1.0), quick_settings(), seed=99)
        other.load_state_dict(unpack(packed), data)
        assert pack(other.state_dict()["control"]) == pack(unpack(packed)["control"])
        policy = other.ask(last=True)
        assert isinstance(policy, torch.nn.Module), kind
        assert all(torch.equal(value, due[name]) for name, value in policy.state_dict().items())
        assert [m.state_dict() for m in other.multipliers] == [m.state_dict() for m in agent.multipliers]
        assert other.learning_TC == agent.learning_TC and other.iteration == agent.iteration


def test_another_machine_is_said() -> None:
    agent = an_agent()
    state = unpack(pack(agent.state_dict()))
    state["model"]["fingerprint"] = "of another factor"
    events: list[Event] = []
    other = Agent(Line(), quick_settings(), log=events.append)
    other.load_state_dict(state, agent.data)
    assert any("another machine, or another number of threads" in text for text in notices(events))


def test_an_improvement_that_was_broken_off_goes_on() -> None:
    agent = an_agent()
    count = 0

    def log(event: Event) -> None:
        nonlocal count
        count += isinstance(event, ImprovementReport)
        if count == 4 and isinstance(event, ImprovementReport):
            raise KeyboardInterrupt

    agent._log = log
    with pytest.raises(KeyboardInterrupt):
        agent.ask()
    agent.ask()
    assert count == 10
    count = 0
    with pytest.raises(KeyboardInterrupt):
        agent.ask()
    # What was broken off does not outlive another trial.
    agent.tell(trial(1))
    agent.ask()
    assert count == 14


# Without a model --------------------------------------------------------------------------------------------------


def networks(agent: Agent) -> bytes:
    """Policy and critics, without the floor of the noise, which depends on the samples that are left."""
    state = agent._control.state_dict()
    return pack({"policy": state["policy"], "critics": state["critics"]})


@pytest.mark.parametrize("learner", ["ppo", "sppo", "trpo", "strpo", "cpo"])
def test_a_real_trial_is_learned_from_once_and_only_if_it_is_the_policys_own(learner: str) -> None:
    events: list[Event] = []
    agent = Agent(Line(), quick_settings(learner), seed=1, log=events.append)
    agent.tell(trial())
    before = networks(agent)
    policy = agent.ask()
    assert networks(agent) == before and not len(agent.model)
    for number in range(1, 3):
        traces = rollout(Line().world(), policy, 40, generator=torch.Generator().manual_seed(number))
        agent.tell(traces)
        policy = agent.ask()
        assert sum(isinstance(event, ImprovementReport) for event in events) == number
        now = networks(agent)
        assert now != before
        agent.ask()
        assert networks(agent) == now
    reports = [event for event in events if isinstance(event, ImprovementReport)]
    assert reports[0].model_return == pytest.approx(
        float(
            rollout(
                Line().world(), first_policy_of(learner), 40, generator=torch.Generator().manual_seed(1)
            ).returns.mean()
        )
    )
    assert all(math.isfinite(report.kl) for report in reports)


def test_a_projection_reports_the_multiplier_that_its_step_found() -> None:
    """Far from its limit it weighs nothing, and beyond reach of it nothing else does; no schedule has a say."""
    for limit, expected in ((1e3, 0.0), (0.0, 7.0)):
        settings = quick_settings("cpo")
        settings = replace(
            settings,
            constraint=replace(settings.constraint, limit=limit),
            multiplier=replace(settings.multiplier, cap=7.0, initial=3.0),
            trust_region=replace(settings.trust_region, kl=1e-6),
        )
        events: list[Event] = []
        agent = Agent(Line(), settings, seed=1, log=events.append)
        agent.tell(trial())
        agent.tell(rollout(Line().world(), agent.ask(), 40, generator=torch.Generator().manual_seed(1)))
        agent.ask()
        report = next(event for event in events if isinstance(event, ImprovementReport))
        assert report.multipliers == (expected,) and agent.multipliers[0].value == expected


def first_policy_of(learner: str) -> Any:
    """What the agent above asks for first."""
    agent = Agent(Line(), quick_settings(learner), seed=1)
    agent.tell(trial())
    return agent.ask()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zeta": "loo"}, "zeta = 'loo' without a model"),
        ({"rule": "projection"}, "the rule 'projection' keeps to exactly one limit"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(quick_settings("ppo"), **changes)
