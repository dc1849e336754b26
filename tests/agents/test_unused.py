"""Settings without effect: those that are refused change nothing, and only what a user sets is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from samba_rl.agents.settings import ModelBasedSettings, Settings
from samba_rl.agents.unused import paths_of, refuse_unused
from samba_rl.errors import UserError
from samba_rl.improve.constraints import KINDS, Chance, Expectation
from samba_rl.improve.limits import ConstraintSettings, FurtherConstraint
from samba_rl.improve.step import WeightSettings
from samba_rl.improve.updates.rules import TrustRegion
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.learners import LEARNERS, Learner
from samba_rl.presets import PRESETS, make_agent, make_settings
from samba_rl.runs import train
from tests.fuzz.trees import changed
from tests.line import Line, spend

SAMBA = LEARNERS["samba"]
ROWS = {
    **LEARNERS,
    "natural": replace(LEARNERS["ppilco"], update=TrustRegion()),
    "natural and limited": replace(SAMBA, update=TrustRegion()),
    "chance": replace(SAMBA, constraint=Chance),
    "mean": replace(SAMBA, constraint=Expectation),
}
OTHER: dict[str, Any] = {
    "first.hold": 2,
    "constraint.limit": 0.1,
    "constraint.per": "step",
    "constraint.nu_floor": 0.5,
    "constraint.gamma": 0.7,
    "constraint.of": "edge",
    "multiplier.schedule": "dual-ascent",
    "multiplier.initial": 3.0,
    "multiplier.factor": 2.0,
    "multiplier.steepness": 0.0,
    "multiplier.reaction": 0.0,
    "multiplier.tolerance": 2.0,
    "multiplier.rate": 0.7,
    "multiplier.floor": 0.2,
    "multiplier.cap": 40.0,
    "multiplier.margin": 0.5,
    "multiplier.slack": 2.0,
    "advantage.tail_critic": False,
    "feasibility_iterations": 0,
    "weights": WeightSettings(spread=False, least_cost_weight=0.1),
    "trust_region": TrustRegionSettings(kl=0.2, damping=0.5, cg_iterations=2, backtracks=3, shrink=0.4),
    "update.policy_rate": 0.1,
    "update.kl_target": None,
    "update.kl_stop": None,
    "update.standardise": False,
    "update.entropy": 0.3,
    "update.clip": 0.01,
    "imagination.start_iterations": 1,
    "model.latent": 3,
    "model.sparse_above": 10,
    "model.inducing": 3,
    "latent.channels": 2,
    "latent.safety_weight": 9.0,
}
"""Another value for every setting that some learner does not use."""


def learned(row: Learner, settings: Settings) -> dict[str, torch.Tensor]:
    """Parameters of the policy that a learner ends with."""
    return spend(make_agent(Line(), row, settings, seed=1)).state_dict()


@pytest.mark.parametrize("name", ROWS)
def test_settings_that_are_refused_have_no_effect(name: str) -> None:
    row = ROWS[name]
    settings = replace(make_settings("line", row, "smoke"), real_samples=100)
    if name == "chance":
        assert isinstance(settings, ModelBasedSettings)
        settings = replace(settings, feasibility_iterations=0)
    other = settings
    unused = settings.unused(row)
    assert unused
    for path in set(unused) - {"data", "first.data"}:
        other = changed(other, path, OTHER[path])
    before, after = learned(row, settings), learned(row, other)
    assert all(torch.equal(before[part], after[part]) for part in before)


def test_what_a_learner_does_use_is_not_refused() -> None:
    usual = make_settings("line", "samba")
    assert set(usual.unused(SAMBA)) == {"trust_region", "multiplier.rate", "model.latent"}
    refuse_unused(usual, SAMBA, ["multiplier.slack", "weights.spread", "update.clip", "real_samples", "constraint"])
    natural = make_settings("line", "trpo", "paper")
    refuse_unused(natural, LEARNERS["trpo"], ["trust_region.kl", "update.epochs", "update.minibatch", "update"])


@pytest.mark.parametrize(
    ("row", "path", "why"),
    [
        (LEARNERS["ppilco"], "multiplier.slack", "the learner has no limit"),
        (LEARNERS["ppo"], "constraint.limit", "the learner has no limit; choose a kind of limit"),
        (LEARNERS["sppo"], "multiplier.slack", "it is never found out whether the limit can be met"),
        (LEARNERS["cpo"], "multiplier.factor", "the update 'projection' finds λ by itself"),
        (LEARNERS["sppilco"], "weights.spread", "the learner seeks no information"),
        (LEARNERS["sppilco"], "trust_region.kl", "the update 'proximal' has no trust region"),
        (LEARNERS["trpo"], "update.clip", "takes one step within its trust region"),
        (LEARNERS["planet"], "latent.safety_weight", "the learner minimises the cost alone"),
        (LEARNERS["planet"], "latent.channels", "latent.observation is 'vector'"),
        (replace(SAMBA, constraint=Chance), "constraint.gamma", "a probability, which has no discount"),
        (replace(SAMBA, constraint=KINDS["expectation"]), "constraint.nu_floor", "not on CVaR"),
    ],
)
def test_a_refusal_says_why(row: Learner, path: str, why: str) -> None:
    settings = make_settings("line", row)
    refuse_unused(settings, row, [])
    with pytest.raises(UserError) as error:
        refuse_unused(settings, row, ["real_samples", path])
    assert str(error.value).startswith(f"{path} has no effect: ") and why in str(error.value)
    assert str(error.value).endswith("Leave it out")


def test_a_further_limit_makes_the_multiplier_useful() -> None:
    usual = make_settings("line", "ppilco")
    assert isinstance(usual, ModelBasedSettings)
    settings = replace(usual, more_constraints=(FurtherConstraint(kind="expectation"),))
    unused = settings.unused(LEARNERS["ppilco"])
    assert not {"multiplier.slack", "feasibility_iterations"} & set(unused)
    assert {"constraint.limit", "more_constraints.0.nu_floor", "more_constraints.0.alpha"} <= set(unused)
    assert "constraint.alpha" not in unused  # CVaR is reported at this level


@pytest.mark.parametrize("learner", LEARNERS)
def test_presets_may_hold_what_their_learner_does_not_use(learner: str) -> None:
    for preset in PRESETS:
        refuse_unused(make_settings("safe-pendulum", learner, preset), LEARNERS[learner], paths_of({}))


def test_paths_of_changes() -> None:
    changes = {"real_samples": 3, "multiplier": {"slack": None, "cap": 1.0}, "constraint": ConstraintSettings()}
    assert list(paths_of(changes)) == ["real_samples", "multiplier.slack", "multiplier.cap", "constraint"]
    assert list(paths_of({"more_constraints": [{"limit": 1.0}]})) == ["more_constraints.0.limit"]


def test_train_refuses_changes_without_effect(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(UserError, match=r"^multiplier\.slack has no effect: the learner has no limit"):
        train(Line(), "ppilco", preset="smoke", out=out, multiplier={"slack": 0.1})
    with pytest.raises(UserError, match=r"^weights has no effect: the learner seeks no information"):
        train(Line(), "sppilco", preset="smoke", out=out, weights=WeightSettings())
    assert not out.exists()


def test_learners_without_a_model_refuse_earlier_data() -> None:
    data = train(Line(), "ppo", preset="smoke", real_samples=120).data
    with pytest.raises(UserError, match=r"^data has no effect: the learner has no model that earlier data could teach"):
        train(Line(), "ppo", preset="smoke", data=data)
    with pytest.raises(UserError, match=r"^first\.data has no effect: "):
        train(Line(), "ppo", preset="smoke", first={"data": "x.csv"})
