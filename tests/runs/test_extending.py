"""A finished run goes on with more samples, and nothing of what it had is lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from samba_rl.errors import Stopped, UserError
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.runs import load_run, resume, train
from samba_rl.runs.listing import overview
from samba_rl.runs.loading import policy_so_far
from samba_rl.runs.verify import verify
from samba_rl.runs.waiting import WaitingRun, new_run
from tests.line import Line
from tests.runs.systems import same_policy
from tests.runs.test_waiting import measured, rig
from tests.threads import one_thread

QUICK: dict[str, Any] = {"preset": "smoke", "seed": 3, "real_samples": 20, "first": {"samples": 10}}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of 20 samples. Not to be changed."""
    folder = tmp_path_factory.mktemp("extending") / "run"
    with one_thread():
        train(Line(), out=folder, **QUICK)
    return folder


@pytest.fixture
def folder(ended: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ended, tmp_path / "run"))


def test_it_goes_on_with_all_that_it_had(folder: Path, ended: Path) -> None:
    with one_thread():
        before = load_run(folder, Line())
        more = resume(folder, Line(), real_samples=40)
    assert more.summary["real_samples"] == 40 and more.settings.real_samples == 40
    assert torch.equal(more.data.transitions.x[:20], before.data.transitions.x)
    assert [trial.real_samples for trial in more.trials] == [10, 20, 30, 40]
    assert verify(folder).damaged == () and overview(folder).budget == 40
    # The results of the smaller budget are still there.
    assert (folder / "policy-20.npz").read_bytes() == (ended / "policy.npz").read_bytes()
    assert json.loads((folder / "summary-20.json").read_text())["real_samples"] == 20
    with one_thread():
        again = resume(folder, Line(), real_samples=40)  # it has ended with that already
        assert same_policy(again, more) and (folder / "summary.json").exists()
        assert resume(folder, Line(), real_samples=50).summary["real_samples"] == 50
    assert load_run(folder, Line()).settings.real_samples == 50


def test_an_extension_that_is_interrupted_or_computed_again_ends_the_same(folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    events: list[object] = []
    with one_thread():
        whole = resume(folder, Line(), real_samples=40)
        with pytest.raises(Stopped):
            resume(
                other, Line(), real_samples=40, log=events.append, stop=lambda: len(events) >= 3, checkpoint_every=0.0
            )
        assert overview(other).state == "interrupted"
        # Without any checkpoint, both stages are computed again from the real trials.
        shutil.rmtree(other / "checkpoints")
        (other / "metrics.jsonl").write_bytes(b"")
        assert same_policy(resume(other, Line(), real_samples=40), whole)
    assert (other / "real.csv").read_bytes() == (folder / "real.csv").read_bytes()


def test_killed_between_its_steps_it_is_completed_by_the_same_call(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            resume(folder, Line(), real_samples=40)
    assert (folder / "summary.json").exists() and (folder / "extended.json").exists()
    with one_thread():
        assert resume(folder, Line(), real_samples=40).summary["real_samples"] == 40


def test_what_cannot_be_extended_is_refused(folder: Path, tmp_path: Path) -> None:
    for fewer in (20, 10):
        with pytest.raises(UserError, match=rf"real_samples = {fewer}; .* has spent 20, so give more"):
            resume(folder, Line(), real_samples=fewer)
    with one_thread(), pytest.raises(Stopped):
        train(Line(), out=tmp_path / "half", stop=lambda: True, **QUICK)
    with pytest.raises(UserError, match="is not finished; first let it end"):
        resume(tmp_path / "half", Line(), real_samples=40)
    with one_thread():
        resume(folder, Line(), real_samples=30)
    text = (folder / "extended.json").read_text()
    (folder / "extended.json").write_text(text.replace("30", "31"))
    with pytest.raises(UserError, match=r"extended.json was altered"):
        load_run(folder, Line())


def test_a_run_that_waits_goes_on_too(tmp_path: Path) -> None:
    with one_thread():
        run = new_run(tmp_path / "run", rig(), **{**QUICK, "real_samples": 10, "episodes": 1})
        request = run.ask()
        assert request is not None
        run.tell(*measured(request.policy, 0))
        assert run.ask() is None
        with pytest.raises(UserError, match="samba-rl ask"):
            resume(run.folder, rig(), real_samples=20)
        run = WaitingRun(run.folder, rig())
        request = run.ask()
        assert request is not None and request.trial == 1
        assert run.tell(*measured(request.policy, 1)).trial == 1
        assert run.ask() is None
    assert run.result().summary["real_samples"] == 20


def test_the_policy_of_an_interrupted_run_can_be_looked_at(tmp_path: Path) -> None:
    events: list[object] = []
    folder = tmp_path / "run"
    with one_thread(), pytest.raises(Stopped):
        train(
            Line(), out=folder, log=events.append, stop=lambda: len(events) >= 3, checkpoint_every=0.0, **QUICK
        )  # fmt: skip
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with one_thread():
        task, policy = policy_so_far(folder, Line())
    assert task == Line() and isinstance(policy, GaussianPolicy)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(UserError, match="has no checkpoint yet"):
        policy_so_far(folder, Line())


def test_other_threads_are_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    with one_thread():
        with pytest.raises(Stopped):
            train(Line(), out=tmp_path / "half", stop=lambda: True, **QUICK)
        monkeypatch.setattr(torch, "set_num_threads", chosen.append)
        run = resume(tmp_path / "half", Line(), threads=2)
        assert chosen == [2, 1]
        monkeypatch.undo()
    assert any("2 threads instead of 1" in notice.text for notice in run.notices)


def test_a_run_goes_on_on_another_device_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "half"
    with one_thread():
        with pytest.raises(Stopped):
            train(Line(), out=folder, stop=lambda: True, **QUICK)
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"device": "cpu"', '"device": "cuda:7"'))
        with pytest.raises(UserError, match=r"PyTorch sees \d CUDA devices?; give cpu"):
            resume(folder, Line())
        run = resume(folder, Line(), device="cpu")
    assert run.summary["device"] == "cpu" and run.summary["real_samples"] > 0
    assert any("on cpu instead of cuda:7" in notice.text for notice in run.notices)
