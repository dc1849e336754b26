"""The planning policy: memory, plans, noise and camera."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.planet import policy as planning
from samba_rl.planet.planner import CEMPlanner, PlannerSettings
from samba_rl.planet.policy import PlanningPolicy, camera
from samba_rl.tasks import make_task
from samba_rl.tasks.rollout import rollout
from tests.line import Line
from tests.planet.examples import a_policy, quick, seeded


def test_it_remembers_what_it_has_seen_and_done() -> None:
    """The same observation after another past gives another belief; a new episode starts afresh."""
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


def test_a_copy_has_its_own_numbers_but_the_same_camera() -> None:
    settings = quick()
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
    with pytest.raises(UserError, match="safe-fetch-reach: images cannot be drawn from its state alone"):
        camera(make_task("safe-fetch-reach"))


def test_a_picture_of_another_size_is_refused_at_once() -> None:
    class Small(Line):  # type: ignore[misc]
        def draw(self, x: Tensor, u: Tensor | None, size: int):  # type: ignore[no-untyped-def]
            return super().draw(x, u, 48)

    with pytest.raises(UserError, match=r"an image of size 64 is \[48, 48, 3\]"):
        camera(Small())


def test_acting_by_hand_follows_an_episode_and_repeats_itself() -> None:
    policy = a_policy(PlannerSettings(40, 4, 1, 3))
    first, second = policy.begin(1), policy.begin(1)
    steps = [first.act([0.7]), first.act([0.7])]
    assert [one.shape for one in steps] == [(1,), (1,)]
    assert [one.tolist() for one in steps] == [second.act([0.7]).tolist(), second.act([0.7]).tolist()]
    assert policy.act([0.7]).tolist() == steps[0].tolist()
    batch = policy.act(torch.linspace(-50, 50, 30)[:, None])
    assert batch.shape == (30, 1) and batch.dtype == torch.float32 and float(batch.abs().max()) <= 1
    with pytest.raises(UserError, match="observations of 2 episodes; the policy was begun for 1"):
        policy.begin(1).act([[0.1], [0.2]])
