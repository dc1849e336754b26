"""Presets: the numbers of each family of learners, by system."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from samba_rl.agents.policy_gradient import Agent
from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.errors import UserError
from samba_rl.events import Event
from samba_rl.improve.constraints import Chance, Constraint, Expectation
from samba_rl.improve.objectives import Cost, Information, Objective
from samba_rl.improve.updates.rules import Proximal
from samba_rl.learners import LEARNERS, GPModel, Learner
from samba_rl.models.zeta import LeaveOneOut
from samba_rl.planet.agent import PlanetAgent
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import PRESETS, make_agent, make_settings
from samba_rl.tasks import TASKS
from tests.line import Line

PENDULUM, CART, FETCH = "safe-pendulum", "safe-cart-pole-double-pendulum", "safe-fetch-reach"


def on_a_model(task: str, preset: str = "default") -> ModelBasedSettings:
    settings = make_settings(task, preset=preset)
    assert isinstance(settings, ModelBasedSettings)
    return settings


# By learner, system and preset ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task", [*TASKS, "anything else"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_has_settings_on_every_system_with_every_preset(learner: str, task: str, preset: str) -> None:
    settings = make_settings(task, learner, preset)
    assert dataclasses.replace(settings) == settings  # whatever is checked is checked again
    assert settings.first.samples < settings.real_samples
    assert isinstance(LEARNERS[learner].source, settings.source)
    # Learners with the same source of traces differ in their rows alone.
    firsts = {"model": "samba", "real": "ppo", "latent": "planet"}
    assert settings == make_settings(task, firsts[LEARNERS[learner].source.label], preset)
    if not isinstance(settings, PlanetSettings):
        assert settings.more_constraints == ()  # type: ignore[attr-defined]


def test_the_usual_learner_is_samba_and_the_usual_preset_the_default() -> None:
    assert make_settings(PENDULUM) == make_settings(PENDULUM, "samba", "default")
    assert PRESETS == ("default", "paper", "smoke")


@pytest.mark.parametrize(
    ("objectives", "kind"),
    [
        ((Cost(), Information(LeaveOneOut())), Expectation),
        ((Cost(), Information(LeaveOneOut())), None),
        ((Cost(),), Chance),
    ],
)
def test_a_row_of_ones_own_has_the_numbers_of_its_family(
    objectives: tuple[Objective, ...], kind: type[Constraint] | None
) -> None:
    row = Learner(GPModel(), objectives, kind, Proximal())
    assert make_settings(FETCH, row, "paper") == make_settings(FETCH, "samba", "paper")


@pytest.mark.parametrize(
    ("learner", "preset", "message"),
    [
        ("sambo", "default", "no learner is called 'sambo'; did you mean 'samba'?"),
        ("samba", "papper", "no preset is called 'papper'; did you mean 'paper'?"),
        ("samba", "xyz", "no preset is called 'xyz'; available: default, paper, smoke"),
    ],
)
def test_an_unknown_name_is_answered_with_those_there_are(learner: str, preset: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        make_settings(PENDULUM, learner, preset)
    assert str(error.value) == message


@pytest.mark.parametrize("preset", PRESETS)
def test_a_system_of_ones_own_has_the_settings_of_any_other(preset: str) -> None:
    assert make_settings("my rig", preset=preset) == make_settings("", preset=preset)
    if preset == "default":
        assert make_settings("my rig", preset=preset) == ModelBasedSettings() != make_settings(PENDULUM, preset=preset)


def test_the_smoke_preset_takes_seconds_on_every_system() -> None:
    assert len({make_settings(task, preset="smoke") for task in (*TASKS, "")}) == 1
    settings = on_a_model(FETCH, "smoke")
    steps = settings.imagination.iterations * settings.imagination.trajectories * settings.update.epochs
    assert settings.real_samples <= 150 and steps <= 100 and settings.feasibility_iterations <= 2


# The paper's numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pendulum", "cart", "fetch"),
    [
        # Dynamics.
        ("episodes", 1, 1, 10),  # 30, 30 and 300 real samples in episodes of 30 steps
        ("first.samples", 30, 30, 1000),
        ("model.fit.iterations", 300, 300, 100),
        ("model.fit.points", None, None, None),
        ("model.outputs", "independent", "independent", "independent"),
        # Agent.
        ("update.epochs", 80, 80, 80),
        ("update.minibatch", 30_000, 30_000, 90_000),
        ("policy.hidden", (32, 32), (32, 32), (32, 32)),
        ("advantage.hidden", (32, 32), (32, 32), (32, 32)),
        ("update.policy_rate", 3e-4, 3e-4, 3e-4),
        ("update.critic_rate", 1e-3, 1e-3, 1e-3),
        ("update.clip", 0.2, 0.2, 0.2),
        ("update.max_gradient_norm", 0.5, 0.5, 1.0),
        ("advantage.gamma", 0.99, 0.95, 0.99),
        ("advantage.lam", 0.97, 0.97, 0.95),
        ("update.critic_loss", "squared", "squared", "clipped"),
        ("constraint.limit", 0.025, 0.025, 1 / 60),
        ("constraint.per", "step", "step", "step"),
        ("multiplier.rate", 0.05, 0.05, 0.05),
        # Runner.
        ("imagination.iterations", 100, 100, 100),
        ("imagination.last_iterations", 100, 100, 100),
        ("imagination.trajectories", 1000, 1000, 3000),  # 30 000 and 90 000 samples in trajectories of 30 steps
    ],
)
def test_the_paper_preset_has_the_papers_numbers(name: str, pendulum: Any, cart: Any, fetch: Any) -> None:
    for task, expected in ((PENDULUM, pendulum), (CART, cart), (FETCH, fetch)):
        value: Any = make_settings(task, preset="paper")
        for part in name.split("."):
            value = getattr(value, part)
        assert value == (pytest.approx(expected) if isinstance(expected, float) else expected), task


@pytest.mark.parametrize("task", TASKS)
def test_the_paper_preset_does_without_what_was_added_to_the_paper(task: str) -> None:
    settings = on_a_model(task, "paper")
    assert 0.5 < settings.constraint.alpha < 1 and settings.constraint.nu_floor == 0
    assert settings.multiplier.slack is None and settings.multiplier.margin == 0
    assert settings.imagination.candidates == 1 and settings.imagination.draw == "marginals"
    assert settings.weights.least_at(0.0) == 0 and not settings.weights.spread
    assert settings.policy.mean_bound is None and settings.update.kl_target is None
    assert not settings.advantage.time and not settings.advantage.tail_critic
    assert settings.model.sparse_above > settings.real_samples  # the GP stays exact
    assert settings.update.minibatch == 30 * settings.imagination.trajectories  # one gradient for the whole batch


# Agents ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_has_its_agent(learner: str) -> None:
    events: list[Event] = []
    agent = make_agent(Line(), learner, seed=3, log=events.append)
    planner = agent.learner.source.label == "latent"
    assert isinstance(agent, PlanetAgent if planner else Agent) and agent.learner == LEARNERS[learner]
    assert agent.settings == make_settings("line", learner) and agent.log == events.append
    assert agent.generator.initial_seed() == 3


def test_an_agent_takes_a_row_of_ones_own() -> None:
    row = LEARNERS["samba"].with_zeta(None)
    agent = make_agent(Line(), row)
    assert agent.learner is row and agent.settings == make_settings("line", "samba") and agent.log is None
