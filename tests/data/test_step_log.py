"""The steps of a running episode survive the program."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from samba_rl.data.files import DiskError
from samba_rl.data.step_log import StepLog
from tests.data.examples import files_of_at_most


def test_steps_can_be_read_as_soon_as_they_are_written(tmp_path: Path) -> None:
    log, reader = StepLog(tmp_path / "real.steps"), StepLog(tmp_path / "real.steps")
    assert log.lines() == [] and os.listdir(tmp_path) == []
    log.done()
    log.begin({"trial": 3, "part": 1, "random": "00ff"}, torch.tensor([0.1, -0.0], dtype=torch.float64))
    due: list[dict[str, Any]] = [{"trial": 3, "part": 1, "random": "00ff", "x": [0.1, -0.0]}]
    assert reader.lines() == due and str(reader.lines()[0]["x"][1]) == "-0.0"
    for number in range(4):
        log.step(u=[number / 3], x=[1e300, -5e-324], cost=0.5, violation=[True], terminated=False)
        due.append({"u": [number / 3], "x": [1e300, -5e-324], "cost": 0.5, "violation": [True], "terminated": False})
        assert reader.lines() == due == log.lines()
    log.close()
    log.close()
    assert reader.lines() == due


@given(st.lists(st.floats(), min_size=1, max_size=4), st.text(max_size=20))
@settings(max_examples=60, deadline=None)
def test_any_numbers_and_texts_round_trip(numbers: list[float], text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = StepLog(Path(folder) / "real.steps")
        log.begin({"text": text}, torch.tensor(numbers, dtype=torch.float64))
        log.step(x=numbers, text=text)
        log.close()
        begin, step = log.lines()
    assert begin["text"] == step["text"] == text
    bits = np.array(numbers).view(np.uint64)
    for found in (begin["x"], step["x"]):
        array = np.array(found)
        assert bool(((array.view(np.uint64) == bits) | (np.isnan(array) & np.isnan(numbers))).all())


def test_an_episode_replaces_the_previous_one_and_is_removed_when_done(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "real.steps")
    log.begin({"trial": 0}, torch.zeros(1))
    log.step(x=[1.0])
    log.begin({"trial": 1}, torch.zeros(2))
    assert log.lines() == [{"trial": 1, "x": [0.0, 0.0]}]
    log.step(x=[2.0])
    log.done()
    assert log.lines() == [] and (tmp_path / "real.steps").read_bytes() == b""
    log.begin({"trial": 2}, torch.zeros(0))
    log.close()
    # Another program finds the remaining lines until it begins an episode of its own.
    other = StepLog(tmp_path / "real.steps")
    assert other.lines() == [{"trial": 2, "x": []}]
    other.begin({"trial": 3}, torch.zeros(0))
    assert other.lines() == [{"trial": 3, "x": []}]
    other.close()


def test_an_incomplete_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "real.steps"
    log = StepLog(path)
    log.begin({"trial": 0, "text": "θ\n{}"}, torch.ones(1))
    for number in range(3):
        log.step(u=[float(number)], cost=12.5)
    log.close()
    data, due = path.read_bytes(), log.lines()
    assert len(due) == 4 == data.count(b"\n")
    for length in range(len(data) + 1):
        for rest in (b"", bytes(100)):
            path.write_bytes(data[:length] + rest)
            assert log.lines() == due[: data[:length].count(b"\n")]


@pytest.mark.parametrize("garbage", [b"\xff\xfe\n", b"{\n", b"\0\0\0\n", b"nothing\n", b"\n"])
def test_nothing_is_read_behind_a_damaged_line(garbage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "real.steps"
    path.write_bytes(b'{"trial": 0}\n' + garbage + b'{"u": [1.0]}\n')
    assert StepLog(path).lines() == [{"trial": 0}]


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "real.steps"
    log = StepLog(path)
    log.begin({"trial": 0}, torch.zeros(1))
    log.step(x=[1.0])

    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(DiskError, match=rf"^{re.escape(str(path))} cannot be written: No space.*; free some space$"):
        log.step(x=[2.0])
    with pytest.raises(DiskError, match="free some space"):
        log.begin({"trial": 1}, torch.zeros(1))
    monkeypatch.undo()
    log.begin({"trial": 2}, torch.zeros(1))
    log.step(x=[3.0])
    assert log.lines() == [{"trial": 2, "x": [0.0]}, {"x": [3.0]}]
    log.close()
    with pytest.raises(DiskError, match=r"nowhere/real\.steps cannot be written: No such file"):
        StepLog(tmp_path / "nowhere" / "real.steps").begin({}, torch.zeros(1))
    with pytest.raises(DiskError, match=r"cannot be read: Is a directory"):
        StepLog(tmp_path).lines()


def test_steps_survive_a_write_that_fails_halfway(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "real.steps")
    log.begin({"trial": 0}, torch.zeros(1))
    log.step(x=[1.0])
    due = log.lines()
    with (
        files_of_at_most((tmp_path / "real.steps").stat().st_size + 5),
        pytest.raises(DiskError, match=r"real\.steps cannot be written: .*ulimit -f"),
    ):
        log.step(x=[2.0])
    assert log.lines() == due
    log.close()
