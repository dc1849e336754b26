"""Algorithm 1 on a point on a line: what an agent is told and asked, and what a run may spend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from samba_rl import runs
from samba_rl.agents.agent import Learned
from samba_rl.agents.policy_gradient import Agent
from samba_rl.errors import UserError
from samba_rl.events import Event, ImprovementReport, Notice, TrialReport
from samba_rl.improve.constraints import ConstraintSettings, CVaR, MultiplierSettings
from samba_rl.improve.policies import GaussianPolicy, PolicySettings, UniformPolicy
from samba_rl.improve.step import Control, ControlReport
from samba_rl.improve.updates.batch import UpdateReport
from samba_rl.learners import FirstSettings, ImaginationSettings, Settings, make_settings
from samba_rl.models import world
from samba_rl.models.gp import GPDynamics
from samba_rl.models.world import ModelWorld
from samba_rl.tasks.gym.task import GymTask
from samba_rl.tasks.rollout import RealSource, rollout
from samba_rl.tasks.task import Charges, Step, World
from samba_rl.types import Traces, Transitions
from tests.line import START, Line, spend
from tests.tasks.own_envs import Drift, danger
from tests.threads import one_thread
from tests.traces import by_hand, double, last_layer, seeded

RANDOM = UniformPolicy((-1.0,), (1.0,))
QUICK = replace(
    make_settings("line", preset="smoke"),
    real_samples=40,
    first=FirstSettings(samples=20, how="uniform"),
    policy=PolicySettings(hidden=(8,)),
)
PLAIN = replace(QUICK, zeta="none", feasibility_iterations=0)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def agent_of(task: Line | None = None, settings: Settings = PLAIN, seed: int = 0) -> tuple[Agent, list[Event]]:
    events: list[Event] = []
    return Agent(task or Line(), settings, seed=seed, log=events.append), events


def trials(events: list[Event]) -> list[TrialReport]:
    return [event for event in events if isinstance(event, TrialReport)]


def improvements(events: list[Event]) -> list[ImprovementReport]:
    return [event for event in events if isinstance(event, ImprovementReport)]


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def real(episodes: int, seed: int = 0) -> Traces:
    return rollout(Line().world(), RANDOM, episodes, generator=seeded(seed))


def same(a: Transitions, b: Transitions) -> bool:
    return all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(Transitions))


def same_policy(a: Learned, b: Learned) -> bool:
    mine, other = a.state_dict(), b.state_dict()
    return all(torch.equal(mine[name], other[name]) for name in mine)


# Ask and tell ---------------------------------------------------------------------------------------------------------


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
    assert agent.learning_TC == pytest.approx(3.75) and len(agent.model) == 5
    agent.tell(second)
    assert (agent.real_samples, agent.iteration, agent.learning_TV) == (7, 1, 2)
    assert agent.learning_TC == pytest.approx(4.25) and len(agent.model) == 7
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
    agent, events = agent_of(settings=QUICK)
    agent.tell(real(2))
    policy = agent.ask()
    (first,) = trials(events)
    assert math.isnan(first.predicted_return) and math.isnan(first.predicted_safety) and math.isnan(first.surprise)
    said = improvements(events)
    assert [(each.iteration, each.control, each.controls) for each in said] == [(0, 1, 2), (0, 2, 2)]
    for each in said:
        assert each.values[0] >= 0 and each.targets == pytest.approx((0.85 * 0.75,)) and each.model_zeta > 0
        assert each.model_return < 0 <= each.model_safety and len(each.critic_loss) == 3 and each.kl >= 0
        assert 0.7 <= each.lambda_pi <= 1 and 0 < each.std < 1 and 0 <= each.clipped <= 1
    traces = rollout(Line().world(), policy, 1, generator=seeded(1))
    surprise = agent.model.surprise(traces.transitions())
    agent.tell(traces)
    second = trials(events)[1]
    assert (second.predicted_return, second.predicted_safety) == (said[-1].model_return, said[-1].model_safety)
    assert second.surprise == surprise and math.isfinite(surprise)  # of the model that had not seen the trial
    report = agent.model.report
    assert report is not None and (second.z_std, second.coverage95) == (report.z_std, report.coverage95)


def test_without_exploration_and_limits_the_reports_say_so() -> None:
    agent, events = agent_of(settings=replace(PLAIN, constraint=ConstraintSettings(kind="none")))
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
    assert not events and len(agent.model) == 30 and same(agent.data.transitions, earlier)
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
        mine.log_std.fill_(5.0)
    assert float(agent.policy.std.detach()) < 1


def test_a_failed_fit_is_said() -> None:
    agent, events = agent_of()
    agent.tell(real(1))
    plain = GPDynamics.fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GPDynamics, "fit", lambda self, steps: replace(plain(self, steps), failed=("output 0 diverged",)))
        agent.tell(real(1, seed=1))
    assert notices(events) == ["the model keeps its last good hyper-parameters: output 0 diverged"]


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
        agent, _ = agent_of(settings=QUICK, seed=seed)
        return spend(agent, seed=seed), agent

    (policy, agent), (again, agent_again), (other, agent_other) = once(0), once(0), once(1)
    assert same_policy(policy, again) and same(agent.data.transitions, agent_again.data.transitions)
    assert not same_policy(policy, other) and not same(agent.data.transitions, agent_other.data.transitions)
    assert same_policy(policy, agent.policy)


# The last policy ------------------------------------------------------------------------------------------------------

SPEEDS = (0.1, 0.2, 0.3, 0.35, 0.4)
"""Of the policies after five control iterations; with three candidates the first, third and fifth are kept."""


def going(self: Control, *_: Any) -> ControlReport:
    """Instead of improving the policy, make it go at the next of `SPEEDS`, or whatever stands in their place."""
    with torch.no_grad():
        last_layer(self.policy).weight.zero_()
        last_layer(self.policy).bias.fill_(next(going.speeds))  # type: ignore[attr-defined]
    return ControlReport((1.0,), UpdateReport(0.0, 0.0, 0, (0.0, 0.0)))


def chosen_speed(
    speeds: tuple[float, ...], limit: float, patch: pytest.MonkeyPatch, *, margin: float = 0.0, candidates: int = 3
) -> float:
    """The speed of the policy that the last ask gives, on a model that knows the truth; the goal is 1."""
    patch.setattr(Control, "__call__", going)
    patch.setattr(going, "speeds", iter(speeds), raising=False)
    patch.setattr(
        import_module("samba_rl.agents.policy_gradient"),
        "ModelSource",
        lambda model, *_: RealSource(model.task.world()),
    )
    settings = replace(
        PLAIN,
        constraint=ConstraintSettings(limit=limit),
        multiplier=MultiplierSettings(margin=margin),
        imagination=ImaginationSettings(last_iterations=len(speeds), trajectories=20, candidates=candidates),
        policy=PolicySettings(hidden=(8,), std=1e-3, std_floor_first=1e-3, std_floor=1e-3, mean_bound=None),
    )
    agent, _ = agent_of(Line(goal=1.0), settings)
    agent.tell(real(1))
    policy = agent.ask(last=True)
    assert isinstance(policy, GaussianPolicy) and same_policy(policy, agent.policy)
    return round(float(policy.mean_action(double([[0.0]]))), 6)


def steadily(speed: float) -> Traces:
    """The truth at this speed."""
    return rollout(Line(goal=1.0).world(), lambda o, _: torch.full_like(o, speed), 1000, generator=seeded(0))


def tail(speed: float) -> float:
    """The CVaR of an episode's safety cost at this speed."""
    return CVaR(name="edge", limit=1.0).measure(steadily(speed))


def test_faster_is_cheaper_and_less_safe_as_the_tests_below_need_it() -> None:
    returns = [float(steadily(speed).returns.mean()) for speed in SPEEDS]
    assert returns == sorted(returns)
    assert tail(0.1) == 0 == tail(0.2) < 0.05 < tail(0.3) < tail(0.35) < tail(0.4) < tail(0.9)


@pytest.mark.parametrize(
    ("speeds", "limit", "expected"),
    [
        (SPEEDS, 0.05, 0.1),  # only one keeps to the limit, and the next best is not kept
        ((0.1, 0.9, 0.2, 0.9, 0.4), 0.05, 0.2),  # of two that keep to it the cheaper
        ((0.4, 0.1, 0.2, 0.1, 0.1), 0.05, 0.2),  # wherever it stands
        (SPEEDS, 50.0, 0.4),  # all keep to it
        ((0.4, 0.1, 0.35, 0.1, 0.9), 0.01, 0.35),  # none does: the least excess
    ],
)
def test_the_last_policy_is_the_cheapest_kept_one_that_keeps_to_the_limit_or_else_the_safest(
    speeds: tuple[float, ...], limit: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen_speed(speeds, limit, monkeypatch) == pytest.approx(expected)


@pytest.mark.parametrize(("margin", "expected"), [(0.0, 0.35), (0.15, 0.3)])
def test_the_last_policy_keeps_to_the_target_below_the_limit(
    margin: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = (0.3, 0.9, 0.35, 0.9, 0.4)
    assert chosen_speed(speeds, 1.08 * tail(0.35), monkeypatch, margin=margin) == pytest.approx(expected)


def test_with_one_candidate_the_last_policy_is_the_last() -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert chosen_speed(SPEEDS, 0.05, patch, candidates=1) == pytest.approx(0.4)


def test_before_the_last_ask_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Agent, "_choose", lambda self, kept: pytest.fail("nothing to choose from"))
    agent, _ = agent_of()
    agent.tell(real(1))
    agent.ask()


# A policy that is stranded --------------------------------------------------------------------------------------------


def test_a_policy_where_the_cost_is_flat_starts_afresh_for_the_cost_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, events = agent_of(settings=replace(QUICK, feasibility_iterations=0))
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
    first, old = policy.network[0].weight, before.network[0].weight
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


# Where imagined episodes begin ----------------------------------------------------------------------------------------


class Rig:
    """The line as a rig that chooses its start states itself."""

    def __init__(self, task: Line) -> None:
        self.task = task

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        return torch.empty(n, 1, dtype=torch.float64).uniform_(*START, generator=generator)

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        never = torch.zeros(len(x), dtype=torch.bool)
        charges: Charges = self.task.charge(x, u, x + u)
        return Step(x + u, charges, never, never)

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


def test_where_a_start_moves_a_rig_imagined_episodes_begin_where_real_ones_did(monkeypatch: pytest.MonkeyPatch) -> None:
    imagined: list[tuple[set[float], set[float]]] = []
    agent, events = agent_of(Line(pure_start=False), replace(QUICK, feasibility_iterations=1))

    def watched(world: World, *arguments: Any, **more: Any) -> Traces:
        traces = rollout(world, *arguments, **more)
        if not isinstance(world, ModelWorld):
            return traces
        steps = agent.data.transitions
        imagined.append((set(traces.x[:, 0, 0].tolist()), set(steps.x[steps.step == 0, 0].tolist())))
        return traces

    def refuse(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("the rig moves")

    monkeypatch.setattr(Line, "start", refuse)
    monkeypatch.setattr(world, "rollout", watched)
    spend(agent, Rig(Line(pure_start=False)))
    assert len(trials(events)) == 3 and len(imagined) >= 3 * 2 + 2
    assert all(begun <= real_ones for begun, real_ones in imagined)
    assert imagined[0][0] == imagined[0][1] and len(imagined[0][1]) == 2 and len(imagined[-1][1]) == 4
    # A system whose start is pure is asked for it.
    with pytest.raises(RuntimeError, match="the rig moves"):
        spend(agent_of()[0], Rig(Line()))


class Counted(Drift):
    """Counts its resets."""

    resets = 0

    def reset(self, **arguments: Any) -> Any:
        self.resets += 1
        return super().reset(**arguments)


def test_a_rig_is_reset_once_for_each_real_episode() -> None:
    env = Counted()
    task = GymTask(env, cost=lambda x, u: x[..., 0].square(), safety=danger, horizon=10)
    assert env.resets == 0 and not task.pure_start and not task.parallel
    run = runs.train(task, preset="smoke", real_samples=60, first={"samples": 20}, episodes=2, feasibility_iterations=1)
    assert run.data.episodes == env.resets == 6 and 50 < len(run.data) <= 60
