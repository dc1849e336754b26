"""PlaNet: the policy that plans, and the agent around it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from samba_rl.agents.policy_gradient import Agent
from samba_rl.data.packing import pack, unpack
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Event, LatentReport, Notice, TrialReport
from samba_rl.improve.policies import UniformPolicy
from samba_rl.learners import make_agent, make_settings
from samba_rl.planet import policy as planning
from samba_rl.planet.agent import PlanetAgent
from samba_rl.planet.planner import CEMPlanner, PlannerSettings
from samba_rl.planet.policy import PlanningPolicy, camera
from samba_rl.runs import load_run, resume, train
from samba_rl.runs.evaluation import evaluate
from samba_rl.tasks import make_task
from samba_rl.tasks.rollout import rollout
from samba_rl.types import Traces
from tests.line import Line, quick_settings, spend
from tests.threads import one_thread


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_trial(n: int = 10, seed: int = 0, task: Line | None = None) -> Traces:
    return rollout((task or Line()).world(), UniformPolicy((-1.0,), (1.0,)), n, generator=seeded(seed))


def learned(agent: PlanetAgent) -> bytes:
    return pack(agent.state_dict()["policy"])


@pytest.fixture(autouse=True, scope="module")
def single() -> Iterator[None]:
    """Small networks are quicker so."""
    with one_thread():
        yield


@pytest.fixture(scope="module")
def line_policy() -> PlanningPolicy:
    """One that has learned the line."""
    policy = spend(make_agent(Line(), quick_settings("planet"), seed=0))
    assert isinstance(policy, PlanningPolicy)
    return policy


# The policy -----------------------------------------------------------------------------------------------------------


def a_policy(planner: PlannerSettings | None = None, seed: int = 0) -> PlanningPolicy:
    settings = quick_settings("planet")
    return PlanningPolicy(Line(), settings.latent, planner or settings.planner, seeded(seed))


def test_it_remembers_what_it_has_seen_and_done() -> None:
    """The same observation leaves another belief after another past; afresh all begins as it did at first."""
    policy = a_policy(PlannerSettings(40, 4, 1, 3))
    seen = torch.full((1, 1), 0.7, dtype=torch.float64)

    def then(first: float) -> Tensor:
        acting = policy.begin(1)
        acting(torch.full((1, 1), first, dtype=torch.float64), seeded(0))
        acting(seen, seeded(1))
        return acting._h

    assert torch.equal(then(0.1), then(0.1)) and not torch.allclose(then(0.1), then(2.0))
    assert torch.equal(policy(seen, seeded(1)), policy.begin(1)(seen, seeded(1)))


def test_what_was_done_last_is_what_the_noise_made_of_it() -> None:
    policy = a_policy().with_noise(0.5)
    acting, seen = policy.begin(1), torch.full((1, 1), 0.7, dtype=torch.float64)
    done = acting(seen, seeded(0))
    model = policy.model
    assert torch.allclose(acting._h, model(model.see(model.begin(1), seen), policy.raw(done)))


def test_systems_at_once_are_planned_each_by_its_own(line_policy: PlanningPolicy) -> None:
    """Many more than are judged together; each as if it were alone, but for the random numbers."""
    seen = torch.linspace(-3, 1, 50, dtype=torch.float64)[:, None]
    together = line_policy(seen, seeded(0))
    alone = torch.cat([line_policy(one[None], seeded(1)) for one in seen])
    assert float((together - alone).abs().mean()) < 0.15
    assert float(together[0]) > 0.8 and float(together[-1]) < -0.3


def test_noise_is_added_only_when_asked_for_and_stays_within_the_bounds() -> None:
    policy = a_policy()
    seen = torch.zeros(200, 1, dtype=torch.float64)
    loud = policy.with_noise(5.0)
    assert policy.noise == 0 and float(loud(seen, seeded(0)).abs().max()) == 1
    assert float(loud(seen, seeded(0)).std()) > 0.8 > float(policy(seen, seeded(0)).std())


def test_a_plan_looks_no_further_than_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = a_policy(PlannerSettings(10, 2, 1, 4))
    looked: list[int] = []
    judged = type(policy.model).imagine

    def imagine(self, belief, actions, weight=0.0):  # type: ignore[no-untyped-def]
        looked.append(actions.shape[2])
        return judged(self, belief, actions, weight)

    monkeypatch.setattr(type(policy.model), "imagine", imagine)
    rollout(Line().world(), policy, 2, generator=seeded(0))
    assert looked == [4] * 7 + [3, 2, 1]
    acting = policy.begin(1)
    for _ in range(12):
        acting(torch.zeros(1, 1), seeded(0))
    assert looked[-1] == 4  # beyond the horizon nobody knows when it ends


def test_a_copy_has_its_own_numbers_but_the_same_camera() -> None:
    settings = quick_settings("planet")
    policy = PlanningPolicy(Line(), replace(settings.latent, observation="pixels"), settings.planner, seeded(0))
    other = copy.deepcopy(policy)
    with torch.no_grad():
        other.model.embed.weight.add_(1)
    assert not torch.equal(policy.model.embed.weight, other.model.embed.weight)
    assert policy.camera is other.camera is not None


def test_the_camera_draws_states_and_refuses_a_simulator() -> None:
    look = camera(Line())
    pictures = look(torch.tensor([[0.0], [2.0]], dtype=torch.float64))
    assert pictures.shape == (2, 3, 64, 64) and pictures.dtype == torch.uint8
    assert pictures[0, 0, 32].argmin() == 32 and pictures[1, 0, 32].argmin() == 48
    with pytest.raises(UserError, match="safe-fetch-reach: pictures cannot be drawn from its state alone"):
        camera(make_task("safe-fetch-reach"))


# The agent ------------------------------------------------------------------------------------------------------------


def test_it_learns_the_line(line_policy: PlanningPolicy) -> None:
    assert evaluate(Line(), line_policy, steps=500).return_mean > -6.0  # the best is about -3.6, a random one -45


def test_the_weight_is_in_units_of_the_first_costs() -> None:
    agent = PlanetAgent(Line(), quick_settings("planet-rs"))
    traces = random_trial()
    agent.tell(traces)
    assert float(agent.policy.safety_weight) == pytest.approx(1.5 * float(traces.cost.mean()))
    plain = PlanetAgent(Line(), quick_settings("planet"))
    plain.tell(traces)
    assert float(plain.policy.safety_weight) == 0


def test_it_reports_its_learning_and_what_it_expected_of_a_trial() -> None:
    events: list[Event] = []
    settings = quick_settings("planet")
    agent = PlanetAgent(Line(), settings, seed=0, log=events.append)
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


def test_collecting_is_noisy_and_the_last_policy_is_not() -> None:
    agent = PlanetAgent(Line(), quick_settings("planet"))
    agent.tell(random_trial())
    collecting, last = agent.ask(), agent.ask(last=True)
    assert isinstance(collecting, PlanningPolicy) and isinstance(last, PlanningPolicy)
    assert collecting.noise == 0.3 and last.noise == agent.policy.noise == 0
    assert not torch.equal(collecting.model.embed.weight, last.model.embed.weight)  # a copy: it learned on


def test_an_agent_goes_on_from_its_state_at_every_report() -> None:
    """Broken off at any report and put together from its state, it ends with the same numbers."""

    settings = quick_settings("planet")
    settings = replace(settings, latent=replace(settings.latent, updates=30, first_updates=30, batch=5))

    def whole(stop_at: int | None) -> bytes:
        count = 0

        def log(event: Event) -> None:
            nonlocal count
            count += 1
            if count == stop_at:
                raise Stopped("here")

        agent = PlanetAgent(Line(), settings, seed=3, log=log)
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
        other = PlanetAgent(Line(), settings, seed=99)
        other.load_state_dict(unpack(pack(agent.state_dict())), agent.data)
        return other

    expected = whole(None)
    assert all(whole(stop_at) == expected for stop_at in range(1, 10))


def test_a_gradient_that_is_not_finite_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    agent = PlanetAgent(Line(), quick_settings("planet"), log=events.append)
    agent.tell(random_trial())
    before = learned(agent)
    model = type(agent._policy.model)
    evidence = model.evidence

    def broken(self, seen, generator):  # type: ignore[no-untyped-def]
        found = evidence(self, seen, generator)
        return found._replace(loss=found.loss * math.nan)

    monkeypatch.setattr(model, "evidence", broken)
    agent.ask()
    assert learned(agent) == before
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert notices == ["the model stays as it was before gradient step 1: it is not finite"]


def test_it_learns_from_pictures() -> None:
    settings = quick_settings("planet")
    latent = replace(settings.latent, observation="pixels", channels=2, updates=2, first_updates=30)
    events: list[Event] = []
    agent = PlanetAgent(Line(), replace(settings, latent=latent), log=events.append)
    agent.tell(random_trial())
    policy = agent.ask()
    losses = [event.observation for event in events if isinstance(event, LatentReport)]
    assert losses[-1] < losses[0]
    traces = rollout(Line().world(), policy, 2, generator=seeded(0))
    agent.tell(traces)
    assert traces.observation.shape[-1] == 1  # what is kept is what was measured


def test_agents_say_which_settings_are_anothers() -> None:
    with pytest.raises(UserError, match="another agent: make_agent"):
        Agent(Line(), quick_settings("planet"))
    with pytest.raises(UserError, match="traces = 'model' is another agent's"):
        PlanetAgent(Line(), quick_settings("samba"))
    with pytest.raises(UserError, match="nothing is known of line yet"):
        PlanetAgent(Line(), quick_settings("planet")).ask()
    with pytest.raises(UserError, match="knows neither zeta nor limits"):
        replace(quick_settings("planet"), zeta="loo")


# Runs -----------------------------------------------------------------------------------------------------------------


def test_a_run_is_written_loaded_and_evaluated(tmp_path: Path) -> None:
    run = train("safe-pendulum", "planet-rs", preset="smoke", out=tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    assert pack(run.policy.state_dict()) == pack(loaded.policy.state_dict())
    assert run.evaluate(200) == loaded.evaluate(200)
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
    settings = replace(settings, latent=replace(settings.latent, first_updates=250))
    agent = PlanetAgent(task, settings, seed=0)
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


# Costs, parts and ends ------------------------------------------------------------------------------------------------


class Dear(Line):  # type: ignore[misc]  # of a final class
    """Another offset of the cost: a reward that is mostly positive."""

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        return super()._cost(x, u) - 100


def test_costs_below_zero_are_measured_by_their_size() -> None:
    agent = PlanetAgent(Dear(), quick_settings("planet-rs"))
    traces = random_trial(task=Dear())
    agent.tell(traces)
    size = float(traces.cost.abs().mean())
    assert float(traces.cost.mean()) < 0 and float(agent.policy.safety_weight) == pytest.approx(1.5 * size)
    assert float(agent.policy.model.outcome_scale[0]) == pytest.approx(
        max(float(traces.cost.std(correction=0)), 0.3 * size), rel=1e-5
    )


def test_the_safety_cost_weighs_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, weights = a_policy(), []
    judged = type(policy.model).imagine

    def imagine(self, belief, actions, weight=0.0):  # type: ignore[no-untyped-def]
        weights.append(weight)
        return judged(self, belief, actions, weight)

    monkeypatch.setattr(type(policy.model), "imagine", imagine)
    policy.safety_weight.fill_(2.5)
    policy(torch.zeros(1, 1), seeded(0))
    assert set(weights) == {2.5}


def test_parts_of_a_batch_keep_their_own_plans(line_policy: PlanningPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged a few at a time, two steps long: each system does what it would do alone."""
    monkeypatch.setattr(planning, "AT_ONCE", 7 * line_policy.planner.candidates)
    seen = torch.linspace(-3, 1, 30, dtype=torch.float64)[:, None]
    many = line_policy.begin(30)
    first = many(seen, seeded(0))
    second = many(seen + first, seeded(1))
    for i in (0, 8, 29):
        one = line_policy.begin(1)
        action = one(seen[i : i + 1], seeded(2))
        assert float((action - first[i]).abs()) < 0.4
        assert float((one(seen[i : i + 1] + action, seeded(3)) - second[i]).abs()) < 0.4
    assert float(first[0]) > 0.8 and float(first[-1]) < -0.3


@pytest.mark.parametrize("warm", [True, False])
def test_the_next_plan_begins_with_what_is_left(warm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = a_policy(PlannerSettings(20, 4, 2, 3, warm_start=warm))
    plans = []
    search = CEMPlanner.__call__

    def planned(self, judge, mean, generator):  # type: ignore[no-untyped-def]
        plans.append((mean.clone(), search(self, judge, mean, generator)))
        return plans[-1][1]

    monkeypatch.setattr(CEMPlanner, "__call__", planned)
    acting = policy.begin(1)
    for seed in (0, 1):
        acting(torch.zeros(1, 1), seeded(seed))
    (_, found), (begun, _) = plans
    left = torch.cat([found[:, 1:], torch.zeros(1, 1, 1)], 1) if warm else torch.zeros(1, 3, 1)
    assert torch.equal(begun, left)


def test_what_was_expected_ends_with_the_episode() -> None:
    agent = PlanetAgent(Line(), quick_settings("planet"))
    agent.tell(random_trial())
    agent.ask()
    traces = random_trial(4, 1)
    cut = traces.active.clone()
    cut[:, 3:] = False
    events: list[Event] = []
    agent._log = events.append
    agent.tell(replace(traces, active=cut, cost=traces.cost * cut, safety=traces.safety * cut[..., None]))
    (report,) = (event for event in events if isinstance(event, TrialReport))
    _, outcome = agent.policy.model.open_loop(traces.observation[:, 0], traces.u.float())
    assert report.predicted_return == pytest.approx(-float(outcome[:, :3, 0].sum(1).mean()), rel=1e-4)


def test_the_rate_falls_to_a_tenth() -> None:
    settings = quick_settings("planet")
    agent = PlanetAgent(Line(), replace(settings, latent=replace(settings.latent, updates=1, first_updates=1)))
    agent.tell(random_trial(20))
    rates = []
    for last in (False, True):
        agent.ask(last=last)
        rates.append(agent._optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([5e-3 * 0.1**0.5, 5e-4])


def test_a_state_is_taken_by_an_agent_that_knows_other_data() -> None:
    agent, used = (PlanetAgent(Line(), quick_settings("planet")) for _ in range(2))
    agent.tell(random_trial(5, 0))
    used.tell(random_trial(5, 1))
    used.load_state_dict(agent.state_dict(), agent.data)
    one, other = (each._replay.draw(4, 10, seeded(0)) for each in (agent, used))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_nobody_plans_for_episodes_that_have_ended() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Short(Line):  # type: ignore[misc]
        def done(self, x: Tensor, recent: Tensor) -> Tensor:
            return torch.ones(len(x), dtype=torch.bool)

    policy = a_policy(PlannerSettings(10, 2, 1, 4))
    asked = 0
    begin = policy.begin

    def counted(n: int):  # type: ignore[no-untyped-def]
        acting = begin(n)

        def act(observation: Tensor, generator: torch.Generator) -> Tensor:
            nonlocal asked
            asked += 1
            return acting(observation, generator)

        return act

    policy.begin = counted  # type: ignore[method-assign]
    traces = rollout(Short().world(), policy, 3, generator=seeded(0))
    assert asked == 1 and traces.active.shape == (3, 10) and traces.steps == 3
    assert traces.x.shape == (3, 11, 1) and float(traces.cost[:, 1:].abs().sum()) == 0


def test_a_picture_of_another_size_is_refused_at_once() -> None:
    class Small(Line):  # type: ignore[misc]
        def draw(self, x: Tensor, u: Tensor | None, size: int):  # type: ignore[no-untyped-def]
            return super().draw(x, u, 48)

    with pytest.raises(UserError, match=r"a picture of size 64 is \[48, 48, 3\]"):
        camera(Small())
