"""`load_run`: a run comes back from its folder."""

import json
import math
from pathlib import Path

import pytest
import torch

from samba_rl.agents.settings import ModelFreeSettings
from samba_rl.errors import UserError
from samba_rl.runs import Run, load_run, resume, train
from samba_rl.runs.manifest import SEALED
from samba_rl.tasks.pendulum import SafePendulum
from samba_rl.types import Transitions
from tests.line import Line
from tests.runs.systems import same_policy


def test_a_run_comes_back_from_its_folder(pendulum: Run) -> None:
    assert pendulum.folder is not None
    loaded = load_run(str(pendulum.folder))
    assert loaded.settings == pendulum.settings and loaded.task == pendulum.task
    assert (loaded.learner, loaded.preset, loaded.seed) == ("samba", "smoke", 3)
    assert same_policy(loaded, pendulum)
    assert loaded.improvements == pendulum.improvements and loaded.notices == pendulum.notices
    # The first trial has NaN for what the model, which did not exist, had predicted.
    assert loaded.trials[1:] == pendulum.trials[1:] and str(loaded.trials[0]) == str(pendulum.trials[0])
    assert loaded.summary == pendulum.summary and loaded.folder == pendulum.folder
    assert vars(loaded.data.transitions).keys() == vars(pendulum.data.transitions).keys()
    for name, values in vars(pendulum.data.transitions).items():
        assert torch.equal(values, getattr(loaded.data.transitions, name))
    for deterministic in (False, True):
        before = pendulum.evaluate(600, seed=7, deterministic=deterministic)
        assert loaded.evaluate(600, seed=7, deterministic=deterministic) == before
        assert before.deterministic is deterministic and before.alpha == 0.9


def test_the_model_of_a_loaded_run_is_made_when_it_is_used_and_is_the_same(pendulum: Run) -> None:
    assert pendulum.folder is not None
    loaded = load_run(pendulum.folder)
    assert "model" not in vars(loaded)
    assert len(loaded.model) == len(loaded.data) and loaded.model is loaded.model
    steps: Transitions = loaded.data.transitions
    assert loaded.model.surprise(steps) == pendulum.model.surprise(steps) < 1.5
    assert loaded.model.report is not None and str(loaded.model.report) == str(pendulum.model.report)


def test_a_system_of_ones_own_must_be_given(tmp_path: Path) -> None:
    task = Line()
    run = train(task, preset="smoke", out=tmp_path / "mine")
    with pytest.raises(
        UserError, match="the run is on 'line', which is not one of the paper's systems; give the system"
    ):
        load_run(tmp_path / "mine")
    assert load_run(tmp_path / "mine", task).evaluate(100, seed=0) == run.evaluate(100, seed=0)
    with pytest.raises(UserError, match="is a run on 'line', not on 'safe-pendulum'"):
        load_run(tmp_path / "mine", SafePendulum())


def test_a_changed_system_of_the_papers_must_be_given(tmp_path: Path) -> None:
    task = SafePendulum(horizon=25)
    run = train(task, "ppilco", preset="smoke", out=tmp_path / "changed")
    with pytest.raises(UserError, match="the run is on a modified 'safe-pendulum'; give the system"):
        load_run(tmp_path / "changed")
    assert load_run(tmp_path / "changed", task).evaluate(100, seed=0) == run.evaluate(100, seed=0)


def test_a_finished_run_loads_with_settings_that_would_be_refused_today(tmp_path: Path) -> None:
    train("safe-pendulum", "ppo", preset="smoke", real_samples=120, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["settings"]["multiplier"]["slack"] = "inf"
    del config[SEALED]  # an earlier version wrote no manifest
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    (tmp_path / "run" / "manifest.json").unlink()
    for run in (load_run(tmp_path / "run"), resume(tmp_path / "run")):
        assert isinstance(run.settings, ModelFreeSettings) and run.settings.multiplier.slack == math.inf
    # An unfinished one would go on with them.
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(UserError, match=r"config\.json: multiplier\.slack = inf: must be at least 0 and at most 100$"):
        resume(tmp_path / "run")
