"""Folders from strangers: nothing outside them is read, written or waited for, and what is not a run's own stays."""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samba_rl.cli import main
from samba_rl.data import DataSet
from samba_rl.data.files import open_own, read_own, replacing
from samba_rl.data.step_log import StepLog
from samba_rl.errors import UserError
from samba_rl.runs import load_run, resume, train
from samba_rl.runs.lock import Lock, held
from samba_rl.runs.writer import RunFolder
from tests.line import Line
from tests.runs.interrupted import SEED

WRITTEN = (".lock", "metrics.jsonl", "real.csv", "real.journal", "policy.npz", "model.state", "summary.json")
"""Files that `resume` writes or replaces."""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file elsewhere that nobody may change."""
    path = tmp_path / "elsewhere.sh"
    path.write_text("echo mine\n")
    return path


def planted(path: Path, victim: Path, how: str) -> None:
    path.unlink(missing_ok=True)
    {"symbolic": path.symlink_to, "hard": path.hardlink_to}[how](victim)


@pytest.mark.parametrize("how", ["symbolic", "hard"])
@pytest.mark.parametrize("name", WRITTEN)
def test_resume_writes_to_no_file_elsewhere(name: str, how: str, copy: Path, victim: Path) -> None:
    planted(copy / name, victim, how)
    if name in ("policy.npz", "model.state"):  # these are replaced, and the link with them
        resume(copy, Line())
        assert not (copy / name).is_symlink() and (copy / name).stat().st_ino != victim.stat().st_ino
    else:
        with pytest.raises(
            UserError, match=rf"({name}|policy.npz) (cannot be (written|read)|is damaged|is missing)"
        ) as caught:
            resume(copy, Line())
        assert "\n" not in str(caught.value)
    assert victim.read_text() == "echo mine\n"


@pytest.mark.parametrize("name", ["000999", ".draft"])
def test_checkpoints_behind_a_link_are_neither_read_nor_written(name: str, copy: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(copy / "checkpoints", elsewhere)
    before = sorted(path.name for path in elsewhere.rglob("*"))
    (copy / "checkpoints" / name).symlink_to(elsewhere)
    resume(copy, Line())
    assert sorted(path.name for path in elsewhere.rglob("*")) == before


def test_a_folder_of_checkpoints_that_is_a_link_is_refused(copy: Path, tmp_path: Path) -> None:
    shutil.move(copy / "checkpoints", tmp_path / "elsewhere")
    before = sorted(path.name for path in (tmp_path / "elsewhere").rglob("*"))
    (copy / "checkpoints").symlink_to(tmp_path / "elsewhere")
    (copy / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="checkpoints cannot be written: File exists"):
        resume(copy, Line(), checkpoint_every=0.0)
    assert sorted(path.name for path in (tmp_path / "elsewhere").rglob("*")) == before


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def huge(path: Path) -> None:
    """A file without blocks on the disk that claims to have a terabyte."""
    os.truncate(path, 2**40)


READ = ("config.json", "metrics.jsonl", "summary.json", "policy.npz", "real.journal")


@pytest.mark.parametrize("plant", [fifo, device, dangling, huge])
@pytest.mark.parametrize("name", READ)
def test_odd_files_end_neither_in_a_hang_nor_in_a_traceback(
    name: str, plant: Callable[[Path], None], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(folder / name)
    with pytest.raises(UserError, match=rf"{name} (is damaged|cannot be read|is missing)|holds no run"):
        load_run(folder)
    main(["runs", str(folder.parent)])
    main(["runs", str(folder)])
    shown = capsys.readouterr().out
    assert name == "config.json" or "damaged" in shown or (name, plant) == ("summary.json", dangling)


@pytest.mark.parametrize("plant", [fifo, device, huge])
@pytest.mark.parametrize("name", ["real.steps", ".lock", "checkpoints/000002/manifest.json"])
def test_odd_files_of_an_interrupted_run(name: str, plant: Callable[[Path], None], copy: Path) -> None:
    path = next(copy.glob("checkpoints/*/manifest.json")) if "manifest" in name else copy / name
    path.touch()
    plant(path)
    assert held(copy) is False
    if name == ".lock" and plant is not huge:
        with pytest.raises(UserError, match=r"\.lock cannot be written"):
            resume(copy, Line())
    else:
        resume(copy, Line())


def test_a_compressed_policy_is_refused_before_it_is_unpacked(folder: Path) -> None:
    with np.load(folder / "policy.npz") as arrays:
        names = arrays.files
    with zipfile.ZipFile(folder / "policy.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(f"{name}.npy", bytes(10_000_000))
    with pytest.raises(UserError, match=r"policy\.npz is damaged .*compressed"):
        load_run(folder)


def test_earlier_data_from_a_fifo_are_refused(tmp_path: Path) -> None:
    for suffix in ("csv", "parquet"):
        path = tmp_path / f"data.{suffix}"
        os.mkfifo(path)
        with pytest.raises(UserError, match="it is not a regular file"):
            getattr(DataSet, f"from_{suffix}")(path)


def test_the_limits_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_own(path, 5) == b"12345"
    with pytest.raises(OSError, match="5 bytes; at most 4 are read"):
        read_own(path, 4)
    with pytest.raises(IsADirectoryError):
        read_own(tmp_path, 4)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="it is a symbolic link"):
        read_own(tmp_path / "link", 9)
    (tmp_path / "name").hardlink_to(path)
    assert read_own(path, 5) == b"12345"  # reading changes nothing
    with pytest.raises(OSError, match="hard links"):
        open_own(path, os.O_WRONLY | os.O_TRUNC)
    assert path.read_bytes() == b"12345"
    with replacing(tmp_path / "link", own=True) as file:
        file.write(b"new")
    assert not (tmp_path / "link").is_symlink() and path.read_bytes() == b"12345"


# What is not the run's own stays --------------------------------------------------------------------------------------


def test_a_folder_with_checkpoints_of_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "000001").mkdir(parents=True)
    (tmp_path / "checkpoints" / "000001" / "mine.pt").write_text("mine")
    with pytest.raises(UserError, match="already holds 'checkpoints', which is not this run's; give another folder"):
        train(Line(), preset="smoke", out=tmp_path)
    assert [path.name for path in tmp_path.rglob("mine.pt")] == ["mine.pt"]


@pytest.mark.parametrize("fails", [True, False])
def test_what_others_put_beside_the_checkpoints_stays(fails: bool, tmp_path: Path) -> None:
    """A run that fails before it measures removes its files, a successful one old checkpoints: theirs alone."""
    out = tmp_path / "run"

    def log(event: object) -> None:
        for number in ("000001", "000002", "7", "000900"):
            (out / "checkpoints" / number).mkdir(parents=True, exist_ok=True)
            (out / "checkpoints" / number / "mine.pt").write_text("mine")

    if fails:
        folder = RunFolder.create(out, {"task": "line"})
        folder.save({"agent": {}})
        log(None)
        folder.discard()
        assert not (out / "checkpoints" / "000001" / "manifest.json").exists() and not (out / "config.json").exists()
    else:
        train(Line(), preset="smoke", seed=SEED, out=out, log=log, checkpoint_every=0.0)
        # Checkpoints of its own are numbered after them.
        assert len(list((out / "checkpoints").glob("*/manifest.json"))) == 2
    assert len(list(out.rglob("mine.pt"))) == 4


def test_files_that_appear_where_a_new_run_writes_are_refused(tmp_path: Path) -> None:
    for name in ("model.state", "real.steps", "evaluation.json"):
        (tmp_path / name).symlink_to("nowhere")
        with pytest.raises(UserError, match=f"already holds '{name}', which is not this run's"):
            RunFolder.create(tmp_path, {})
        assert (tmp_path / name).is_symlink()
        (tmp_path / name).unlink()


# Order, flushes and leftovers -----------------------------------------------------------------------------------------


def test_the_lock_is_held_until_everything_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that resumed in between would lose what it measures."""
    out, removed = tmp_path / "run", []
    unlink = Path.unlink

    def watched(path: Path, missing_ok: bool = False) -> None:
        removed.append((path.name, held(out)))
        unlink(path, missing_ok=missing_ok)

    folder = RunFolder.create(out, {"task": "line"})
    monkeypatch.setattr(Path, "unlink", watched)
    folder.discard()
    assert removed[-1][0] == ".lock" and all(locked for _, locked in removed) and not out.exists()
    removed.clear()
    monkeypatch.setattr("samba_rl.runs.writer.write_json", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        RunFolder.create(out, {"task": "line"})
    assert removed[-1][0] == ".lock" and all(locked for _, locked in removed) and not out.exists()


def test_a_run_that_was_removed_while_another_process_waited_is_not_resumed(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(folder: Path) -> Lock:
        (folder / "config.json").unlink()
        return Lock(folder)

    monkeypatch.setattr("samba_rl.runs.writer.Lock", late)
    with pytest.raises(UserError, match="holds no run"):
        RunFolder.reopen(copy)


def test_nothing_tells_to_resume_a_run_that_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samba_rl.data.journal.reserve", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(UserError, match=r"No space left; free some space$"):
        train(Line(), preset="smoke", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_metrics_and_folders_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: set[int] = set()
    fsync, fdatasync = os.fsync, os.fdatasync

    def noted(flush: Callable[[int], None], file: int) -> None:
        flushed.add(os.fstat(file).st_ino)
        flush(file)

    monkeypatch.setattr(os, "fsync", functools.partial(noted, fsync))
    monkeypatch.setattr(os, "fdatasync", functools.partial(noted, fdatasync))
    out = tmp_path / "new" / "run"
    train(Line(), "ppilco", preset="smoke", out=out, checkpoint_every=1e9)
    wanted = [tmp_path, tmp_path / "new", out, *(out / name for name in ("metrics.jsonl", "real.csv", "real.journal"))]
    assert [path for path in wanted if path.stat().st_ino not in flushed] == []


def test_what_a_killed_writer_left_is_removed_at_the_next_start(folder: Path, half: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(half, tmp_path / "half")
    for place in (folder, copy, tmp_path / "new"):
        place.mkdir(exist_ok=True)
        (place / ".samba-0011223344556677.tmp").write_text("half")
        (place / ".samba.tmp").write_text("of others")
    resume(folder)
    resume(copy, Line())
    RunFolder.create(tmp_path / "new", {}).close()
    for place in (folder, copy, tmp_path / "new"):
        assert [path.name for path in place.glob(".samba*")] == [".samba.tmp"]


def test_room_for_the_steps_of_a_rig_is_reserved(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "real.steps")
    log.reserve(100_000)
    about = (tmp_path / "real.steps").stat()
    assert about.st_blocks * 512 >= 100_000 and stat.S_ISREG(about.st_mode) and log.lines() == []
    import torch

    log.begin({"trial": 1}, torch.zeros(1))
    log.step(x=[2.0])
    assert log.lines() == [{"trial": 1, "x": [0.0]}, {"x": [2.0]}]
    assert (tmp_path / "real.steps").stat().st_size == 100_000
    log.reserve(10)
    assert log.lines() == []
    log.close()


def test_the_reserved_room_is_enough_for_any_numbers(tmp_path: Path) -> None:
    import torch

    from samba_rl.runs.trials import _step_bytes

    task, log = Line(), StepLog(tmp_path / "real.steps")
    log.reserve(_step_bytes(task))
    size, worst = (tmp_path / "real.steps").stat().st_size, -1.7976931348623157e308
    log.begin({"trial": 10**9, "part": 10**9, "random": "00" * 5056}, torch.tensor([worst], dtype=torch.float64))
    for _ in range(task.horizon):
        log.step(u=[worst], x=[worst], cost=worst, safety=[worst], violation=[False], terminated=False)
    assert (tmp_path / "real.steps").stat().st_size == size


@pytest.mark.parametrize(
    ("name", "value"), [("threads", 0), ("threads", 10**6), ("threads", 10**30), ("workers", -1), ("workers", 10**9)]
)
def test_numbers_of_threads_and_processes_are_bounded(name: str, value: int, copy: Path) -> None:
    """Without checkpoints, no checksum of the configuration stands in the way; a million threads end the program."""
    shutil.rmtree(copy / "checkpoints")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, name: value}))
    with pytest.raises(UserError, match=rf"config.json: {name} = {value}; it must be from [01] to 1024"):
        resume(copy, Line())
