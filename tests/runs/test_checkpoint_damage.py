"""Every change of a checkpoint's files is found, and costs no more than that checkpoint."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from samba_rl.errors import UserError
from samba_rl.runs.checkpoints import (
    Checkpoint,
    read_checkpoint,
)
from tests.runs.checkpoints import assert_back, is_state, state, write
from tests.runs.systems import same_bits


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
