"""`resume`: an interrupted run continues to the same end."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from samba_rl.data.journal import Journal
from samba_rl.errors import Stopped
from samba_rl.events import Event, ImprovementReport
from samba_rl.improve.constraints import Expectation
from samba_rl.learners import LEARNERS
from samba_rl.models.zeta import Bootstrap, Entropy
from samba_rl.runs import Run, load_run, resume, train
from samba_rl.tasks.gym.task import GymTask
from samba_rl.types import Traces
from tests.line import Line
from tests.runs.interrupted import SEED, reports, same, stopped
from tests.runs.systems import CountingRig, cost, edge


def test_a_run_can_be_stopped_at_every_report_and_goes_on(whole: Run, tmp_path: Path) -> None:
    moments = random.Random(0)

    def once_more() -> bool:
        return moments.random() < 0.6

    folder, rounds = tmp_path / "run", 1
    with pytest.raises(Stopped):
        train(Line(), preset="smoke", seed=SEED, out=folder, stop=once_more)
    while rounds < 100:
        try:
            run = resume(folder, Line(), stop=once_more)
            break
        except Stopped:
            rounds += 1
    assert rounds > 10 and same(run, whole)
    assert [str(t).split("seconds")[0] for t in run.trials] == [str(t).split("seconds")[0] for t in whole.trials]
    assert len(run.improvements) == len(whole.improvements) and run.notices == whole.notices
    assert [i.kl for i in run.improvements] == [i.kl for i in whole.improvements]
    untimed = {"seconds", "seconds_by_phase"}
    assert {k: v for k, v in run.summary.items() if k not in untimed} == {
        k: v for k, v in whole.summary.items() if k not in untimed
    }
    assert run.summary["seconds"] > 0 and (folder / "real.csv").exists()
    assert same(load_run(folder, Line()), whole) and same(resume(folder, Line()), whole)


SAMBA = LEARNERS["samba"]


@pytest.mark.parametrize(
    "changes",
    [
        {"learner": replace(SAMBA.with_zeta(Bootstrap()), constraint=Expectation), "constraint": {"limit": 0.0}},
        {
            "learner": SAMBA.with_zeta(Entropy()),
            "more_constraints": ({"kind": "chance", "limit": 0.1},),
            "feasibility_iterations": 4,
        },
        {"model": {"outputs": "correlated", "latent": 1}, "multiplier": {"schedule": "dual-ascent"}},
        {"model": {"sparse_above": 50, "inducing": 20}, "advantage": {"tail_critic": False}},
        {"model": {"precision": "float32"}, "imagination": {"draw": "marginals", "candidates": 1}},
        {"imagination": {"draw": "functions"}, "first": {"samples": 30, "how": "sobol"}},
    ],
    ids=["bootstrap", "entropy", "correlated", "sparse", "float32", "functions"],
)
def test_every_kind_of_learner_goes_on_exactly(changes: dict[str, Any], tmp_path: Path) -> None:
    due = train(Line(goal=1.0), preset="smoke", seed=SEED, **changes)
    how = {"task": Line(goal=1.0), **changes}
    stopped(tmp_path / "run", lambda events: reports(events, ImprovementReport) >= 7, **how)
    assert same(resume(tmp_path / "run", Line(goal=1.0)), due)


def test_earlier_data_go_along(whole: Run, tmp_path: Path) -> None:
    whole.data.to_csv(tmp_path / "earlier.csv")
    how: dict[str, Any] = {"data": tmp_path / "earlier.csv", "first": {"samples": 0}, "real_samples": 30}
    due = train(Line(), preset="smoke", seed=SEED, **how)
    for number, after in enumerate((1, 3, 4)):
        folder = tmp_path / str(number)
        stopped(folder, lambda events, after=after: len(events) >= after, **how)  # type: ignore[misc]
        (tmp_path / "earlier.csv").rename(tmp_path / "gone.csv")
        assert same(resume(folder, Line()), due)
        assert len(load_run(folder, Line()).data) == len(whole.data) + 30
        (tmp_path / "gone.csv").rename(tmp_path / "earlier.csv")


class Wearing(CountingRig):
    """A system that changes from one episode to the next, and draws from everybody's random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.wear = 0

    def step(self, action: Any) -> Any:
        luck = random.random() + float(np.random.rand()) + float(torch.rand(1))
        return super().step(action * (1 - 0.01 * self.wear) + 0.01 * luck)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.wear += 1
        return super().reset(seed=seed)

    def state_dict(self) -> dict[str, int]:
        return {"wear": self.wear}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.wear = int(state["wear"])


def test_the_systems_own_state_and_every_random_number_go_along(tmp_path: Path) -> None:
    def task() -> GymTask:
        return GymTask(Wearing(), cost=cost, safety=edge, horizon=10)

    def seed_everything(number: int) -> None:
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)

    how: dict[str, Any] = {"preset": "smoke", "seed": SEED, "real_samples": 60, "first": {"samples": 20}}
    seed_everything(1)
    due = train(task(), **how)
    seed_everything(1)
    heard: list[Event] = []
    with pytest.raises(Stopped):
        train(task(), out=tmp_path / "run", log=heard.append, stop=lambda: len(heard) >= 6, **how)
    seed_everything(2)
    assert same(resume(tmp_path / "run", task()), due)


def test_a_stop_waits_for_the_episode_of_a_rig_and_no_longer(tmp_path: Path) -> None:
    taken: list[int] = []

    class Watched(CountingRig):
        def step(self, action: Any) -> Any:
            taken.append(1)
            return super().step(action)

    task = GymTask(Watched(), cost=cost, safety=edge, horizon=10)
    with pytest.raises(Stopped):
        train(task, preset="smoke", out=tmp_path / "run", first={"samples": 40}, stop=lambda: len(taken) >= 3)
    assert len(taken) == 10
    record = Journal.read(tmp_path / "run" / "real.journal").find(0, 0)
    assert record is not None and bool(record.steps.active.all()) and not record.faults  # type: ignore[union-attr]
    run = resume(tmp_path / "run", task)
    assert len(taken) == len(run.data) == run.summary["real_samples"] == 120


def test_without_a_folder_a_run_stops_too() -> None:
    with pytest.raises(Stopped):
        train(Line(), preset="smoke", stop=lambda: True)


def test_a_trial_is_in_the_journal_before_anything_is_learned_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from samba_rl.models.gp import GPDynamics

    fit, seen = GPDynamics.fit, []

    def watched(self: GPDynamics, transitions: Any) -> Any:
        journal = Journal.read(tmp_path / "run" / "real.journal")
        traces = [steps for steps in journal.trials() if isinstance(steps, Traces)]
        seen.append((sum(steps.steps for steps in traces), len(transitions)))
        return fit(self, transitions)

    monkeypatch.setattr(GPDynamics, "fit", watched)
    train(Line(), preset="smoke", out=tmp_path / "run")
    assert len(seen) == 7 and all(written == learned for written, learned in seen)


def test_other_versions_are_said(copy: Path) -> None:
    for path in (copy / "checkpoints").iterdir():
        shutil.rmtree(path)
    (copy / "metrics.jsonl").unlink()
    config = json.loads((copy / "config.json").read_text())
    config["versions"]["torch"] = "1.0"
    (copy / "config.json").write_text(json.dumps(config))
    run = resume(copy, Line())
    assert any("started with torch 1.0 (now" in notice.text for notice in run.notices)


def test_the_number_of_threads_is_the_runs_and_then_what_it_was(copy: Path) -> None:
    seen: list[int] = []
    before = torch.get_num_threads()
    config = json.loads((copy / "config.json").read_text())
    assert config["threads"] == before == 1
    torch.set_num_threads(2)
    try:
        resume(copy, Line(), log=lambda _: seen.append(torch.get_num_threads()))
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
