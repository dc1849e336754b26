"""Real trials on systems that misbehave: what is kept, what is learned from, when the run pauses."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from samba_rl.cli import main
from samba_rl.cli.display import MISSED
from samba_rl.data import DataSet
from samba_rl.data.journal import Journal
from samba_rl.errors import Paused
from samba_rl.improve.policies import UniformPolicy
from samba_rl.runs import Run, load_run, resume, train
from samba_rl.runs.trials import Trial, Trials
from samba_rl.tasks.faults.settings import RealSettings
from samba_rl.tasks.gym.task import GymTask
from samba_rl.types import Traces
from tests.line import Line
from tests.runs.systems import CountingRig, cost, edge
from tests.threads import one_thread

ROOT = Path(__file__).parents[1]


class Moody(CountingRig):
    """Fails in one way, in the given steps counted from the beginning of its life (-1: in reset)."""

    def __init__(self, fault: str, at: tuple[int, ...] = (23,)) -> None:
        super().__init__()
        self.fault, self.at = fault, at
        self.steps = self.resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets += 1
        if self.fault == "reset" and self.resets in self.at:
            raise OSError("no power")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        failing, self.steps = self.steps in self.at, self.steps + 1
        if failing and self.fault == "hang":
            time.sleep(1.0)
        if failing and self.fault == "throw":
            raise RuntimeError("the cable came off\nsee the manual")
        wrong = {"nan": np.array([math.nan]), "inf": np.array([math.inf]), "shape": np.zeros(2)}
        return (wrong.get(self.fault, observation) if failing else observation, *rest)


def moody(fault: str, *at: int) -> GymTask:
    """A rig with moods."""
    return GymTask(Moody(fault, at or (23,)), cost=cost, safety=edge, horizon=10)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


HOW: dict[str, Any] = {"preset": "smoke", "seed": 1, "real_samples": 60, "first": {"samples": 20, "how": "uniform"}}
FAULTS = {
    "nan": "observation 0 is nan",
    "inf": "observation 0 is inf",
    "shape": "shape [2]",
    "throw": "Moody: step 3 failed: RuntimeError: the cable came off see the manual",
    "hang": "Moody: step 3 failed: no answer within 0.3 s",
}


def check_kept(run: Run, fault: str, folder: Path) -> None:
    """The three steps before the fault are kept, learned from and marked; nothing that is not finite is anywhere."""
    assert all(bool(torch.as_tensor(v).isfinite().all()) for v in vars(run.data.transitions).values())
    lengths = torch.bincount(run.data.transitions.episode).tolist()
    assert lengths[2] == 3 and lengths[:2] == [10, 10] and set(lengths[3:]) == {10}
    record = Journal.read(folder / "real.journal").find(1, 0)
    assert record is not None and isinstance(record.steps, Traces) and record.steps.steps == 3
    (mark,) = record.faults
    assert mark.step == 3 and FAULTS[fault] in mark.text and not mark.stopped
    assert [trial.broken for trial in run.trials] == [0, 1, *[0] * (len(run.trials) - 2)]
    assert any(mark.text in notice.text and "is kept up to there" in notice.text for notice in run.notices)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert any(row["kind"] == "trial" and row["broken"] == 1 for row in rows)
    assert len(DataSet.from_csv(folder / "real.csv")) == len(run.data) == run.summary["real_samples"]


@pytest.mark.parametrize("fault", ["nan", "inf", "shape", "throw"])
def test_a_fault_pauses_the_run_which_goes_on_when_it_is_resumed(fault: str, tmp_path: Path) -> None:
    folder, task = tmp_path / "run", moody(fault)
    with pytest.raises(Paused, match="Put the system in order before the run continues") as caught:
        train(task, out=folder, **HOW)
    assert FAULTS[fault] in str(caught.value) and "\n" not in str(caught.value)
    check_kept(resume(folder, task), fault, folder)


@pytest.mark.parametrize("fault", ["nan", "throw"])
def test_a_fault_does_not_end_a_run_that_is_to_continue(fault: str, tmp_path: Path) -> None:
    run = train(moody(fault), out=tmp_path / "run", real={"on_fault": "continue"}, **HOW)
    check_kept(run, fault, tmp_path / "run")
    assert load_run(tmp_path / "run", moody(fault)).summary == run.summary


def test_a_system_that_hangs_pauses_the_run_whatever_is_configured(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Paused, match=r"no answer within 0.3 s\. It still does not answer: put it in order"):
        train(moody("hang"), out=folder, real={"on_fault": "continue", "timeout": 0.3}, **HOW)
    # The program is started again, with a rig that is in order.
    check_kept(resume(folder, moody("")), "hang", folder)


def test_a_system_that_keeps_failing_pauses_a_run_that_is_to_continue(tmp_path: Path) -> None:
    task = moody("throw", 23, 24, 25, 26, 27, 28)
    with pytest.raises(Paused, match="The last 3 trials failed"):
        train(task, out=tmp_path / "run", real={"on_fault": "continue"}, **HOW)
    run = resume(tmp_path / "run", moody(""))
    assert run.summary["real_samples"] == len(run.data) and sum(trial.broken for trial in run.trials) == 1
    assert sum("the cable came off" in notice.text for notice in run.notices) == 3


def test_a_reset_that_fails_is_tried_again_after_the_pause(tmp_path: Path) -> None:
    folder, task = tmp_path / "run", moody("reset", 1, 4)
    for _ in range(2):
        with pytest.raises(Paused, match="Moody: reset failed: OSError: no power"):
            train(task, out=folder, **HOW) if not folder.exists() else resume(folder, task)
    run = resume(folder, task)
    assert run.summary["real_samples"] == len(run.data) == 60 and run.summary["episodes"] == 6


def test_without_a_folder_a_pause_ends_the_run() -> None:
    with pytest.raises(Paused, match="the cable came off"):
        train(moody("throw"), **HOW)


def outcome(running: Generator[object, None, Trial]) -> Trial:
    """The trial that a generator returns when it is exhausted."""
    while True:
        try:
            next(running)
        except StopIteration as end:
            trial: Trial = end.value
            return trial


def test_one_of_several_episodes_fails_and_the_others_go_on() -> None:
    task = Line(horizon=10)

    def broken(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        following = x + u
        return torch.where(following > 0.5, torch.nan, following)

    object.__setattr__(task, "_step", broken)
    trials = Trials(task.world(), RealSettings(on_fault="continue"))
    trial = outcome(trials(UniformPolicy((0.0,), (0.6,)), 8, torch.Generator().manual_seed(0)))
    lengths = trial.traces.active.sum(1)
    assert len(trial.failures) == int((lengths < 10).sum()) > 0 and int(lengths.max()) == 10
    assert bool(trial.traces.x.isfinite().all()) and bool(trial.traces.cost.isfinite().all())
    assert {fault.episode: fault.step for fault in trial.faults} == {
        episode: int(length) for episode, length in enumerate(lengths) if length < 10
    }
    assert "x is nan" in trial.failures[0] and not trial.traces.terminated.any()
    assert len(DataSet.empty(_schema(task)).append(trial.traces)) == trial.traces.steps


def _schema(task: Line) -> Any:
    from samba_rl.agents.agent import schema_of

    return schema_of(task)


SYSTEM = """
from tests.runs.test_trials import moody

def make():
    return moody("throw")
"""


def test_the_command_line_says_what_happened_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    (tmp_path / "mine.py").write_text(SYSTEM)
    mine, out = f"{tmp_path / 'mine.py'}:make", tmp_path / "run"
    quick = ["--no-pictures", "--no-evaluation", "--no-report"]
    arguments = ["train", mine, "--preset", "smoke", "--out", str(out), "--first.samples", "20", *quick]
    assert main(arguments) == 3
    said = capsys.readouterr().out
    assert "Paused: Moody: step 3 failed: RuntimeError: the cable came off" in said
    assert f"samba-rl resume {out} --task {mine}" in said.replace("\n", "")
    assert main(["runs", str(out)]) == 0
    assert "interrupted" in capsys.readouterr().out
    # A new program, so a new rig, which fails again in its third trial; then it is in order.
    assert main(["resume", str(out), "--task", mine, *quick]) == 3
    (tmp_path / "mine.py").write_text(SYSTEM.replace('"throw"', '""'))
    assert main(["resume", str(out), "--task", mine, *quick]) in (0, MISSED)
    assert load_run(out, moody("")).summary["real_samples"] == 116
