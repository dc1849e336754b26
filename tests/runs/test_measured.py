"""Runs on systems whose costs are only measured: learning, resuming, verifying and loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from samba_rl.events import Event, ImprovementReport, TrialReport
from samba_rl.runs import load_run, resume, train
from samba_rl.runs.verify import verify
from samba_rl.tasks.gym.task import GymTask
from tests.runs.interrupted import SEED, reports, same, stopped
from tests.tasks.own_envs import Drift, danger

TASK = GymTask("tests.tasks.own_envs:OwnDrift-v0")
QUICK: dict[str, Any] = {"real_samples": 80, "first": {"samples": 40}, "feasibility_iterations": 0}


def test_a_run_resumes_to_the_same_bits_and_its_model_is_loaded_with_the_costs(tmp_path: Path) -> None:
    whole = train(TASK, preset="smoke", seed=SEED, out=tmp_path / "whole", workers=0, **QUICK)
    outputs = whole.model.posterior.targets.shape[1]
    assert outputs == 4  # two changes of state, the cost and the safety cost
    assert all(len(trial.z_std) == outputs for trial in whole.trials)

    def inside(heard: list[Event]) -> bool:
        return reports(heard, TrialReport) == 2 and reports(heard, ImprovementReport) >= 3

    stopped(tmp_path / "broken", inside, task=TASK, workers=0, **QUICK)
    run = resume(tmp_path / "broken", TASK, workers=0)
    assert same(run, whole)
    assert verify(tmp_path / "broken").state == "finished" and not verify(tmp_path / "broken").damaged
    x = TASK.start(3, torch.Generator().manual_seed(0))
    queries = TASK.model_inputs(x, torch.zeros(3, 1, dtype=torch.float64))
    loaded = load_run(tmp_path / "whole", TASK).model.predict(queries)
    assert torch.equal(loaded.mean, whole.model.predict(queries).mean) and loaded.mean.shape == (3, 4)


def test_a_safety_cost_that_was_never_measured_is_announced_once() -> None:
    short: dict[str, Any] = {"real_samples": 60, "first": {"samples": 20}, "feasibility_iterations": 0}
    run = train(GymTask(lambda: Drift("safe"), horizon=10), preset="smoke", workers=0, **short)
    assert len(run.trials) > 2
    told = [notice.text for notice in run.notices if "at every step so far" in notice.text]
    assert len(told) == 1 and told[0].startswith("the safety cost 'safety' was 0")
    known = GymTask(lambda: Drift("safe"), safety=danger, horizon=10)
    run = train(known, preset="smoke", workers=0, **{**short, "real_samples": 30})
    assert not any("at every step so far" in notice.text for notice in run.notices)
