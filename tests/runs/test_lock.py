"""Locks: the second process is told who was first, and a dead process holds nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from samba_rl.data.files import DiskError
from samba_rl.errors import UserError
from samba_rl.runs.lock import Lock, held
from tests.runs.holding import Others


@pytest.fixture(scope="module")
def others() -> Iterator[Others]:
    made = Others()
    try:
        yield made
    finally:
        made.close()


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def in_use(folder: Path, who: str) -> str:
    return rf"^{re.escape(str(folder))} is in use: {re.escape(who)} is writing to it; wait until it ends, or stop it"


def take_soon(folder: Path) -> Lock:
    """A lock as soon as there is one: a process that was killed needs a moment to end."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return Lock(folder)
        except UserError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def test_who_comes_second_is_told_who_was_first_until_that_one_is_killed(others: Others, tmp_path: Path) -> None:
    process = others.hold(tmp_path)
    before, files = (tmp_path / ".lock").read_bytes(), open_files()
    assert process != os.getpid() and held(tmp_path)
    for _ in range(3):
        with pytest.raises(UserError, match=in_use(tmp_path, f"process {process} on {socket.gethostname()}")):
            Lock(tmp_path)
    # It leaves nothing open, changes nothing and takes nothing away.
    assert open_files() == files and (tmp_path / ".lock").read_bytes() == before and held(tmp_path)
    os.kill(process, signal.SIGKILL)
    lock = take_soon(tmp_path)
    assert held(tmp_path)
    with pytest.raises(UserError, match=in_use(tmp_path, f"process {os.getpid()} on {socket.gethostname()}")):
        Lock(tmp_path)
    lock.release()
    assert not held(tmp_path)


def test_folders_are_held_each_for_itself(others: Others, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    others.hold(tmp_path / "one")
    lock = Lock(tmp_path / "other")
    assert held(tmp_path / "one") and held(tmp_path / "other") and not held(tmp_path)
    lock.release()
    assert held(tmp_path / "one") and not held(tmp_path / "other")


def test_a_folder_is_the_same_by_any_name(others: Others, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    process = others.hold(tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "link", Path("one"), Path("link"), tmp_path / "one" / ".." / "one"):
        assert held(name)
        with pytest.raises(UserError, match=in_use(name, f"process {process} on {socket.gethostname()}")):
            Lock(name)


def test_a_lock_that_is_released_is_free_though_a_forked_child_lives_on(others: Others, tmp_path: Path) -> None:
    others.hold(tmp_path, "fork")
    assert not held(tmp_path)


def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    files = open_files()
    for _ in range(3):
        assert not held(tmp_path)
        lock = Lock(tmp_path)
        assert held(tmp_path) and held(tmp_path)
        # Not even the same process gets it twice.
        with pytest.raises(UserError, match="is in use: process"):
            Lock(tmp_path)
        assert held(tmp_path)
        lock.release()
    assert not held(tmp_path) and open_files() == files


def test_asking_makes_nothing(tmp_path: Path) -> None:
    files = open_files()
    assert not held(tmp_path) and not held(tmp_path / "nowhere")
    assert os.listdir(tmp_path) == [] and open_files() == files
    (tmp_path / ".lock").write_bytes(b"")
    assert not held(tmp_path) and (tmp_path / ".lock").read_bytes() == b"" and open_files() == files


def test_two_may_ask_at_the_same_time(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    Lock(tmp_path).release()
    with open(tmp_path / ".lock", "rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert not held(tmp_path)


def test_the_lock_says_who_holds_it(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_bytes(b"x" * 5000)
    lock = Lock(tmp_path)
    due = {"process": os.getpid(), "machine": socket.gethostname()}
    assert json.loads((tmp_path / ".lock").read_bytes()) == due
    lock.release()


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiskError, match=rf"^{re.escape(str(tmp_path))}/nowhere/\.lock cannot be written: No such file"):
        Lock(tmp_path / "nowhere")

    def fail(path: Any, *_: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(DiskError, match=r"/\.lock cannot be written: Read-only file system; give a folder"):
        Lock(tmp_path)
    assert not held(tmp_path)


GARBAGE = st.binary(max_size=1200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(st.sampled_from(["process", "machine", "x"]), part, max_size=3)
        | st.fixed_dictionaries({"process": part, "machine": part})
    ),
    max_leaves=5,
).map(lambda value: json.dumps(value).encode())


@given(GARBAGE)
@example(b"")
@example(bytes(200))
@example(b"\xff\xfe")
@example(b"[" * 1000)
@example(b'{"process": Infinity, "machine": "m"}')
@example(b'{"process": 1e999, "machine": "m"}')
@example(b'{"process": null, "machine": "m"}')
@example(b'{"process": 12}')
@example(b'{"process": 12, "machine": "mach')
@example(b'{"process": ' + b"9" * 980 + b', "machine": 1}')
@settings(max_examples=150, deadline=None)
def test_whatever_is_in_the_file_the_folder_is_in_use(garbage: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, files = Path(folder), open_files()
        lock = Lock(home)
        (home / ".lock").write_bytes(garbage)
        try:
            with pytest.raises(UserError, match=r"is in use: (process -?\d+ on|another process)") as caught:
                Lock(home)
            assert str(home) in str(caught.value) and held(home)
        finally:
            lock.release()
        # And if nobody holds it, it keeps nobody out.
        assert not held(home)
        again = Lock(home)
        assert json.loads((home / ".lock").read_bytes())["process"] == os.getpid()
        again.release()
        assert open_files() == files


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b"null", b'{"process": "x", "machine": "m"}'])
def test_who_cannot_be_named_is_another_process(garbage: bytes, tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    (tmp_path / ".lock").write_bytes(garbage)
    with pytest.raises(UserError, match=in_use(tmp_path, "another process")):
        Lock(tmp_path)
    lock.release()


@pytest.mark.parametrize("name", ["pwrite", "ftruncate"])
def test_a_full_disk_is_named_and_the_lock_not_kept(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = open_files()

    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(DiskError, match=r"/\.lock cannot be written: No space left on device; free some space"):
            Lock(tmp_path)
    assert not held(tmp_path) and open_files() == files


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_disk_that_cannot_lock_is_not_taken_for_another_process(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", fail)
    assert not held(tmp_path)
    # It may go on without, or say that it cannot be done.
    with contextlib.suppress(DiskError):
        Lock(tmp_path).release()


def test_who_only_asks_keeps_nobody_out(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    Lock(tmp_path).release()
    with open(tmp_path / ".lock", "rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH | fcntl.LOCK_NB)
        timer = threading.Timer(0.05, lambda: fcntl.flock(asking, fcntl.LOCK_UN))
        timer.start()
        try:
            Lock(tmp_path).release()
        finally:
            timer.join()


def test_a_lock_whose_file_was_removed_in_between_is_still_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open
    first = [True]

    def open_and_lose(path: Any, *args: Any) -> int:
        file = opened(path, *args)
        if first.pop() if first else False:
            os.unlink(path)
        return file

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_and_lose)
        lock = Lock(tmp_path)
    assert held(tmp_path)
    lock.release()


def test_a_lock_may_be_released_twice(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    lock.release()
    mine = os.open(tmp_path / "mine", os.O_WRONLY | os.O_CREAT)
    lock.release()
    assert os.write(mine, b"still open") == 10
    os.close(mine)
    assert not held(tmp_path)
