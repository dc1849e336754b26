"""Checkpoints of programs that are killed, and on disks that cannot be written to."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samba_rl.data.files import DiskError
from samba_rl.runs.checkpoints import (
    latest,
    read_checkpoint,
    write_checkpoint,
)
from tests.runs.checkpoints import assert_back, names, write

# Killed programs ------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nobody catches it."""


CALLS = ("mkdir", "open", "write", "fsync", "rename", "unlink", "rmdir")


def fail_at(monkeypatch: pytest.MonkeyPatch, fatal: int, error: BaseException, calls: tuple[str, ...]) -> list[str]:
    """The call of that number (from 1) among those to os fails, of a write after its first half; returns all calls."""
    made: list[str] = []

    def failing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made.append(name)
            if len(made) == fatal:
                if name == "write":
                    function(args[0], bytes(args[1])[: len(args[1]) // 2])
                raise error
            return function(*args, **kwargs)

        return call

    for name in calls:
        monkeypatch.setattr(os, name, failing(name, getattr(os, name)))
    return made


def number_of_calls(monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...], tmp_path: Path) -> list[str]:
    write(tmp_path / "whole", 1, 2)
    made = fail_at(monkeypatch, 0, Killed(), calls)
    write(tmp_path / "whole", 3)
    monkeypatch.undo()
    return made


def test_a_program_that_is_killed_at_any_moment_leaves_a_sound_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    made = number_of_calls(monkeypatch, CALLS, tmp_path)
    renamed = made.index("rename") + 1
    assert made.count("rename") == 1 and len(made) > renamed + 3
    for fatal in range(1, len(made) + 1):
        home = tmp_path / str(fatal)
        home.mkdir()
        write(home, 1, 2)
        fail_at(monkeypatch, fatal, Killed(), CALLS)
        with pytest.raises(Killed):
            write(home, 3)
        monkeypatch.undo()
        # Not a word is said: a write that broke off is no damage.
        assert_back(home, 3 if fatal > renamed else 2)
        write(home, 4)
        assert_back(home, 4)
        last = 4 if fatal > renamed else 3
        assert names(home) == [f"{last - 1:06d}", f"{last:06d}"]


def test_what_a_killed_write_left_is_ignored_and_replaced(home: Path) -> None:
    draft = home / "checkpoints" / ".draft"
    shutil.copytree(home / "checkpoints" / "000002", draft)
    (draft / "agent.state").write_bytes(b"half")
    (draft / "old.state").write_bytes(b"of another version")
    (draft / "folder").mkdir()
    assert_back(home, 2)
    assert latest(home) == home / "checkpoints" / "000002"
    write(home, 3)
    assert_back(home, 3)
    assert names(home) == ["000002", "000003"]
    assert sorted(path.name for path in (home / "checkpoints" / "000003").iterdir()) == [
        "agent.state",
        "around.state",
        "manifest.json",
    ]


def test_everything_is_on_the_disk_before_it_counts_and_the_old_goes_last(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, object]] = []
    fsync, rename, unlink, rmdir = os.fsync, os.rename, os.unlink, os.rmdir

    def flushed(file: int) -> None:
        done.append(("fsync", os.fstat(file).st_ino))
        fsync(file)

    def renamed(old: Path, new: Path) -> None:
        done.append(("rename", new.name))
        rename(old, new)

    def removed(path: Any, **how: Any) -> None:
        done.append(("unlink", Path(path).name))
        unlink(path, **how)

    def gone(path: Any, **how: Any) -> None:
        done.append(("rmdir", None))
        rmdir(path, **how)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "unlink", removed)
    monkeypatch.setattr(os, "rmdir", gone)
    write(home, 3)
    path = home / "checkpoints" / "000003"
    moment = done.index(("rename", "000003"))
    needed = [path, path / "agent.state", path / "around.state", path / "manifest.json"]
    assert {("fsync", each.stat().st_ino) for each in needed} <= set(done[:moment])
    # The manifest is the last of the files.
    order = [number for what, number in done[:moment] if what == "fsync"]
    assert order.index((path / "manifest.json").stat().st_ino) == 2
    after = done[moment + 1 :]
    assert after[0] == ("fsync", (home / "checkpoints").stat().st_ino)
    # What is left of it if the program is killed now must not look like a checkpoint.
    assert after[1] == ("unlink", "manifest.json") and after[-1] == ("rmdir", None)
    assert not any(what in ("unlink", "rmdir") for what, _ in done[:moment])


# Disks that cannot be written to --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (errno.ENOSPC, "No space left on device; free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EROFS, "Read-only file system; give a folder that can be written to"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_disk_that_fails_at_any_moment_is_named_and_costs_no_earlier_checkpoint(
    code: int, way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = ("mkdir", "write", "fsync", "rename")
    (tmp_path / "whole").mkdir()
    made = number_of_calls(monkeypatch, calls, tmp_path)
    renamed = made.index("rename") + 1
    assert made.count("write") == 3 and made.count("fsync") == 5
    for fatal in range(2, len(made) + 1):  # the first makes a folder that is there
        home = tmp_path / str(fatal)
        home.mkdir()
        write(home, 1, 2)
        fail_at(monkeypatch, fatal, OSError(code, os.strerror(code)), calls)
        with pytest.raises(DiskError, match=way_out) as caught:
            write(home, 3)
        monkeypatch.undo()
        assert str(caught.value).startswith(f"{home}/checkpoints/") and " cannot be written: " in str(caught.value)
        assert_back(home, 3 if fatal > renamed else 2)
        write(home, 4)
        assert_back(home, 4)


@pytest.mark.parametrize("name", ["mkdir", "open"])
def test_a_folder_that_cannot_be_written_to_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., Any] = getattr(os, name)

    def fail(path: Any, *args: Any, **how: Any) -> Any:
        if name == "open" and args[0] == os.O_RDONLY:
            return original(path, *args, **how)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    write(tmp_path, 1)
    for home in (tmp_path, tmp_path / "other"):
        home.mkdir(exist_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(DiskError, match=r"cannot be written: Read-only file system; give a folder") as caught:
                write(home, 2)
        assert str(caught.value).startswith(f"{home}/checkpoints")
    assert_back(tmp_path, 1)
    assert read_checkpoint(tmp_path / "other") == (None, [])


def test_something_else_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    assert read_checkpoint(tmp_path) == (None, []) and latest(tmp_path) is None
    with pytest.raises(DiskError, match=rf"^{re.escape(str(tmp_path))}/checkpoints cannot be written: File exists"):
        write(tmp_path, 1)


def test_a_state_that_cannot_be_packed_leaves_the_others_as_they_are(home: Path) -> None:
    with pytest.raises(TypeError):
        write_checkpoint(home, {"agent": {"x": 1}, "around": {"thing": object()}}, {})
    assert_back(home, 2)
    write(home, 3)
    assert_back(home, 3)
    assert names(home) == ["000002", "000003"]
