"""Presets: the numbers of each family of learners, by system."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

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
from samba_rl.tasks.pendulum import SafePendulum
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
    limited = LEARNERS[learner].constraint is not None
    firsts = {"model": "samba" if limited else "ppilco", "real": "ppo", "latent": "planet"}
    first = make_settings(task, firsts[LEARNERS[learner].source.label], preset)
    # The paper's budgets of real samples are each learner's own; tests/test_paper.py holds them to its Table 1.
    assert dataclasses.replace(settings, real_samples=first.real_samples) == first
    assert preset == "paper" or settings == first
    if not isinstance(settings, PlanetSettings) and not limited:
        assert settings.more_constraints == ()  # type: ignore[attr-defined]
        assert settings.policy.experts == 1  # type: ignore[attr-defined]


def test_limits_of_a_preset_hold_only_for_learners_with_a_limit() -> None:
    # Nothing else of the preset differs.
    with_limit, without = (make_settings("safe-fetch-reach", learner) for learner in ("sppilco", "ppilco"))
    assert isinstance(with_limit, ModelBasedSettings) and isinstance(without, ModelBasedSettings)
    assert with_limit.policy.experts == 2 and len(with_limit.more_constraints) == 1
    one = dataclasses.replace(with_limit.policy, experts=1)
    assert dataclasses.replace(with_limit, more_constraints=(), policy=one) == without


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


# Agents ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_has_its_agent(learner: str) -> None:
    events: list[Event] = []
    agent = make_agent(Line(), learner, seed=3, log=events.append)
    planner = agent.learner.source.label == "latent"
    assert isinstance(agent, PlanetAgent if planner else Agent) and agent.learner == LEARNERS[learner]
    assert agent.settings == make_settings("line", learner) and agent.log == events.append
    assert agent.generator.initial_seed() == 3


@pytest.mark.parametrize(
    ("horizon", "episodes", "first", "samples"),
    [(10, 5, 150, 1500), (30, 5, 150, 1500), (50, 3, 150, 1500), (200, 1, 200, 1500), (1000, 1, 1000, 6000)],
)
def test_the_general_preset_fits_the_length_of_episodes(horizon: int, episodes: int, first: int, samples: int) -> None:
    settings = make_settings(replace(Line(), horizon=horizon))
    usual = make_settings("line")
    assert (settings.episodes, settings.first.samples, settings.real_samples) == (episodes, first, samples)
    assert isinstance(settings, ModelBasedSettings) and isinstance(usual, ModelBasedSettings)
    changed = replace(settings, episodes=usual.episodes, first=usual.first, real_samples=usual.real_samples)
    assert changed == usual
    smoke = make_settings(replace(Line(), horizon=horizon), preset="smoke")
    assert smoke.real_samples >= smoke.first.samples + smoke.episodes * horizon
    for other in ("ppo", "planet"):
        assert make_settings(replace(Line(), horizon=horizon), other) == make_settings("line", other)
    assert make_settings(replace(SafePendulum(), horizon=horizon)) == make_settings(PENDULUM)
    assert make_settings(replace(Line(), horizon=horizon), preset="paper") == make_settings("line", preset="paper")


def test_an_agent_takes_a_row_of_ones_own() -> None:
    row = LEARNERS["samba"].with_zeta(None)
    agent = make_agent(Line(), row)
    assert agent.learner is row and agent.settings == make_settings("line", "samba") and agent.log is None
