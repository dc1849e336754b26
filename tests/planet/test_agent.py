"""PlaNet's agent: learning, reports, continuing from its state, and whole runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from samba_rl.data.packing import pack, unpack
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Event, LatentReport, Notice, TrialReport
from samba_rl.improve.constraints import CVaR
from samba_rl.improve.policies import UniformPolicy
from samba_rl.learners import LEARNERS
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.planet import agent as planet_agent
from samba_rl.planet.agent import PlanetAgent
from samba_rl.planet.evidence import Evidence, negative_evidence
from samba_rl.planet.latent import LatentModel
from samba_rl.planet.policy import PlanningPolicy
from samba_rl.planet.replay import Sequences
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import make_agent, make_settings
from samba_rl.runs import load_run, resume, train
from samba_rl.runs.evaluation import evaluate
from samba_rl.tasks import make_task
from samba_rl.tasks.rollout import rollout
from tests.line import Line, quick_settings
from tests.planet.examples import an_agent, quick, random_trial, seeded


def learned(agent: PlanetAgent) -> bytes:
    return pack(agent.state_dict()["policy"])


# Learning -------------------------------------------------------------------------------------------------------------


def test_it_learns_the_line(line_policy: PlanningPolicy) -> None:
    assert evaluate(Line(), line_policy, steps=500).return_mean > -6.0  # the best is about -3.6, a random one -45


def test_collecting_is_noisy_and_the_last_policy_is_not() -> None:
    agent = an_agent()
    agent.tell(random_trial())
    collecting, last = agent.ask(), agent.ask(last=True)
    assert isinstance(collecting, PlanningPolicy) and isinstance(last, PlanningPolicy)
    assert collecting.noise == 0.3 and last.noise == agent.policy.noise == 0
    assert not torch.equal(collecting.model.embed.weight, last.model.embed.weight)  # a copy: it learned on


def test_it_reports_its_learning_and_what_it_expected_of_a_trial() -> None:
    events: list[Event] = []
    settings = quick()
    agent = an_agent("planet", settings, seed=0, log=events.append)
    agent.tell(random_trial())
    policy = agent.ask()
    reports = [event for event in events if isinstance(event, LatentReport)]
    assert [(each.update, each.updates) for each in reports] == [(25, 100), (50, 100), (75, 100), (100, 100)]
    assert reports[-1].loss < reports[0].loss
    traces = rollout(Line().world(), policy, 5, generator=seeded(1))
    agent.tell(traces)
    first, second = (event for event in events if isinstance(event, TrialReport))
    assert math.isnan(first.predicted_return) and second.return_mean == pytest.approx(float(traces.returns.mean()))
    model = agent.policy.model
    _, outcome = model.open_loop(traces.observation[:, 0], traces.u.float())
    assert second.predicted_return == pytest.approx(-float(outcome[..., 0].sum(1).mean()), rel=1e-4)
    agent.ask()
    assert len([e for e in events if isinstance(e, LatentReport)]) == 4 + 2  # 40 more steps: at 25 and at the end


def test_what_was_expected_ends_with_the_episode() -> None:
    agent = an_agent()
    agent.tell(random_trial())
    agent.ask()
    traces = random_trial(4, 1)
    cut = traces.active.clone()
    cut[:, 3:] = False
    events: list[Event] = []
    agent.log = events.append
    agent.tell(replace(traces, active=cut, cost=traces.cost * cut, safety=traces.safety * cut[..., None]))
    (report,) = (event for event in events if isinstance(event, TrialReport))
    _, outcome = agent.policy.model.open_loop(traces.observation[:, 0], traces.u.float())
    assert report.predicted_return == pytest.approx(-float(outcome[:, :3, 0].sum(1).mean()), rel=1e-4)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_the_rate_falls_to_a_share(share: float) -> None:
    settings = quick()
    latent = replace(settings.latent, updates=1, first_updates=1, last_rate=share)
    agent = an_agent("planet", replace(settings, latent=latent))
    agent.tell(random_trial(20))
    rates = []
    for last in (False, True):
        agent.ask(last=last)
        rates.append(agent._optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([5e-3 * share**0.5, 5e-3 * share])
    assert quick().latent.last_rate == 0.1


def test_a_gradient_that_is_not_finite_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    agent = an_agent(log=events.append)
    agent.tell(random_trial())
    before = learned(agent)

    def broken(model: LatentModel, sequences: Sequences, generator: torch.Generator) -> Evidence:
        found = negative_evidence(model, sequences, generator)
        return found._replace(loss=found.loss * math.nan)

    monkeypatch.setattr(planet_agent, "negative_evidence", broken)
    agent.ask()
    assert learned(agent) == before
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert notices == ["the model stays as it was before gradient step 1: it is not finite"]


def test_it_learns_from_pictures() -> None:
    settings = quick()
    latent = replace(settings.latent, observation="pixels", channels=2, updates=2, first_updates=30)
    events: list[Event] = []
    agent = an_agent("planet", replace(settings, latent=latent), log=events.append)
    agent.tell(random_trial())
    policy = agent.ask()
    losses = [event.observation for event in events if isinstance(event, LatentReport)]
    assert losses[-1] < losses[0]
    traces = rollout(Line().world(), policy, 2, generator=seeded(0))
    agent.tell(traces)
    assert traces.observation.shape[-1] == 1  # what is kept is what was measured


# Units ----------------------------------------------------------------------------------------------------------------


def test_the_weight_is_in_units_of_the_first_costs() -> None:
    agent = an_agent("planet-rs")
    traces = random_trial()
    agent.tell(traces)
    assert float(agent.policy.safety_weight) == pytest.approx(1.5 * float(traces.cost.mean()))
    plain = an_agent()
    plain.tell(traces)
    assert float(plain.policy.safety_weight) == 0


class PositiveReward(Line):  # type: ignore[misc]  # of a final class
    """A line whose reward is mostly positive, because its cost has another offset."""

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        return super()._cost(x, u) - 100


def test_costs_below_zero_are_measured_by_their_size() -> None:
    agent = an_agent("planet-rs", task=PositiveReward())
    traces = random_trial(task=PositiveReward())
    agent.tell(traces)
    size = float(traces.cost.abs().mean())
    assert float(traces.cost.mean()) < 0 and float(agent.policy.safety_weight) == pytest.approx(1.5 * size)
    assert float(agent.policy.model.outcome_scale[0]) == pytest.approx(
        max(float(traces.cost.std(correction=0)), 0.3 * size), rel=1e-5
    )


# Continuing -----------------------------------------------------------------------------------------------------------


def test_an_agent_goes_on_from_its_state_at_every_report() -> None:
    """Broken off at any report and put together from its state, it ends with the same numbers."""

    settings = quick()
    settings = replace(settings, latent=replace(settings.latent, updates=30, first_updates=30, batch=5))

    def whole(stop_at: int | None) -> bytes:
        count = 0

        def log(event: Event) -> None:
            nonlocal count
            count += 1
            if count == stop_at:
                raise Stopped("here")

        agent = an_agent("planet", settings, seed=3, log=log)
        trials = [random_trial(5, seed) for seed in range(3)]
        told = 0
        while told < 3:
            try:
                agent.tell(trials[told])
            except Stopped:
                agent = again(agent)
            told += 1
            try:
                agent.ask()
            except Stopped:
                agent = again(agent)
                agent.ask()
        return learned(agent)

    def again(agent: PlanetAgent) -> PlanetAgent:
        other = an_agent("planet", settings, seed=99)
        assert not list(other.load_state_dict(unpack(pack(agent.state_dict())), agent.data))
        return other

    expected = whole(None)
    assert all(whole(stop_at) == expected for stop_at in range(1, 10))


def test_a_state_is_taken_by_an_agent_that_knows_other_data() -> None:
    agent, used = (an_agent() for _ in range(2))
    agent.tell(random_trial(5, 0))
    used.tell(random_trial(5, 1))
    assert not list(used.load_state_dict(agent.state_dict(), agent.data))
    one, other = (each._replay.draw(4, 10, seeded(0)) for each in (agent, used))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# Mistakes -------------------------------------------------------------------------------------------------------------


def test_settings_of_another_family_are_refused() -> None:
    with pytest.raises(UserError, match="PlanetSettings are not for a learner on a GP model; make_settings"):
        make_agent(Line(), "samba", quick())
    with pytest.raises(UserError, match="ModelBasedSettings are not for a learner on a latent model"):
        make_agent(Line(), "planet", quick_settings("samba"))


def test_a_planner_knows_neither_zeta_nor_limits() -> None:
    row = LEARNERS["planet"]
    with pytest.raises(UserError, match="a latent model minimises cost, information; give cost, alone or with safety"):
        row.with_zeta(LeaveOneOut())
    with pytest.raises(UserError, match="a planner on a latent model has no limits"):
        replace(row, constraint=CVaR)


def test_an_agent_that_was_told_nothing_cannot_be_asked() -> None:
    with pytest.raises(UserError, match="nothing is known of line yet"):
        an_agent().ask()


# Runs -----------------------------------------------------------------------------------------------------------------


def test_a_run_is_written_loaded_and_evaluated(tmp_path: Path) -> None:
    run = train("safe-pendulum", "planet-rs", preset="smoke", out=tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    assert pack(run.policy.state_dict()) == pack(loaded.policy.state_dict())
    assert run.evaluate(200, seed=0) == loaded.evaluate(200, seed=0)
    assert isinstance(loaded.policy, PlanningPolicy) and float(loaded.policy.safety_weight) > 0
    with pytest.raises(UserError, match=r"planet-rs has no GP model; its latent model is run\.policy\.model"):
        _ = loaded.model


def test_a_run_on_pictures_resumes_to_the_same_end(tmp_path: Path) -> None:
    latent = {"observation": "pixels", "channels": 2, "updates": 2, "first_updates": 3, "batch": 4}
    changes = {"preset": "smoke", "latent": latent}
    whole = train("safe-pendulum", "planet", **changes)  # type: ignore[arg-type]
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 5

    with pytest.raises(Stopped):
        train("safe-pendulum", "planet", out=tmp_path / "run", stop=stop, **changes)  # type: ignore[arg-type]
    assert pack(resume(tmp_path / "run").policy.state_dict()) == pack(whole.policy.state_dict())


def test_a_trained_model_predicts_safe_pendulum_better_than_that_nothing_changes() -> None:
    """Open loop over 15 steps under random torques, observation by observation."""
    task = make_task("safe-pendulum")
    settings = make_settings("safe-pendulum", "planet")
    assert isinstance(settings, PlanetSettings)
    settings = replace(settings, latent=replace(settings.latent, first_updates=250))
    agent = an_agent("planet", settings, task=task)
    uniform = UniformPolicy((-2.0,), (2.0,))
    agent.tell(rollout(task.world(), uniform, 30, generator=seeded(0)))
    agent.ask()
    fresh = rollout(task.world(), uniform, 200, generator=seeded(1))
    policy = agent.policy
    seen, outcome = policy.model.open_loop(fresh.observation[:, 0], policy.raw(fresh.u[:, :15]))
    scale = policy.model.scale
    later = fresh.observation[:, 1:16].float()
    error = ((seen[:, :15] - later) / scale).square().mean((0, 2))
    still = ((fresh.observation[:, :1].float() - later) / scale).square().mean((0, 2))
    assert float(error.mean()) < 0.2 * float(still.mean()) and bool((error < 0.5 * still)[1:].all())
    cost, expected = fresh.cost[:, :15].float(), outcome[..., 0]
    assert float((cost - expected).square().mean()) < 0.3 * float(cost.var())
