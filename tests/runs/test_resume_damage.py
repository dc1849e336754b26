"""`resume` on damaged folders, full disks and folders in use: what is recovered, and what is said."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from samba_rl.data import DataSet
from samba_rl.data.files import DiskError
from samba_rl.errors import UserError
from samba_rl.events import Event, Notice
from samba_rl.runs import Run, resume, train
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.lock import Lock
from tests.line import Line
from tests.runs.interrupted import same
from tests.runs.systems import counting_rig


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
    """Remove both, as the message about altered metrics advises."""
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
        (flip_both, "the run is recomputed from its real"),
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
        (lambda f: in_manifest(f, format=3, samba_rl="9.9"),
         r"manifest.json was written by a newer samba_rl \(9.9, format 3; this version reads up to 2\); install that"),
        (newer("config.json", b'"format": 2', b'"format": 3'), "config.json was written by a newer samba_rl"),
        (newer("real.journal", b"format 1", b"format 7"), "real.journal was written by a newer samba_rl"),
        (lambda f: flip(f / "real.journal", 2000), r"real.journal is damaged \(record 1 was torn or altered\).*--data"),
        (lambda f: os.truncate(f / "real.journal", 3000), r"real.journal is damaged \(record \d was torn or altered"),
        (lambda f: (f / "real.journal").unlink(), "real.journal cannot be read: No such file"),
        (lambda f: flip(f / "metrics.jsonl", 40), r"metrics.jsonl was altered.*remove metrics.jsonl and checkpoints"),
        (newer("config.json", b'"seed": 6', b'"seed": 7'), "config.json was altered since the last checkpoint"),
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
    """The checksums are right, but the numbers were changed by hand."""
    import hashlib

    from samba_rl.data.packing import pack, unpack

    part = checkpoint(copy) / "agent.state"
    state = unpack(part.read_bytes())
    state["snapshot"]["improver"]["policy"]["log_std"] = torch.zeros(7)
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
    """Files cannot grow beyond a size, which is met in the journal's reserve, the metrics or a checkpoint."""
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


def test_a_rig_needs_to_be_given(copy: Path) -> None:
    with pytest.raises(UserError, match="give the system: load_run"):
        resume(copy)
    with pytest.raises(UserError, match="is a run on 'line', not on 'CountingRig'"):
        resume(copy, counting_rig())
