"""Going on with a run: what is restored, what is said when something is not as it should be."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from samba_rl.data import DataSet
from samba_rl.data.files import DiskError
from samba_rl.data.journal import Journal
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Event, ImprovementReport, Notice, TrialReport
from samba_rl.runs import Run, load_run, resume, train
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.lock import Lock
from samba_rl.tasks.gym.task import GymTask
from samba_rl.types import Traces
from tests.line import Line
from tests.runs.systems import CountingRig, cost, counting_rig, edge, same_bits
from tests.threads import one_thread

SEED = 6


def stopped(folder: Path, after: Callable[[list[Event]], bool], **how: Any) -> list[Event]:
    """A run on the line that is stopped when the events so far say so."""
    heard: list[Event] = []
    how = {"preset": "smoke", "seed": SEED, **how}
    with pytest.raises(Stopped):
        train(how.pop("task", Line()), out=folder, log=heard.append, stop=lambda: after(heard), **how)
    return heard


def reports(events: list[Event], kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in events)


@pytest.fixture(scope="module")
def whole() -> Run:
    with one_thread():
        return train(Line(), preset="smoke", seed=SEED)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in the middle of an improvement, with two checkpoints. Not to be changed."""
    folder = tmp_path_factory.mktemp("half") / "run"
    with one_thread():
        stopped(folder, lambda events: reports(events, TrialReport) >= 3 and reports(events, ImprovementReport) >= 5,
                checkpoint_every=0.0)  # fmt: skip
    return folder


@pytest.fixture
def copy(half: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(half, tmp_path / "copy"))


def same(one: Run, other: Run) -> bool:
    mine, due = one.policy.state_dict(), other.policy.state_dict()
    data = vars(other.data.transitions)
    return all(same_bits(mine[name], due[name]) for name in due) and all(
        same_bits(getattr(one.data.transitions, name), values) for name, values in data.items()
    )


# The same end ---------------------------------------------------------------------------------------------------------


def test_a_run_can_be_stopped_at_every_report_and_goes_on(whole: Run, tmp_path: Path) -> None:
    moments = random.Random(0)

    def once_more() -> bool:
        return moments.random() < 0.3

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


@pytest.mark.parametrize(
    "changes",
    [
        {"zeta": "bootstrap", "constraint": {"kind": "expectation", "limit": 0.0}},
        {"zeta": "entropy", "more_constraints": ({"kind": "chance", "limit": 0.1},), "feasibility_iterations": 4},
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


# Write-ahead ----------------------------------------------------------------------------------------------------------


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


# Damage ---------------------------------------------------------------------------------------------------------------


def checkpoint(folder: Path, back: int = 1) -> Path:
    return sorted((folder / "checkpoints").iterdir())[-back]


def flip(path: Path, place: int = 500) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def flip_both(folder: Path) -> None:
    for back in (1, 2):
        flip(checkpoint(folder, back) / "agent.state")


def remove_both(folder: Path) -> None:
    """As the message about altered metrics advises."""
    shutil.rmtree(folder / "checkpoints")
    (folder / "metrics.jsonl").unlink()


def newer(name: str, old: bytes, new: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes().replace(old, new))


class Evil:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return pytest.fail, ("code from a file was run",)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: flip(checkpoint(f) / "agent.state"), "agent.state was altered; the checkpoint before it is used"),
        (lambda f: (checkpoint(f) / "around.state").unlink(), "around.state is missing; the checkpoint before it"),
        (lambda f: (checkpoint(f) / "manifest.json").write_text("{"), "manifest.json is damaged"),
        (lambda f: (checkpoint(f) / "agent.state").write_bytes(pickle.dumps(Evil())), "agent.state has"),
        (flip_both, "the run is computed anew from its real"),
        (remove_both, ""),
        (lambda f: (f / "metrics.jsonl").write_bytes((f / "metrics.jsonl").read_bytes() + b'{"kind": "tri'), ""),
        (lambda f: (f / "real.csv").write_text("nonsense"), ""),
    ],
    ids=["altered", "missing part", "torn manifest", "pickle", "both", "none", "torn metrics", "table"],
)  # fmt: skip
def test_a_run_goes_on_from_what_is_whole(damage: Callable[[Path], object], said: str, copy: Path, whole: Run) -> None:
    damage(copy)
    heard: list[Event] = []
    run = resume(copy, Line(), log=heard.append)
    notices = [event.text for event in heard if isinstance(event, Notice)]
    assert any(said in text and str(copy) in text for text in notices) or not said
    assert same(run, whole) and len(run.trials) == len(whole.trials)
    assert len(DataSet.from_csv(copy / "real.csv")) == len(run.data)


def in_manifest(folder: Path, **changes: Any) -> None:
    path = checkpoint(folder) / "manifest.json"
    path.write_text(json.dumps(signed({**json.loads(path.read_text()), **changes})))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: in_manifest(f, format=2, samba_rl="9.9"),
         r"manifest.json was written by a newer samba_rl \(9.9, format 2; this one reads up to 1\); install that"),
        (newer("config.json", b'"format": 1', b'"format": 2'), "config.json was written by a newer samba_rl"),
        (newer("real.journal", b"format 1", b"format 7"), "real.journal was written by a newer samba_rl"),
        (lambda f: flip(f / "real.journal", 2000), r"real.journal is damaged \(record 1 was torn or altered\).*--data"),
        (lambda f: os.truncate(f / "real.journal", 3000), r"real.journal is damaged \(record \d was torn or altered"),
        (lambda f: (f / "real.journal").unlink(), "real.journal cannot be read: No such file"),
        (lambda f: flip(f / "metrics.jsonl", 40), r"metrics.jsonl was altered.*remove metrics.jsonl and checkpoints"),
        (newer("config.json", b'"seed": 6', b'"seed": 7'), "config.json was altered since the last checkpoint; put it"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is damaged"),
        (lambda f: (f / "config.json").unlink(), "holds no run"),
    ],
)  # fmt: skip
def test_what_cannot_be_gone_on_with_is_named_with_the_way_out(
    damage: Callable[[Path], object], message: str, copy: Path
) -> None:
    damage(copy)
    before = (copy / "real.journal").read_bytes() if (copy / "real.journal").exists() else b""
    with pytest.raises(UserError, match=message) as caught:
        resume(copy, Line())
    assert str(copy) in str(caught.value) and "\n" not in str(caught.value)
    assert not before or (copy / "real.journal").read_bytes() == before
    # Nothing is locked up: the next try says the same.
    with pytest.raises(UserError, match=message):
        resume(copy, Line())


def test_a_state_of_another_shape_does_not_fit(copy: Path) -> None:
    """As a hand that means well may have made it: checksums are right, the numbers are not."""
    import hashlib

    from samba_rl.data.packing import pack, unpack

    part = checkpoint(copy) / "agent.state"
    state = unpack(part.read_bytes())
    state["control"]["policy"]["log_std"] = torch.zeros(7)
    packed = pack(state)
    part.write_bytes(packed)
    manifest = json.loads((part.parent / "manifest.json").read_text())
    manifest["parts"]["agent.state"] = {"bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
    (part.parent / "manifest.json").write_text(json.dumps(signed(manifest)))
    with pytest.raises(UserError, match=r"checkpoints/\d+ does not fit this run.*remove it"):
        resume(copy, Line())
    shutil.rmtree(part.parent)
    assert resume(copy, Line()).summary["real_samples"] == 120


def test_two_processes_do_not_write_to_one_folder(copy: Path) -> None:
    lock = Lock(copy)
    try:
        with pytest.raises(
            UserError, match=rf"copy is in use: process {os.getpid()} on .* is writing to it; wait until"
        ):
            resume(copy, Line())
        with pytest.raises(UserError, match="is in use"):
            train(Line(), preset="smoke", out=copy)
    finally:
        lock.release()


def test_a_folder_that_is_read_only_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_ = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return open_(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DiskError, match=r"\.lock cannot be written: Read-only file system; give a folder that can be"):
        resume(copy, Line())


FULL = """
import resource, signal, sys
from samba_rl.runs import train, resume
from samba_rl.errors import UserError
from tests.line import Line
import torch

torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    train(Line(), preset="smoke", seed=6, out=sys.argv[1], checkpoint_every=0.0)
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize("size", [1_500, 6_000, 20_000, 40_000])
def test_a_disk_that_is_full_stops_the_run_and_it_goes_on_when_there_is_room(
    size: int, whole: Run, tmp_path: Path
) -> None:
    """As far as files can grow: the limit is met in the journal's reserve, the metrics, a checkpoint."""
    folder = tmp_path / "run"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(folder), str(size)], capture_output=True, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "cannot be written: File too large" in done.stdout and str(folder) in done.stdout
    if (folder / "config.json").exists():
        assert f"samba-rl resume {folder}" in done.stdout
        assert same(resume(folder, Line()), whole)
    else:
        assert not folder.exists()


def test_a_full_disk_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch, whole: Run) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(
            DiskError, match=r"real.journal cannot be written: No space left on device; free some space"
        ):
            resume(copy, Line())
    assert same(resume(copy, Line()), whole)


def test_other_versions_are_said(copy: Path) -> None:
    for path in (copy / "checkpoints").iterdir():
        shutil.rmtree(path)
    (copy / "metrics.jsonl").unlink()
    config = json.loads((copy / "config.json").read_text())
    config["versions"]["torch"] = "1.0"
    (copy / "config.json").write_text(json.dumps(config))
    run = resume(copy, Line())
    assert any("begun with torch 1.0 (now" in notice.text for notice in run.notices)


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


def test_a_rig_needs_to_be_given(copy: Path) -> None:
    with pytest.raises(UserError, match="give the system: load_run"):
        resume(copy)
    with pytest.raises(UserError, match="is a run on 'line', not on 'CountingRig'"):
        resume(copy, counting_rig())
