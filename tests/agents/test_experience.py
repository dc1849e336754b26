"""Where traces come from: a model that fails keeps its last good state, and a real trial is learned from once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from samba_rl import runs
from samba_rl.agents.policy_gradient import Agent
from samba_rl.data.packing import pack, unpack
from samba_rl.errors import UserError
from samba_rl.models import world
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import Hyper, HyperFit
from samba_rl.models.world import ModelWorld
from samba_rl.tasks.gym.task import GymTask
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.world import Charges, Step, World
from samba_rl.types import Traces
from tests.agents.agents import QUICK, agent_of, improvements, model_of, notices, real, trials
from tests.line import START, Line, quick_settings, spend
from tests.tasks.own_envs import Drift, danger
from tests.threads import one_thread
from tests.traces import seeded


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


# A model that fails ---------------------------------------------------------------------------------------------------


def test_a_failed_fit_is_reported() -> None:
    agent, events = agent_of()
    agent.tell(real(1))
    plain = GPDynamics.fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GPDynamics, "fit", lambda self, steps: replace(plain(self, steps), failed=("output 0 diverged",)))
        agent.tell(real(1, seed=1))
    assert notices(events) == ["the model keeps its last good hyper-parameters: output 0 diverged"]


def test_a_model_that_is_not_finite_keeps_its_last_good_hyper_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, events = agent_of(learner="samba", settings=quick_settings(), seed=1)
    agent.tell(real(3))
    good = model_of(agent)._hyper
    assert isinstance(good, Hyper)
    bad = replace(good, noise=good.noise * math.nan)
    monkeypatch.setattr("samba_rl.models.gp.fit_any_hyper", lambda *_, **__: HyperFit(bad, (0.0,), 1, 0.0, ()))
    agent.tell(real(3, seed=1))
    assert model_of(agent)._hyper is good and len(model_of(agent)) == len(agent.data) == 60
    assert any("the model keeps its last good hyper-parameters" in text for text in notices(events))
    agent.ask()


def test_a_model_that_cannot_take_in_the_last_trial_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, events = agent_of(learner="samba", settings=quick_settings(), seed=1)
    agent.tell(real(3))
    before = model_of(agent).state_dict()
    fit = GPDynamics.fit

    def fail(self: GPDynamics, transitions: Any) -> None:
        raise UserError("the covariance has no Cholesky factor")

    monkeypatch.setattr(GPDynamics, "fit", fail)
    agent.tell(real(3, seed=1))
    assert pack(model_of(agent).state_dict()) == pack(before)
    assert len(model_of(agent)) == 30 and len(agent.data) == 60
    assert any("stays as it was before the last trial: the covariance has no Chol" in text for text in notices(events))
    state = unpack(pack(agent.state_dict()))
    monkeypatch.setattr(GPDynamics, "fit", fit)
    other, _ = agent_of(learner="samba", settings=quick_settings(), seed=9)
    list(other.load_state_dict(state, agent.data))
    assert pack(model_of(other).state_dict()) == pack(before)
    monkeypatch.setattr(GPDynamics, "fit", fail)
    with pytest.raises(UserError, match="Cholesky"):
        agent_of()[0].tell(real(3))


# Real trials ----------------------------------------------------------------------------------------------------------


def networks(agent: Agent) -> bytes:
    """Return policy and critics, without the floor of the noise, which depends on the samples that are left."""
    state = agent.improver.state_dict()
    return pack({"policy": state["policy"], "critics": state["critics"]})


@pytest.mark.parametrize("learner", ["ppo", "sppo", "trpo", "strpo", "cpo"])
def test_a_real_trial_is_learned_from_once_and_only_if_it_is_the_policys_own(learner: str) -> None:
    agent, events = agent_of(learner=learner, settings=quick_settings(learner), seed=1)
    agent.tell(real(3))
    before = networks(agent)
    policy = first = agent.ask()
    assert networks(agent) == before and agent.model is None and agent.model_state() == {}
    for number in range(1, 3):
        traces = rollout(Line().world(), policy, 40, generator=seeded(number))
        agent.tell(traces)
        policy = agent.ask()
        assert len(improvements(events)) == number
        now = networks(agent)
        assert now != before
        agent.ask()
        assert networks(agent) == now
    own = rollout(Line().world(), first, 40, generator=seeded(1))
    reports = improvements(events)
    assert reports[0].model_return == pytest.approx(float(own.returns.mean()))
    assert all(math.isfinite(report.kl) for report in reports)


def test_a_real_trial_that_is_still_to_be_learned_from_is_part_of_the_state() -> None:
    agent, _ = agent_of(learner="sppo", settings=quick_settings("sppo"), seed=1)
    agent.tell(real(3))
    agent.tell(rollout(Line().world(), agent.ask(), 40, generator=seeded(1)))
    other, _ = agent_of(learner="sppo", settings=quick_settings("sppo"), seed=2)
    list(other.load_state_dict(unpack(pack(agent.state_dict())), agent.data))
    for one in (agent, other):
        one.ask()
    assert networks(agent) == networks(other) and other.state_dict()["experience"] == {"told": None}


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
    agent, events = agent_of(Line(pure_start=False), "samba", replace(QUICK, feasibility_iterations=1))

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
