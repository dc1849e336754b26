"""A run that is killed, whenever it is, ends as it would have ended."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from samba_rl.data import DataSet
from samba_rl.data.journal import Journal
from samba_rl.learners import LEARNERS
from samba_rl.runs import load_run
from samba_rl.tasks.task import Task
from samba_rl.types import Traces
from tests.runs.killing import KILLED, Nursery, nursery
from tests.runs.systems import LOG, counting_rig, rig_steps, same_bits

MOMENTS = 30
"""Moments at which runs are killed, over all learners."""
EACH = -(-MOMENTS // len(LEARNERS))


@pytest.fixture(scope="module")
def runs() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Without the time, which is another one."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def assert_same(folder: Path, reference: Path, task: Task | None = None) -> None:
    """Policy, metrics, model and every real transition, to the bit."""
    one, other = load_run(folder, task), load_run(reference, task)
    mine, due = one.policy.state_dict(), other.policy.state_dict()
    assert mine.keys() == due.keys() and all(same_bits(mine[name], due[name]) for name in due)
    assert metrics(folder) == metrics(reference)
    for name, values in vars(other.data.transitions).items():
        assert same_bits(getattr(one.data.transitions, name), values), name
    assert (folder / "real.csv").read_bytes() == (reference / "real.csv").read_bytes()
    assert Journal.read(folder / "real.journal").digest == Journal.read(reference / "real.journal").digest
    if one.row.source.imagines:
        assert len(one.model) == len(other.model) == len(one.data)
        assert one.model._fingerprint() == other.model._fingerprint()
    timed = {"seconds", "seconds_by_phase"}
    assert {k: v for k, v in one.summary.items() if k not in timed} == {
        k: v for k, v in other.summary.items() if k not in timed
    }


def go_on(runs: Nursery, folder: Path, learner: str, **how: Any) -> dict[str, Any]:
    """Resume, or begin anew if the run had not begun when it was killed."""
    begun = (folder / "config.json").exists()
    return runs.run("resume" if begun else "train", folder, learner=learner, **how)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_run_that_is_killed_ends_as_it_would_have(runs: Nursery, learner: str, tmp_path: Path) -> None:
    begin = time.monotonic()
    whole = runs.run("train", tmp_path / "whole", learner=learner)
    seconds = time.monotonic() - begin
    assert whole["code"] == 0 and whole["calls"] > 50
    moments, killed = random.Random(learner), 0
    for moment in range(EACH):
        folder = tmp_path / str(moment)
        # Half of them inside a write; a third is killed a second time while it goes on.
        inside = moment % 2 == 0
        when = {"call": moments.randint(1, whole["calls"])} if inside else {"seconds": moments.uniform(0.05, seconds)}
        ends = [runs.run("train", folder, learner=learner, **when)["code"]]
        if moment % 3 == 0:
            ends.append(go_on(runs, folder, learner, call=moments.randint(1, 40))["code"])
        assert set(ends) <= {KILLED, 0}
        killed += ends.count(KILLED)
        assert go_on(runs, folder, learner)["code"] == 0, when
        assert_same(folder, tmp_path / "whole")
    assert killed >= EACH - 1


def test_checkpoints_now_and_then_lead_to_the_same_end(runs: Nursery, tmp_path: Path) -> None:
    """The others have one after every control iteration, this one hardly any: trials come back from the journal."""
    assert runs.run("train", tmp_path / "whole")["code"] == 0
    whole = runs.run("train", tmp_path / "other", checkpoint_every=60.0)
    assert_same(tmp_path / "other", tmp_path / "whole")
    for call in range(5, whole["calls"], max(1, whole["calls"] // 4)):
        folder = tmp_path / str(call)
        assert runs.run("train", folder, checkpoint_every=60.0, call=call)["code"] == KILLED
        assert go_on(runs, folder, "samba", checkpoint_every=60.0)["code"] == 0
        assert_same(folder, tmp_path / "whole")


def test_a_rig_that_is_killed_in_an_episode_keeps_every_step(
    runs: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, noted = tmp_path / "run", tmp_path / "noted"
    settings = {"real_samples": 60, "first": {"samples": 20, "how": "uniform"}, "episodes": 2}
    monkeypatch.setenv(LOG, str(noted))
    with nursery() as rigs:
        moments, ends, call = random.Random(0), [], 8
        while not noted.exists() or len(rig_steps(noted)) < 3:  # until the first kill falls into an episode
            shutil.rmtree(folder, ignore_errors=True)
            noted.unlink(missing_ok=True)
            call += 1
            ends = [rigs.run("train", folder, task="rig", call=call, settings=settings)["code"]]
        while ends[-1] != 0 and len(ends) < 40:
            ends.append(rigs.run("resume", folder, task="rig", call=moments.randint(10, 60))["code"])
    assert ends[-1] == 0 and ends.count(KILLED) >= 5
    run = load_run(folder, counting_rig())
    kept = {(float(a), float(b)) for a, b in zip(run.data.transitions.x, run.data.transitions.x_next, strict=True)}
    lost = [step for step in rig_steps(noted) if step not in kept]
    # Killed after the rig had moved and before it could be written down: at most the one step.
    assert len(lost) <= ends.count(KILLED)
    broken = [notice.text for notice in run.notices if "the program was stopped at step" in notice.text]
    assert broken and len(kept) == len(run.data) == run.summary["real_samples"]
    marks = [
        record.faults
        for trial in range(20)
        for part in range(2)
        if (record := Journal.read(folder / "real.journal").find(trial, part)) is not None
        and isinstance(record.steps, Traces)
    ]
    assert sum(len(faults) for faults in marks) == len(broken) and all(f.stopped for faults in marks for f in faults)
    assert len(DataSet.from_csv(folder / "real.csv")) == len(run.data)
    assert not (folder / "real.steps").exists()
