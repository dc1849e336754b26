"""Checkpoints: written completely or not at all, verified when they are read, with another one to fall back on."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from samba_rl import __version__
from samba_rl.data.packing import pack
from samba_rl.errors import UserError
from samba_rl.runs.checkpoints import (
    latest,
    read_checkpoint,
    read_manifest,
    remove_damaged,
    signed,
    write_checkpoint,
)
from tests.runs.checkpoints import about, assert_back, is_state, names, state, write

Damage = Callable[[Path], object]


# Round trips ----------------------------------------------------------------------------------------------------------


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
    due = {"format": 2, "samba_rl": __version__, **about(2), "parts": parts}
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
    """Code that a pickle in the place of a state would run."""

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
        (replaced("manifest.json", b'{"format": 2}'), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b'{"parts": {}}'), "000002/manifest.json is damaged"),
        (replaced("manifest.json", b'{"format": 2, "parts": {}, "n": ' + b"9" * 9999 + b"}"), "manifest.json is damag"),
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


# Other formats --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [3, 17, 10**30])
def test_a_newer_format_is_refused_with_the_way_out(form: int, home: Path) -> None:
    path = home / "checkpoints" / "000002"
    # Of a newer one nothing else is known, not even whether it has parts like these.
    for parts in ({}, {"agent.state": ANY}, {"other.state": {"bytes": 7, "sha256": "11"}}):
        manifest_with(format=form, samba_rl="9.8.7", parts=parts)(path)
        with pytest.raises(
            UserError, match=rf"newer samba_rl \(9\.8\.7, format {form}; .*up to 2\); install"
        ) as caught:
            read_checkpoint(home)
        assert str(path / "manifest.json") in str(caught.value)


def test_a_newer_format_is_known_whatever_else_its_manifest_says(home: Path) -> None:
    replaced("manifest.json", b'{"format": 3, "samba_rl": "9.8.7", "files": []}')(home / "checkpoints" / "000002")
    with pytest.raises(UserError, match=r"newer samba_rl \(9\.8\.7, format 3;"):
        read_checkpoint(home)


@pytest.mark.parametrize("form", [0, 1])
def test_an_older_format_is_refused_with_the_way_out(form: int, home: Path) -> None:
    path = home / "checkpoints" / "000002"
    manifest_with(format=form, samba_rl="0.1.0")(path)
    with pytest.raises(
        UserError, match=r"was written by samba_rl 0\.1\.0, .*finish the run with that version"
    ) as caught:
        read_checkpoint(home)
    assert str(path / "manifest.json") in str(caught.value) and f"--data {home / 'real.csv'}" in str(caught.value)


def test_an_older_format_without_its_checksum_is_damage(home: Path) -> None:
    path = home / "checkpoints" / "000002" / "manifest.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))
    assert_back(home, 1, "000002/manifest.json is damaged")
