"""Runs that version 0.1 wrote (format 1): finished ones are read, unfinished ones are refused with the way out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samba_rl.agents.settings import ImaginationSettings, ModelBasedSettings, PolicyGradientSettings, Settings
from samba_rl.agents.words import to_words
from samba_rl.cli import main
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Event, TrialReport
from samba_rl.improve.constraints import Chance, Expectation
from samba_rl.improve.limits import FurtherConstraint, MultiplierSettings
from samba_rl.improve.step import WeightSettings
from samba_rl.learners import LEARNERS, Learner
from samba_rl.models.zeta import Entropy, LeaveOneOut
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import make_settings
from samba_rl.runs import load_run, resume, run_in, train
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.listing import overview
from samba_rl.runs.upgrade import upgraded
from tests.runs.systems import same_bits

FORMAT_1 = Path(__file__).parent / "format-1"
"""Configurations of smoke runs on Safe Pendulum with seed 5, as version 0.1.0 wrote them."""
NAMES = ["samba", "ppo", "cpo", "planet", "planet-rs"]


def config_1(learner: str, **changes: Any) -> dict[str, Any]:
    """A configuration of format 1, with some of its settings changed."""
    config: dict[str, Any] = json.loads((FORMAT_1 / f"{learner}.json").read_text())
    return {**config, "settings": {**config["settings"], **changes}}


def expected_settings(learner: str) -> Settings:
    settings = make_settings("safe-pendulum", learner, "smoke")
    if isinstance(settings, PolicyGradientSettings):
        # Some numbers were others then, as the file says, and later ones have their usual values.
        then = config_1(learner)["settings"]
        settings = replace(settings, multiplier=MultiplierSettings(**then["multiplier"]))
        if isinstance(settings, ModelBasedSettings):
            settings = replace(settings, imagination=ImaginationSettings(**then["imagination"]))
            settings = replace(settings, weights=WeightSettings(**then["weights"]))
    if learner == "planet":
        # In format 1 this number said whether the safety cost is an objective; now the row says it.
        assert isinstance(settings, PlanetSettings)
        return replace(settings, latent=replace(settings.latent, safety_weight=0.0))
    return settings


def expected_row(learner: str) -> Learner:
    """Return the row as version 0.1 had it."""
    row = LEARNERS[learner]
    return row if row.zeta is None else row.with_zeta(LeaveOneOut())


def with_config(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "manifest.json").unlink(missing_ok=True)  # version 0.1 wrote none
    return folder


# Finished runs --------------------------------------------------------------------------------------------------------


def test_the_examples_are_of_format_1() -> None:
    assert sorted(path.stem for path in FORMAT_1.iterdir()) == sorted(NAMES)
    for learner in NAMES:
        config = config_1(learner)
        assert config["format"] == 1 and config["versions"]["samba_rl"] == "0.1.0" and "row" not in config
        assert {"traces", "rule", "zeta", "latent", "model"} <= config["settings"].keys()


@pytest.mark.parametrize("learner", NAMES)
def test_the_specification_is_read(learner: str, tmp_path: Path) -> None:
    task, about = run_in(with_config(tmp_path / "run", config_1(learner)))
    assert task.name == "safe-pendulum"
    assert (about.learner, about.preset, about.seed, about.device) == (learner, "smoke", 5, "cpu")
    assert about.row == expected_row(learner) and about.settings == expected_settings(learner)


@pytest.mark.parametrize("learner", NAMES)
def test_a_finished_run_is_loaded(learner: str, tmp_path: Path) -> None:
    run = train("safe-pendulum", learner, preset="smoke", seed=5, out=tmp_path / "run")
    loaded = load_run(with_config(tmp_path / "run", config_1(learner)))
    assert loaded.row == expected_row(learner) and loaded.settings == expected_settings(learner)
    assert loaded.constraints == run.constraints and loaded.summary == run.summary
    assert all(same_bits(value, loaded.policy.state_dict()[name]) for name, value in run.policy.state_dict().items())
    assert loaded.evaluate(100, seed=0) == run.evaluate(100, seed=0)
    assert overview(tmp_path / "run").state == "finished" and overview(tmp_path / "run").learner == learner


def test_every_choice_of_format_1_is_translated(tmp_path: Path) -> None:
    limit = {"kind": "chance", "limit": 0.2, "per": "step", "alpha": 0.9, "nu_floor": 0.0, "of": "hazard"}
    more = [{"kind": "expectation", "limit": 2.0, "per": "trajectory", "alpha": 0.9, "nu_floor": 0.0, "of": ""}]
    config = config_1("samba", zeta="entropy", rule="trust-region", constraint=limit, more_constraints=more)
    task, about = run_in(with_config(tmp_path / "run", config))
    assert about.row == replace(
        LEARNERS["samba"].with_zeta(Entropy()), constraint=Chance, update=LEARNERS["trpo"].update
    )
    assert isinstance(about.settings, ModelBasedSettings)
    assert about.settings.more_constraints == (FurtherConstraint(kind="expectation", limit=2.0),)
    own, further = about.settings.constraints(about.row, task.constraints)
    assert own == Chance(name="hazard", limit=0.2, per_step=True)
    assert further == Expectation(name="hazard", limit=2.0)
    _, about = run_in(with_config(tmp_path / "run", config_1("samba", zeta="none")))
    assert about.row == LEARNERS["sppilco"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"zeta": "x"},
            "config.json: settings.zeta is 'x'; it must be one of loo, loo-observed, bootstrap, entropy, ",
        ),
        ({"zeta": ["loo"]}, r"config.json: settings.zeta is \['loo'\]; it must be one of"),
        ({"traces": "dreams"}, "config.json: settings.traces is 'dreams'; it must be one of model, real, latent"),
        ({"traces": {}}, "config.json: settings.traces is {}"),
        ({"rule": "x"}, "config.json: settings.update is 'x'; it must be one of proximal"),
        ({"constraint": {"kind": "x"}}, "config.json: settings.constraint is 'x'; it must be one of"),
        ({"constraint": 3}, "config.json: settings.constraint is 3; it must be a group of named values"),
        ({"code": 3}, "config.json: settings has no 'code'"),
    ],
)
def test_damage_is_named_with_its_file(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_run(with_config(tmp_path / "run", config_1("samba", **changes)))
    assert str(tmp_path) in str(caught.value)


def test_the_current_format_is_left_alone() -> None:
    config = {"format": 2, "row": to_words(LEARNERS["samba"]), "settings": {"real_samples": 3}}
    assert upgraded(config, "here") is config


# Unfinished runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """A run with the configuration and a checkpoint of format 1."""
    folder, heard = tmp_path / "run", 0

    def stop() -> bool:
        nonlocal heard
        heard += 1
        return heard >= 6

    with pytest.raises(Stopped):
        train("safe-pendulum", preset="smoke", seed=5, out=folder, stop=stop, checkpoint_every=0.0)
    with_config(folder, config_1("samba"))
    for path in (folder / "checkpoints").glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps(signed({**manifest, "format": 1, "samba_rl": "0.1.0"})))
    return folder


def test_a_checkpoint_of_format_1_is_refused_with_the_way_out(
    unfinished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, last = sorted((unfinished / "checkpoints").iterdir())
    before = {path: path.read_bytes() for path in unfinished.rglob("[!.]*") if path.is_file()}
    with pytest.raises(UserError) as caught:
        resume(unfinished)
    assert str(caught.value) == (
        f"{last / 'manifest.json'} was written by samba_rl 0.1.0, whose unfinished runs this version cannot continue; "
        f"finish the run with that version, or start a new one with its measurements: "
        f"samba-rl train SYSTEM --data {unfinished / 'real.csv'}"
    )
    assert main(["resume", str(unfinished)]) == 2
    error = capsys.readouterr().err
    assert "was written by samba_rl 0.1.0" in error and error.count("\n") == 1
    found = overview(unfinished)
    assert found.state == "interrupted" and found.problem == str(caught.value)
    assert {path: path.read_bytes() for path in unfinished.rglob("[!.]*") if path.is_file()} == before


def test_the_way_out_works(unfinished: Path) -> None:
    run = train("safe-pendulum", preset="smoke", data=unfinished / "real.csv", first={"samples": 0}, real_samples=30)
    assert run.summary["earlier_samples"] >= 60 and run.summary["real_samples"] == 30


def test_without_a_checkpoint_a_run_of_format_1_is_recomputed_from_its_trials(unfinished: Path) -> None:
    """The journal has not changed, so the measurements of an old run are enough to finish it."""
    shutil.rmtree(unfinished / "checkpoints")
    (unfinished / "metrics.jsonl").unlink()
    heard: list[Event] = []
    whole = train("safe-pendulum", expected_row("samba"), name="samba", settings=expected_settings("samba"), seed=5)
    run = resume(unfinished, log=heard.append)
    assert sum(isinstance(event, TrialReport) for event in heard) == len(whole.trials)
    mine, due = run.policy.state_dict(), whole.policy.state_dict()
    assert all(same_bits(mine[name], due[name]) for name in due)
