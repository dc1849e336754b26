"""Settings: their ranges, and the limits that they stand for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from samba_rl.agents.first import FirstSettings
from samba_rl.agents.settings import ImaginationSettings, ModelBasedSettings, ModelFreeSettings, Settings
from samba_rl.errors import UserError
from samba_rl.improve.constraints import Chance, CVaR, Expectation
from samba_rl.improve.limits import ConstraintSettings, FurtherConstraint
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.learners import LEARNERS
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import make_agent
from tests.line import Line, quick_settings

# Ranges (each field: tests/test_ranges.py) ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", [ModelBasedSettings, ModelFreeSettings, PlanetSettings])
def test_the_first_trials_must_fit_in_the_budget(family: type[Settings]) -> None:
    with pytest.raises(UserError) as error:
        family(real_samples=100)
    assert str(error.value) == (
        "real_samples = 100: must be at least first.samples = 150, and leave some for the trials of the policy"
    )


def test_the_least_that_settings_allow_is_allowed() -> None:
    least = ModelBasedSettings(
        real_samples=1,
        episodes=1,
        feasibility_iterations=0,
        first=FirstSettings(samples=0),
        imagination=ImaginationSettings(iterations=1, last_iterations=1, trajectories=2, candidates=1),
        update=ProximalSettings(epochs=1, minibatch=1),
    )
    assert dataclasses.replace(least, first=FirstSettings(samples=1)).first.samples == least.real_samples


@pytest.mark.parametrize(
    ("family", "strange"),
    [
        (ModelBasedSettings, "latent"),
        (ModelFreeSettings, "imagination"),
        (ModelFreeSettings, "weights"),
        (ModelFreeSettings, "model"),
        (PlanetSettings, "constraint"),
        (PlanetSettings, "update"),
    ],
)
def test_a_mixture_of_families_cannot_be_written_down(family: type[Settings], strange: str) -> None:
    assert strange not in {field.name for field in dataclasses.fields(family)}
    changes: dict[str, Any] = {strange: None}
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{strange}'"):
        family(**changes)


# Updates and levels ---------------------------------------------------------------------------------------------------


def test_each_family_says_how_much_it_improves_the_policy() -> None:
    imagination = ImaginationSettings(iterations=7, last_iterations=9)
    assert ModelBasedSettings(imagination=imagination).updates == (7, 9) and ModelFreeSettings().updates == (1, 1)
    latent = PlanetSettings().latent
    assert PlanetSettings().updates == (latent.updates, latent.updates)


def test_the_level_of_cvar_is_that_of_the_constraint() -> None:
    constraint = ConstraintSettings(alpha=0.6)
    assert [family(constraint=constraint).alpha for family in (ModelBasedSettings, ModelFreeSettings)] == [0.6, 0.6]
    assert PlanetSettings().alpha == 0.9


# Limits ---------------------------------------------------------------------------------------------------------------

NAMES = ("hazard", "wall")
FURTHER = (
    FurtherConstraint(kind="chance", limit=0.1, of="wall"),
    FurtherConstraint(kind="expectation", limit=0.02, per="step", of="hazard"),
)


def test_several_constraints_at_once() -> None:
    settings = ModelBasedSettings(constraint=ConstraintSettings(limit=0.5, alpha=0.8), more_constraints=FURTHER)
    further = (
        Chance(name="wall", limit=0.1, column=1),
        Expectation(name="hazard", limit=0.02, column=0, per_step=True),
    )
    assert settings.constraints(LEARNERS["samba"], NAMES) == (
        CVaR(name="hazard", limit=0.5, column=0, alpha=0.8),
        CVaR(name="wall", limit=0.5, column=1, alpha=0.8),
        *further,
    )
    # A row without a limit of its own takes the further ones.
    assert settings.constraints(LEARNERS["ppilco"], NAMES) == further


def test_the_limit_of_a_probability_is_at_most_1() -> None:
    row = dataclasses.replace(LEARNERS["samba"], constraint=Chance)
    own, further = ConstraintSettings(limit=1.5), (FurtherConstraint(kind="chance", limit=1.5),)
    for settings in (ModelBasedSettings(constraint=own), ModelBasedSettings(more_constraints=further)):
        with pytest.raises(UserError, match=r"a limit of 1\.5 on a probability \(hazard\): must be at most 1"):
            settings.constraints(row, ("hazard",))


@pytest.mark.parametrize("learner", LEARNERS)
def test_the_row_decides_on_the_kind_of_the_limit(learner: str) -> None:
    row = LEARNERS[learner]
    found = quick_settings(learner).constraints(row, ("edge",))
    assert [type(each) for each in found] == ([] if row.constraint is None else [row.constraint])


def test_a_projection_keeps_to_exactly_one_limit() -> None:
    settings = quick_settings("cpo")
    assert isinstance(settings, ModelFreeSettings)
    message = (
        "the update 'projection' keeps to exactly one limit, but there are 2; name one safety cost with "
        "constraint.of, leave out more_constraints, or take the update 'trust-region'"
    )
    two = dataclasses.replace(settings, more_constraints=(FurtherConstraint(kind="cvar"),))
    for task, wrong in ((Line(), two), (Line(constraints=("edge", "wall")), settings)):
        with pytest.raises(UserError) as error:
            make_agent(task, "cpo", wrong)
        assert str(error.value) == message
    named = dataclasses.replace(settings, constraint=ConstraintSettings(of="wall"))
    (limit,) = make_agent(Line(constraints=("edge", "wall")), "cpo", named).constraints
    assert limit.name == "wall"
