"""Checkpoints: whole or not at all, checked when they are read, and with another to fall back on."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_rl import __version__
from samba_rl.data.files import DiskError
from samba_rl.data.packing import pack
from samba_rl.errors import UserError
from samba_rl.runs.checkpoints import (
    Checkpoint,
    latest,
    read_checkpoint,
    read_manifest,
    remove_damaged,
    signed,
    write_checkpoint,
)
from samba_rl.types import State
from tests.runs.systems import same_bits

Damage = Callable[[Path], object]


def state(number: int) -> State:
    """Two parts."""
    return {
        "agent": {"x": torch.arange(5.0) + number, "nested": {"random": torch.arange(9, dtype=torch.uint8)}},
        "around": {"count": number, "text": "θ", "nothing": None},
    }


def about(number: int) -> dict[str, Any]:
    return {"trials": number, "journal": "00" * 32}


def write(home: Path, *numbers: int) -> None:
    for number in numbers:
        write_checkpoint(home, state(number), about(number))


def names(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "checkpoints").iterdir())


def is_state(found: Checkpoint | None, number: int) -> bool:
    """Whether it is what was written as number so and so."""
    if found is None:
        return False
    agent, due = found.state["agent"], state(number)["agent"]
    return (
        found.about == {"format": 1, "samba_rl": __version__, **about(number)}
        and list(found.state) == ["agent", "around"]
        and found.state["around"] == state(number)["around"]
        and same_bits(agent["x"], due["x"])
        and same_bits(agent["nested"]["random"], due["nested"]["random"])
    )


def assert_back(home: Path, number: int, *problems: str) -> None:
    """The last sound checkpoint is that one, and of later ones this is said."""
    found, said = read_checkpoint(home)
    assert is_state(found, number) and len(said) == len(problems), said
    for text, pattern in zip(said, problems, strict=True):
        assert re.search(pattern, text) and str(home / "checkpoints") in text and "\n" not in text


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run with two checkpoints, of the states 1 and 2."""
    write(tmp_path, 1, 2)
    return tmp_path


# There and back -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) == (None, []) and latest(tmp_path) is None
    for number in range(1, 6):
        path = write_checkpoint(tmp_path, state(number), about(number))
        assert path == tmp_path / "checkpoints" / f"{number:06d}" == latest(tmp_path)
        found, problems = read_checkpoint(tmp_path)
        assert is_state(found, number) and problems == [] and found is not None and found.path == path


def test_only_the_last_two_are_kept(tmp_path: Path) -> None:
    for number in range(1, 6):
        write(tmp_path, number)
        assert names(tmp_path) == [f"{kept:06d}" for kept in range(max(1, number - 1), number + 1)]
    shutil.rmtree(tmp_path / "checkpoints" / "000005")
    assert_back(tmp_path, 4)


def test_they_are_counted_on_beyond_six_digits(home: Path) -> None:
    (home / "checkpoints" / "000002").rename(home / "checkpoints" / "999999")
    write(home, 3)
    assert names(home) == ["1000000", "999999"] and latest(home) == home / "checkpoints" / "1000000"
    assert_back(home, 3)
    write(home, 4)
    assert names(home) == ["1000000", "1000001"]
    assert_back(home, 4)


def test_the_manifest_says_what_there_is(home: Path) -> None:
    path = home / "checkpoints" / "000002"
    manifest = json.loads((path / "manifest.json").read_text(), parse_constant=pytest.fail)
    assert sorted(each.name for each in path.iterdir()) == ["agent.state", "around.state", "manifest.json"]
    parts = {
        name: {"bytes": (path / name).stat().st_size, "sha256": hashlib.sha256((path / name).read_bytes()).hexdigest()}
        for name in ("agent.state", "around.state")
    }
    due = {"format": 1, "samba_rl": __version__, **about(2), "parts": parts}
    assert read_manifest(path) == due and manifest == signed(due)
    rest = json.dumps({name: value for name, value in manifest.items() if name != "sha256"}, sort_keys=True)
    assert manifest["sha256"] == hashlib.sha256(rest.encode()).hexdigest()
    assert (path / "agent.state").read_bytes() == pack(state(2)["agent"])


def test_a_state_of_no_parts_and_a_manifest_of_nothing_else_are_fine(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {}, {})
    found, problems = read_checkpoint(tmp_path)
    assert found is not None and found.state == {} and problems == []


def test_other_things_in_the_folder_are_left_alone(home: Path) -> None:
    folder = home / "checkpoints"
    (folder / "notes.txt").write_text("mine")
    shutil.copytree(folder / "000002", folder / "000009.copy")
    shutil.copytree(folder / "000002", folder / "-00009")
    write(home, 3, 4, 5)
    assert names(home) == ["-00009", "000004", "000005", "000009.copy", "notes.txt"]
    assert_back(home, 5)


# Damage ---------------------------------------------------------------------------------------------------------------


class Evil:
    """What a pickle in the place of a state would run."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return pytest.fail, ("code from a file was run",)


def removed(name: str) -> Damage:
    return lambda path: (path / name).unlink()


def replaced(name: str, data: bytes) -> Damage:
    return lambda path: (path / name).write_bytes(data)


def cut(name: str, size: int) -> Damage:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:size])


def flipped(name: str, place: int, bit: int = 0) -> Damage:
    def flip(path: Path) -> None:
        data = bytearray((path / name).read_bytes())
        data[place] ^= 1 << bit
        (path / name).write_bytes(data)

    return flip


def folder_for(name: str) -> Damage:
    def swap(path: Path) -> None:
        (path / name).unlink()
        (path / name).mkdir()

    return swap


def file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file")


def emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def manifest_with(**changes: object) -> Damage:
    def change(path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps(signed({**manifest, **changes})))

    return change


def part_with(name: str, data: bytes) -> Damage:
    """A part that is something else, with the checksum of that in the manifest: somebody meant it."""

    def change(path: Path) -> None:
        (path / name).write_bytes(data)
        parts = read_manifest(path)["parts"]
        parts[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest_with(parts=parts)(path)

    return change


ANY = {"bytes": 1, "sha256": "00"}
PLANTED = pickle.dumps(Evil())


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (removed("agent.state"), "000002/agent.state is missing"),
        (removed("around.state"), "000002/around.state is missing"),
        (cut("agent.state", 20), r"000002/agent.state has 20 bytes instead of \d+"),
        (cut("agent.state", 0), r"000002/agent.state has 0 bytes instead of \d+"),
        (cut("around.state", -1), r"000002/around.state has \d+ bytes instead of \d+"),
        (flipped("agent.state", 0), "000002/agent.state was altered"),
        (flipped("agent.state", -1, 7), "000002/agent.state was altered"),
        (flipped("around.state", 30), "000002/around.state was altered"),
        (folder_for("agent.state"), "000002/agent.state cannot be read: Is a directory"),
        (replaced("agent.state", PLANTED), r"000002/agent.state has \d+ bytes instead of"),
        (part_with("agent.state", PLANTED), "000002/agent.state is damaged"),
        (part_with("agent.state", b""), "000002/agent.state is damaged: it has 0 bytes"),
        (part_with("agent.state", pack(state(2)["agent"])[:-1]), "000002/agent.state is damaged: .*outside its"),
        (removed("manifest.json"), "000002/manifest.json is missing"),
        (folder_for("manifest.json"), "000002/manifest.json is damaged"),
        (cut("manifest.json", 0), "000002/manifest.json is damaged"),
        (cut("manifest.json", 100), "000002/manifest.json is damaged"),
        (cut("manifest.json", -3), "000002/manifest.json is damaged"),
        (replaced("manifest.json", PLANTED), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b"\xff\xfe\x00"), "000002/manifest.json is damaged"),
        (replaced("manifest.json", bytes(300)), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b"[" * 100_000), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b"[]"), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b"3"), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b"null"), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b'"format"'), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b"{}"), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b'{"format": 1}'), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b'{"parts": {}}'), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b'{"format": 1, "parts": {}, "n": ' + b"9" * 9999 + b"}"), "manifest.json is damag"),
        (manifest_with(parts=None), "000002/manifest.json is damaged"),
        (manifest_with(parts=["agent.state"]), "000002/manifest.json is damaged"),
        (manifest_with(parts="agent.state"), "000002/manifest.json is damaged"),
        (manifest_with(parts={"agent.state": None}), "000002/manifest.json is damaged"),
        (manifest_with(parts={"agent.state": [1, "00"]}), "000002/manifest.json is damaged"),
        (manifest_with(parts={"agent.state": {"bytes": 1}}), "000002/manifest.json is damaged"),
        (manifest_with(parts={"agent.state": {"bytes": "many", "sha256": ""}}), "000002/manifest.json is damaged"),
        (manifest_with(parts={"agent.state": {"bytes": float("nan"), "sha256": ""}}), "000002/manifest.json is damage"),
        (manifest_with(parts={"agent.state": {"bytes": float("inf"), "sha256": ""}}), "000002/manifest.json is damage"),
        (manifest_with(parts={"agent.state": {"bytes": -1, "sha256": ""}}), "000002/agent.state has"),
        (manifest_with(parts={"agent.state": {"bytes": 1, "sha256": None}}), "000002/agent.state has"),
        (manifest_with(parts={"../x": ANY}), "000002/manifest.json names a part outside its folder"),
        (manifest_with(parts={"../000001/agent.state": ANY}), "000002/manifest.json names a part outside its folder"),
        (manifest_with(parts={"/etc/passwd": ANY}), "000002/manifest.json names a part outside its folder"),
        (manifest_with(parts={"sub/agent.state": ANY}), "000002/manifest.json names a part outside its folder"),
        (manifest_with(parts={".": ANY}), "000002/manifest.json names a part outside its folder"),
        (manifest_with(parts={"..": ANY}), "000002"),
        (manifest_with(parts={"": ANY}), "000002"),
        (manifest_with(parts={"x" * 5000: ANY}), "000002/x+ cannot be read: File name too long"),
        (manifest_with(parts={"a\0b.state": ANY}), "000002"),
        (manifest_with(parts={"\ud800.state": ANY}), "000002"),
        (file_instead, "000002/manifest.json is damaged"),
        (emptied, "000002/manifest.json is missing"),
    ],
)
def test_damage_is_named_and_the_one_before_is_used(damage: Damage, problem: str, home: Path) -> None:
    damage(home / "checkpoints" / "000002")
    assert_back(home, 1, problem)
    assert latest(home) == home / "checkpoints" / "000002"


def test_if_all_are_damaged_there_is_none(home: Path) -> None:
    folder = home / "checkpoints"
    removed("agent.state")(folder / "000002")
    flipped("around.state", 9)(folder / "000001")
    found, problems = read_checkpoint(home)
    assert found is None and [problem.removeprefix(f"{folder}/") for problem in problems] == [
        "000002/agent.state is missing",
        "000001/around.state was altered",
    ]


def test_after_damage_it_goes_on_with_a_number_of_its_own(home: Path) -> None:
    cut("manifest.json", 30)(home / "checkpoints" / "000002")
    write(home, 3)
    assert latest(home) == home / "checkpoints" / "000003"
    assert_back(home, 3)
    write(home, 4)
    assert names(home) == ["000003", "000004"]


def test_a_sound_checkpoint_is_not_removed_for_a_damaged_one(home: Path) -> None:
    flipped("agent.state", 30)(home / "checkpoints" / "000002")
    assert_back(home, 1, "000002/agent.state was altered")
    sound, _ = read_checkpoint(home)
    assert sound is not None
    remove_damaged(home, sound)
    write(home, 3)
    # It has the number of the one that was removed.
    flipped("agent.state", 30)(home / "checkpoints" / "000002")
    found, _ = read_checkpoint(home)
    assert is_state(found, 1)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints. Not to be changed."""
    home = tmp_path_factory.mktemp("original")
    write(home, 1, 2)
    return home


def damaged_copy(original: Path, folder: str, name: str, data: bytes) -> Path:
    home = Path(shutil.copytree(original, Path(folder) / "copy"))
    (home / "checkpoints" / "000002" / name).unlink()
    (home / "checkpoints" / "000002" / name).write_bytes(data)
    return home


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_change_of_a_part_is_found(original: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["agent.state", "around.state"]))
    old = (original / "checkpoints" / "000002" / name).read_bytes()
    new = bytearray(old)
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(old) - 1), st.integers(0, 255)), max_size=3)):
        new[place] = byte
    new = new[: data.draw(st.integers(0, len(old)) | st.just(len(old)))] + data.draw(st.binary(max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        home = damaged_copy(original, folder, name, bytes(new))
        if new == old:
            assert_back(home, 2)
        else:
            assert_back(home, 1, f"000002/{name} ")


def read_or_refuse(home: Path) -> tuple[Checkpoint | None, list[str]] | None:
    """None if the manifest now claims to be of a newer version; no other exception is allowed."""
    try:
        return read_checkpoint(home)
    except UserError as error:
        if "000002/manifest.json was written by a newer samba_rl" not in str(error):
            raise
        return None


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_change_of_a_manifest_costs_no_more_than_that_checkpoint(original: Path, data: st.DataObject) -> None:
    new = bytearray((original / "checkpoints" / "000002" / "manifest.json").read_bytes())
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(new) - 1), st.integers(0, 255)), min_size=1, max_size=3)
    ):
        new[place] = byte
    with tempfile.TemporaryDirectory() as folder:
        found = read_or_refuse(damaged_copy(original, folder, "manifest.json", bytes(new)))
    if found is not None and found[1]:
        assert is_state(found[0], 1) and "checkpoints/000002/" in found[1][0]
    elif found is not None:
        # The numbers themselves are as they were.
        assert found[0] is not None and found[0].state.keys() <= {"agent", "around"}
        if "agent" in found[0].state:
            assert same_bits(found[0].state["agent"]["x"], state(2)["agent"]["x"])


def test_every_manifest_that_was_broken_off_is_found(original: Path, tmp_path: Path) -> None:
    data = (original / "checkpoints" / "000002" / "manifest.json").read_bytes()
    home = damaged_copy(original, str(tmp_path), "manifest.json", data)
    for length in range(len(data.rstrip())):
        (home / "checkpoints" / "000002" / "manifest.json").unlink()
        (home / "checkpoints" / "000002" / "manifest.json").write_bytes(data[:length])
        assert_back(home, 1, "000002/manifest.json is damaged")


def test_every_flipped_bit_of_a_manifest_is_found(original: Path, tmp_path: Path) -> None:
    data = (original / "checkpoints" / "000002" / "manifest.json").read_bytes()
    home = damaged_copy(original, str(tmp_path), "manifest.json", data)
    path = home / "checkpoints" / "000002" / "manifest.json"
    missed = []
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        path.unlink()
        path.write_bytes(changed)
        found = read_or_refuse(home)
        if found is not None and not is_state(found[0], 1) and not is_state(found[0], 2):
            missed.append(changed[max(0, place - 15) : place + 5].decode(errors="replace"))
    assert missed == []


@pytest.mark.parametrize("form", [2, 17, 10**30])
def test_a_newer_format_is_refused_with_the_way_out(form: int, home: Path) -> None:
    path = home / "checkpoints" / "000002"
    # Of a newer one nothing else is known, not even whether it has parts like these.
    for parts in ({}, {"agent.state": ANY}, {"other.state": {"bytes": 7, "sha256": "11"}}):
        manifest_with(format=form, samba_rl="9.8.7", parts=parts)(path)
        with pytest.raises(
            UserError, match=rf"newer samba_rl \(9\.8\.7, format {form}; .*up to 1\); install"
        ) as caught:
            read_checkpoint(home)
        assert str(path / "manifest.json") in str(caught.value)


def test_a_newer_format_is_known_whatever_else_its_manifest_says(home: Path) -> None:
    replaced("manifest.json", b'{"format": 2, "samba_rl": "9.8.7", "files": []}')(home / "checkpoints" / "000002")
    with pytest.raises(UserError, match=r"newer samba_rl \(9\.8\.7, format 2;"):
        read_checkpoint(home)


# Programs that are killed ---------------------------------------------------------------------------------------------


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
