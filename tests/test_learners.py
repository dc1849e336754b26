"""The table of learners, and the settings that its rows stand for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from samba_rl.errors import UserError
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.learners import (
    LEARNERS,
    FirstSettings,
    ImaginationSettings,
    Learner,
    Settings,
    find_learner,
    make_settings,
)
from samba_rl.tasks import TASKS

PRESETS = ("default", "paper", "smoke")
PENDULUM, CART, FETCH = "safe-pendulum", "safe-cart-pole-double-pendulum", "safe-fetch-reach"


# Rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task", [*TASKS, "anything else"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_has_settings_on_every_system_with_every_preset(learner: str, task: str, preset: str) -> None:
    settings = make_settings(task, learner, preset)
    assert dataclasses.replace(settings) == settings  # whatever is checked is checked again
    assert settings.first.samples < settings.real_samples and settings.more_constraints == ()
    # Rows differ in what they rule and in nothing else, beside where their traces come from.
    firsts = {"model": "samba", "real": "ppo", "latent": "planet"}
    first = make_settings(task, firsts[settings.traces], preset)
    constraint = dataclasses.replace(settings.constraint, kind=first.constraint.kind)
    ruled: dict[str, Any] = {"zeta": first.zeta, "rule": first.rule, "constraint": constraint}
    if settings.traces == "latent":
        ruled["latent"] = dataclasses.replace(settings.latent, safety_weight=0.0)
    assert dataclasses.replace(settings, **ruled) == first
    assert settings.traces == LEARNERS[learner].traces
    assert LEARNERS[learner].update == ("none" if settings.traces == "latent" else settings.rule)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("learner", "zeta", "kind", "objectives"),
    [
        ("samba", "loo", "cvar", ("cost", "information")),
        ("sppilco", "none", "cvar", ("cost",)),
        ("ppilco", "none", "none", ("cost",)),
        ("ppo", "none", "none", ("cost",)),
        ("sppo", "none", "expectation", ("cost",)),
        ("trpo", "none", "none", ("cost",)),
        ("strpo", "none", "expectation", ("cost",)),
        ("cpo", "none", "expectation", ("cost",)),
        ("planet", "none", "none", ("cost",)),
        ("planet-rs", "none", "none", ("cost", "safety")),
    ],
)
def test_a_row_rules_what_is_sought_and_what_is_limited(
    learner: str, zeta: str, kind: str, objectives: tuple[str, ...], preset: str
) -> None:
    for task in (*TASKS, ""):
        settings = make_settings(task, learner, preset)
        assert (settings.zeta, settings.constraint.kind, settings.objectives) == (zeta, kind, objectives)


def test_the_usual_learner_is_samba_and_the_usual_preset_the_default() -> None:
    assert make_settings(PENDULUM) == make_settings(PENDULUM, "samba", "default")
    rows = ["samba", "sppilco", "ppilco", "ppo", "sppo", "trpo", "strpo", "cpo", "planet", "planet-rs"]
    assert list(LEARNERS) == rows and find_learner("samba") is LEARNERS["samba"]


@pytest.mark.parametrize(
    ("row", "zeta", "kind"),
    [
        (Learner("model", ("cost", "information"), "expectation", "proximal"), "loo", "expectation"),
        (Learner("model", ("cost", "information"), "none", "proximal"), "loo", "none"),
        (Learner("model", ("cost",), "chance", "proximal"), "none", "chance"),
    ],
)
def test_a_row_of_ones_own_serves_as_well(row: Learner, zeta: str, kind: str) -> None:
    settings = make_settings(FETCH, row, "paper")
    assert settings.zeta == zeta and settings.constraint.kind == kind and settings.objectives == row.objectives
    assert settings.constraint.limit == make_settings(FETCH, "samba", "paper").constraint.limit
    assert settings.update == make_settings(FETCH, "samba", "paper").update


@pytest.mark.parametrize(
    ("learner", "preset", "message"),
    [
        ("sambo", "default", "no learner is called 'sambo'; did you mean 'samba'?"),
        (
            "dreamer",
            "default",
            "no learner is called 'dreamer'; there are: cpo, planet, planet-rs, ppilco, ppo, samba, sppilco, sppo, "
            "strpo, trpo",
        ),
        ("samba", "papper", "no preset is called 'papper'; did you mean 'paper'?"),
        ("samba", "xyz", "no preset is called 'xyz'; there are: default, paper, smoke"),
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
        assert make_settings("my rig", preset=preset) == Settings() != make_settings(PENDULUM, preset=preset)


def test_the_smoke_preset_is_a_matter_of_seconds_on_every_system() -> None:
    assert len({make_settings(task, preset="smoke") for task in (*TASKS, "")}) == 1
    settings = make_settings(FETCH, preset="smoke")
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
    settings = make_settings(task, preset="paper")
    assert 0.5 < settings.constraint.alpha < 1 and settings.constraint.nu_floor == 0
    assert settings.multiplier.slack is None and settings.multiplier.margin == 0
    assert settings.imagination.candidates == 1 and settings.imagination.draw == "marginals"
    assert settings.weights.least_at(0.0) == 0 and not settings.weights.spread
    assert settings.policy.mean_bound is None and settings.update.kl_target is None
    assert not settings.advantage.time and not settings.advantage.tail_critic
    assert settings.model.sparse_above > settings.real_samples  # the GP stays exact
    assert settings.update.minibatch == 30 * settings.imagination.trajectories  # one gradient for the whole batch


# Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"real_samples": 0}, "real_samples = 0; it must be at least 1"),
        ({"episodes": 0}, "episodes = 0; it must be at least 1"),
        ({"feasibility_iterations": -1}, "feasibility_iterations = -1; it must be at least 0"),
        ({"first": FirstSettings(samples=-1)}, "first.samples = -1; it must be at least 0"),
        ({"imagination": ImaginationSettings(iterations=0)}, "imagination.iterations = 0; it must be at least 1"),
        (
            {"imagination": ImaginationSettings(last_iterations=0)},
            "imagination.last_iterations = 0; it must be at least 1",
        ),
        ({"imagination": ImaginationSettings(trajectories=1)}, "imagination.trajectories = 1; it must be at least 2"),
        ({"imagination": ImaginationSettings(candidates=0)}, "imagination.candidates = 0; it must be at least 1"),
        ({"update": ProximalSettings(epochs=0)}, "update.epochs = 0; it must be at least 1"),
        ({"update": ProximalSettings(minibatch=0)}, "update.minibatch = 0; it must be at least 1"),
        (
            {"real_samples": 100},
            "first.samples = 150 exceeds real_samples = 100; leave some for the trials of the policy",
        ),
    ],
)
def test_impossible_settings_are_refused_by_their_names(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        Settings(**change)
    assert str(error.value) == message


def test_the_least_that_settings_allow_is_allowed() -> None:
    least = Settings(
        real_samples=1,
        episodes=1,
        feasibility_iterations=0,
        first=FirstSettings(samples=0),
        imagination=ImaginationSettings(iterations=1, last_iterations=1, trajectories=2, candidates=1),
        update=ProximalSettings(epochs=1, minibatch=1),
    )
    assert dataclasses.replace(least, first=FirstSettings(samples=1)).first.samples == least.real_samples


def test_a_row_without_the_cost_is_refused() -> None:
    with pytest.raises(UserError, match="minimises cost, alone or with information"):
        make_settings("safe-pendulum", Learner("model", ("information",), "none", "proximal"))
