"""An update that leads to numbers that are not finite is undone completely, whichever rule made it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.data.packing import pack
from samba_rl.events import Event, ImprovementReport
from samba_rl.improve.constraints import CVaR, Expectation
from samba_rl.improve.objectives import Cost, Information
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.step import Improver
from samba_rl.improve.updates.batch import Batch, UpdateReport
from samba_rl.improve.updates.natural import NaturalUpdate
from samba_rl.improve.updates.proximal import ProximalUpdate
from samba_rl.improve.updates.rules import Projection, Proximal, TrustRegion
from samba_rl.learners import GPModel, Learner, RealTrials
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.runs import load_run, train
from samba_rl.tasks.rollout import rollout
from tests.agents.agents import agent_of, improvements, notices, real
from tests.line import Line, quick_settings
from tests.threads import one_thread
from tests.traces import seeded

SEEKING = (Cost(), Information(LeaveOneOut()))
ROWS = {
    "proximal": Learner(GPModel(), SEEKING, CVaR, Proximal()),
    "trust-region": Learner(GPModel(), SEEKING, CVaR, TrustRegion()),
    "projection": Learner(GPModel(), (Cost(),), CVaR, Projection()),
}
VICTIMS = ("policy", "std", "critic", "scale", "optimiser")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


@dataclass
class Poison:
    """Spoils something in the given calls of any update, after it has drawn random numbers."""

    patch: pytest.MonkeyPatch
    victim: str
    calls: tuple[int, ...]
    improver: Callable[[], Improver] | None = None
    count: int = 0

    def __post_init__(self) -> None:
        for kind in (ProximalUpdate, NaturalUpdate):
            plain = kind.__call__
            self.patch.setattr(kind, "__call__", self._poisoned(plain))

    def _poisoned(self, plain: Callable[..., UpdateReport]) -> Callable[..., UpdateReport]:
        def call(update: Any, batch: Batch, generator: Generator) -> UpdateReport:
            self.count += 1
            report = plain(update, batch, generator)
            if self.count in self.calls:
                assert self.improver is not None
                torch.rand(3, generator=generator)
                self._spoil(self.improver())
            return report

        return call

    def _spoil(self, improver: Improver) -> None:
        moments = next(iter(improver.update.optimisers[-1].state.values()))
        victims = {
            "policy": next(iter(improver.policy.parameters())),
            "std": improver.policy.log_std,
            "critic": improver.critics.biases[0],
            "scale": improver.critics.std,
            "optimiser": moments["exp_avg"],
        }
        victims[self.victim].data.view(-1)[0] = math.nan if self.victim == "policy" else math.inf


def flat(settings: PolicySettings) -> PolicySettings:
    """Return settings whose std floor is the same at every control iteration."""
    return replace(settings, std_floor_first=settings.std_floor)


def everything(agent: Agent) -> dict[str, bytes]:
    """Return the parts of the state that a control iteration changes, one by one."""
    return {
        "improver": pack(agent.improver.state_dict()),
        "multipliers": pack({"each": [one.state_dict() for one in agent.multipliers.each]}),
        "generator": pack({"generator": agent.generator.get_state()}),
    }


def watch_updates(agent: Agent, patch: pytest.MonkeyPatch) -> tuple[list[dict[str, bytes]], list[dict[str, bytes]]]:
    """Record everything before each control iteration's update, and at its report."""
    before: list[dict[str, bytes]] = []
    after: list[dict[str, bytes]] = []
    snapshot, heard = agent.snapshot, agent.log
    assert heard is not None

    def watched() -> Any:
        before.append(everything(agent))
        return snapshot()

    def log(event: Event) -> None:
        heard(event)
        if isinstance(event, ImprovementReport):
            after.append(everything(agent))

    patch.setattr(agent, "snapshot", watched)
    agent.log = log
    return before, after


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("rule", ROWS)
def test_everything_is_as_before_a_failed_update(rule: str, victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[rule]
    settings = quick_settings(row)
    assert isinstance(settings, ModelBasedSettings)
    # Several minibatches, so that an update draws random numbers.
    settings = replace(settings, update=replace(settings.update, minibatch=400), policy=flat(settings.policy))
    agent, _ = agent_of(learner=row, settings=settings, seed=1)
    agent.tell(real(3))
    poison = Poison(monkeypatch, victim, (1, 2), lambda: agent.improver)
    before, after = watch_updates(agent, monkeypatch)
    agent.ask()
    assert poison.count == 10 == len(before) == len(after)
    assert after[0] == before[0] and after[1] == before[1]
    # Imagining has drawn random numbers in between, and nothing else has changed.
    changed = {part for part in before[0] if before[1][part] != before[0][part]}
    assert changed == {"generator"}
    # An update that does not fail changes all but the unit.
    changed = {part for part in before[2] if after[2][part] != before[2][part]}
    assert changed == {"improver", "multipliers", "generator"}
    assert agent.improver.finite and all(bool(p.isfinite().all()) for p in agent.policy.parameters())


def test_a_failed_update_is_reported_once_per_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, events = agent_of(learner="samba", settings=quick_settings(), seed=1)
    agent.tell(real(3))
    Poison(monkeypatch, "policy", (3, 4, 12), lambda: agent.improver)
    text = "the policy stays as it was before control iteration {}: it led to numbers that are not finite"
    agent.ask()
    assert notices(events) == [text.format(3)]
    reports = improvements(events)
    assert math.isnan(reports[2].kl) and math.isnan(reports[3].lambda_pi) and math.isnan(reports[3].critic_loss[2])
    assert math.isfinite(reports[4].kl) and len(reports) == 10
    assert reports[2].multipliers == reports[3].multipliers == reports[1].multipliers != reports[4].multipliers
    # The notice comes right before the report of its iteration.
    assert events[events.index(reports[2]) - 1] not in reports
    agent.ask()
    assert notices(events) == [text.format(3), text.format(2)]


@pytest.mark.parametrize("rule", ["proximal", "trust-region", "projection"])
def test_an_update_on_a_real_trial_is_undone_as_well(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Learner(RealTrials(), (Cost(),), Expectation, ROWS[rule].update)
    agent, events = agent_of(learner=row, settings=quick_settings(row), seed=1)
    agent.tell(real(3))
    Poison(monkeypatch, "policy", (1,), lambda: agent.improver)
    for number in range(2):
        policy = agent.ask()
        agent.tell(rollout(Line().world(), policy, 40, generator=seeded(number)))
    before, after = watch_updates(agent, monkeypatch)
    agent.ask()
    assert len(notices(events)) == 1 and math.isnan(improvements(events)[0].kl)
    # The next trial is learned from as if nothing had happened.
    assert after[0]["improver"] != before[0]["improver"] and math.isfinite(improvements(events)[1].kl)


def test_imagined_costs_that_are_not_finite_teach_nothing() -> None:
    task = Line()
    agent, events = agent_of(task, "samba", quick_settings(), seed=1)
    agent.tell(real(3))
    before = {**agent.improver.state_dict(), "update": 0}
    object.__setattr__(task, "_cost", lambda x, u: x[..., 0] * torch.nan)
    agent.ask()
    assert agent.multipliers.values == (agent.multipliers.each[0].settings.initial,)
    assert pack({**agent.improver.state_dict(), "update": 0}) == pack(before)
    assert notices(events) == [
        "the policy stays as it was before control iteration 1: the cost or the safety cost of imagined steps is not "
        "finite"
    ]


def test_a_failed_update_is_in_the_metrics_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    improvers: list[Improver] = []
    plain = Improver.advantages

    def remembered(improver: Improver, traces: Any) -> Any:
        improvers.append(improver)
        return plain(improver, traces)

    monkeypatch.setattr(Improver, "advantages", remembered)
    Poison(monkeypatch, "policy", (2,), lambda: improvers[-1])
    train(Line(), preset="smoke", out=tmp_path / "run")
    monkeypatch.undo()
    run = load_run(tmp_path / "run", Line())
    assert any("stays as it was before control iteration" in notice.text for notice in run.notices)
    assert run.evaluate(100).episodes == 10
