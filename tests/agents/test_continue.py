"""Continuing exactly: a run that ends at any event is continued to the same end, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from samba_rl.agents.agent import AnyAgent
from samba_rl.agents.first import FirstSettings
from samba_rl.agents.settings import ImaginationSettings, ModelBasedSettings, Settings
from samba_rl.algorithm import train
from samba_rl.data.packing import pack, unpack
from samba_rl.events import Event, ImprovementReport, Notice, Signal
from samba_rl.improve.constraints import CVaR
from samba_rl.improve.objectives import Cost, Information
from samba_rl.improve.updates.natural import NaturalUpdate
from samba_rl.improve.updates.proximal import ProximalUpdate
from samba_rl.improve.updates.rules import Projection, TrustRegion
from samba_rl.learners import GPModel, Learner
from samba_rl.models.gp import GPDynamics
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.presets import make_agent
from samba_rl.runs.trials import Trials
from tests.agents.agents import QUICK, agent_of, finished, model_of, notices, real, stripped
from tests.line import Line, quick_settings, spend
from tests.planet.examples import quick as quick_planet
from tests.threads import one_thread


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


# At any event ---------------------------------------------------------------------------------------------------------

SMALL = replace(
    QUICK, imagination=ImaginationSettings(2, 3, 20, candidates=2, judged=20, starts=1, start_iterations=1)
)  # fmt: skip
FREE = replace(quick_settings("ppo"), real_samples=80, episodes=2)
PLANET = replace(
    quick_planet(),
    real_samples=60,
    first=FirstSettings(20),
    latent=replace(quick_planet().latent, updates=26, first_updates=26),
)
SEEKING = (Cost(), Information(LeaveOneOut()))
LEARNERS: dict[str, tuple[str | Learner, Settings]] = {
    "samba": ("samba", SMALL),
    "a model and a trust region": (Learner(GPModel(), SEEKING, CVaR, TrustRegion()), SMALL),
    "a model and a projection": (Learner(GPModel(), (Cost(),), CVaR, Projection()), SMALL),
    "several experts": (
        "samba",
        replace(SMALL, policy=replace(SMALL.policy, experts=2, apart=3, gate_hidden=(8,))),
    ),
    "sppo": ("sppo", FREE),
    "cpo": ("cpo", FREE),
    "planet-rs": ("planet-rs", PLANET),
}


class EnoughError(Exception):
    """The consumer of the events has seen enough."""


@dataclass
class Drive:
    """Drives the training loop as a run does, and stops by an exception at one of the events."""

    learner: str | Learner
    settings: Settings
    task: Line
    seed: int = 1

    def __post_init__(self) -> None:
        self.agent: AnyAgent = make_agent(self.task, self.learner, self.settings, seed=self.seed)
        self.trials = Trials(self.task.world())
        self.generator = Generator().manual_seed(3)
        self.events: list[Event | Signal] = []

    def go(self, stop_at: int | None = None) -> None:
        for event in train(self.agent, self.trials, self.generator):
            if not isinstance(event, Event):
                continue
            self.events.append(event)
            if len(self.events) - 1 == stop_at:
                raise EnoughError

    def continued(self) -> Drive:
        """Return another drive, of an agent with another seed, that takes over the state through bytes."""
        kept = unpack(
            pack(
                {
                    "agent": self.agent.state_dict(),
                    "trials": self.trials.state_dict(),
                    "random": self.generator.get_state(),
                }
            )
        )
        other = replace(self, seed=99)
        assert list(other.agent.load_state_dict(kept["agent"], self.agent.data)) == []
        other.trials.load_state_dict(kept["trials"])
        other.generator.set_state(kept["random"])
        return other


def check_every_event(learner: str | Learner, settings: Settings, task: Line) -> list[Event | Signal]:
    """Stop at each of the events in turn, continue with another agent, and compare the ends."""
    whole = Drive(learner, settings, task)
    whole.go()
    due, events = finished(whole.agent), stripped(whole.events)
    for i, event in enumerate(events):
        drive = Drive(learner, settings, task)
        with pytest.raises(EnoughError):
            drive.go(stop_at=i)
        assert stripped(drive.events) == events[: i + 1]
        other = drive.continued()
        other.go()
        assert finished(other.agent) == due, event
        rest = stripped(other.events)
        # Notices come when the report that follows them is ready; a run that stops there does not repeat it.
        assert rest == events[len(events) - len(rest) :] and (
            isinstance(event, Notice) or len(rest) == len(events) - i - 1
        )
    return events


@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_that_ends_at_any_event_is_continued_to_the_same_end(name: str) -> None:
    events = check_every_event(*LEARNERS[name], Line(goal=1.0))
    assert len({type(event) for event in events}) >= 2


def unsafe_everywhere(self: Line, x: Tensor, u: Tensor | None = None) -> Tensor:
    return torch.full_like(x, 0.5)


def poison(patch: pytest.MonkeyPatch) -> None:
    """Let every second update fail, told apart by what it is given."""
    for kind in (ProximalUpdate, NaturalUpdate):
        plain = kind.__call__

        def call(update: Any, batch: Any, generator: Generator, plain: Any = plain) -> Any:
            report = plain(update, batch, generator)
            if int(1e4 * float(batch.targets.sum())) % 2:
                update.optimisers[0].param_groups[0]["params"][0].data.fill_(torch.nan)
            return report

        patch.setattr(kind, "__call__", call)


@pytest.mark.parametrize("learner", ["samba", "a model and a projection"])
def test_an_event_that_is_a_notice_is_no_exception(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Infeasible limits, failed updates and failed fits: the state is whole when they are reported."""
    monkeypatch.setattr(Line, "safety", unsafe_everywhere)
    poison(monkeypatch)
    fit = GPDynamics.fit
    monkeypatch.setattr(
        GPDynamics, "fit", lambda self, steps: replace(fit(self, steps), failed=("output 0 diverged",))
    )  # fmt: skip
    said = notices(check_every_event(*LEARNERS[learner], Line(goal=1.0)))
    assert any("looks infeasible" in text for text in said)
    assert any("it led to numbers that are not finite" in text for text in said)
    assert any("keeps its last good hyper-parameters" in text for text in said)


def test_a_stranded_policy_is_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "_cost", lambda self, x, u: torch.ones_like(x[:, 0]))
    said = notices(check_every_event("samba", SMALL, Line()))
    assert any("stranded" in text for text in said)


def test_a_limit_that_turns_out_infeasible_at_the_end_is_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last check runs once, although its notice comes when the improvement is not yet marked as done."""
    monkeypatch.setattr(Line, "safety", unsafe_everywhere)
    settings = replace(SMALL, real_samples=20)
    events = check_every_event("samba", settings, Line())
    assert any(isinstance(event, Notice) and "looks infeasible" in event.text for event in events)


# In the middle of an improvement --------------------------------------------------------------------------------------


def test_an_agent_continues_from_its_state_at_every_report() -> None:
    """States are taken at reports, through bytes; every agent that loads one ends with the same policy."""
    states: list[tuple[bytes, Any, type[Event]]] = []

    def log(event: Event) -> None:
        if not isinstance(event, Notice):
            states.append((pack(agent.state_dict()), agent.data, type(event)))

    settings = quick_settings()
    assert isinstance(settings, ModelBasedSettings)
    settings = replace(settings, imagination=replace(settings.imagination, confirm="off"))
    agent, _ = agent_of(Line(goal=1.0), "samba", settings, seed=1)
    agent.log = log
    due = spend(agent, seed=3).state_dict()
    last = [one for one in states if len(one[1]) == 60]
    for packed, data, kind in (last[0], last[7], last[-1]):
        other, _ = agent_of(Line(goal=1.0), "samba", settings, seed=99)
        list(other.load_state_dict(unpack(packed), data))
        assert pack(other.state_dict()["snapshot"]) == pack(unpack(packed)["snapshot"])
        policy = other.ask(last=True)
        assert isinstance(policy, torch.nn.Module), kind
        assert all(torch.equal(value, due[name]) for name, value in policy.state_dict().items())
        assert [m.state_dict() for m in other.multipliers.each] == [m.state_dict() for m in agent.multipliers.each]
        assert other.learning_TC == agent.learning_TC and other.iteration == agent.iteration


def test_an_improvement_that_was_broken_off_is_continued() -> None:
    agent, _ = agent_of(learner="samba", settings=quick_settings(), seed=1)
    agent.tell(real(3))

    def reports(stop_at: int | None = None) -> int:
        """Improve and return how many control iterations were reported before the consumer went away."""
        count = 0
        for event in agent.improve():
            count += isinstance(event, ImprovementReport)
            if count == stop_at:
                break
        return count

    assert reports(stop_at=4) == 4 and reports() == 6
    assert reports(stop_at=4) == 4
    # A new trial begins another improvement.
    agent.tell(real(3, seed=1))
    assert reports() == 10


def test_another_machine_is_reported() -> None:
    agent, _ = agent_of(learner="samba", settings=quick_settings(), seed=1)
    agent.tell(real(3))
    state = unpack(pack(agent.state_dict()))
    state["experience"]["model"]["fingerprint"] = "of another factor"
    other, _ = agent_of(learner="samba", settings=quick_settings())
    (notice,) = other.load_state_dict(state, agent.data)
    assert "because of another machine or another number of threads" in notice.text


def test_an_agent_that_was_told_nothing_has_a_state_too() -> None:
    agent, _ = agent_of(seed=1)
    other, _ = agent_of(seed=2)
    assert list(other.load_state_dict(unpack(pack(agent.state_dict())), agent.data)) == []
    for one in (agent, other):
        one.tell(real(1))
        one.ask()
    assert finished(agent) == finished(other) and len(model_of(other)) == 10
