"""The journal keeps measurements to the bit, whatever happens to the program or to the file."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.data.files import DiskError
from samba_rl.data.journal import EARLIER, Journal, Record, random_state
from samba_rl.data.packing import pack
from samba_rl.errors import UserError
from samba_rl.types import Fault, Traces, Transitions
from tests.data.examples import files_of_at_most, steps

TITLE = b"samba_rl journal, format 1\n"
HEAD = 48
NASTY = (0x7FF8000000000000, 0xFFF0000000000001, 0x8000000000000000, 1, 0x7FF0000000000000, 0x3FD5555555555555)
"""Bits of special values: two kinds of NaN, -0, the smallest number, infinity and 1/3."""


def bits(*shape: int) -> Tensor:
    """Return a tensor of special values."""
    flat = np.resize(np.array(NASTY, np.uint64), int(np.prod(shape))).view(np.float64)
    return torch.from_numpy(flat.reshape(shape).copy())


def traces(n: int = 1, horizon: int = 2, seed: int = 0, nx: int = 1) -> Traces:
    """Make episodes of random numbers and special values."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return Traces(
        x=numbers(n, horizon + 1, nx),
        observation=bits(n, horizon, 2),
        u=numbers(n, horizon, 1),
        cost=numbers(n, horizon),
        safety=numbers(n, horizon, 1),
        violation=numbers(n, horizon, 1) > 0,
        active=torch.arange(horizon) < torch.randint(1, horizon + 1, (n, 1), generator=generator),
        terminated=numbers(n) > 0,
        wanted=bits(n, horizon, 1),
    )


def small(trial: int, part: int = 0, seed: int | None = None) -> Record:
    """Make a record of little more than half a kilobyte."""
    return Record(trial, part, traces(seed=100 * trial + part if seed is None else seed))


RANDOM = random_state(torch.Generator().manual_seed(4))
RECORDS = (
    Record(EARLIER, 0, steps({3: 2, 7: 4}, ends=(7,))),
    Record(0, 0, traces(3, 4, seed=1), (Fault(2, 1, "motor: θ̇ = NaN\n\"'\0", stopped=False),), RANDOM),
    Record(0, 1, dataclasses.replace(traces(2, 4, seed=2), zeta=bits(2, 4)), (), None),
    Record(1, 0, traces(1, 4, seed=3), (Fault(0, 0, "", stopped=True), Fault(0, 3, "🙂")), RANDOM[:0]),
)


def same_steps(a: Traces | Transitions, b: Traces | Transitions) -> bool:
    def alike(p: Tensor | None, q: Tensor | None) -> bool:
        if p is None or q is None:
            return p is q
        return p.dtype == q.dtype and p.shape == q.shape and p.numpy().tobytes() == q.numpy().tobytes()

    return type(a) is type(b) and all(
        alike(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)
    )


def same(a: Record | None, b: Record | None) -> bool:
    """Compare two records to the bit."""
    if a is None or b is None:
        return a is b
    random = (a.random is None and b.random is None) or (
        a.random is not None and b.random is not None and torch.equal(a.random, b.random)
    )
    return (a.trial, a.part, a.faults) == (b.trial, b.part, b.faults) and random and same_steps(a.steps, b.steps)


def holds(journal: Journal, records: Sequence[Record]) -> bool:
    """Return whether the journal has these records and no others."""
    return len(journal) == len(records) and all(same(journal.find(one.trial, one.part), one) for one in records)


def written(path: Path, records: Sequence[Record]) -> bytes:
    """Write a journal of these records; return its bytes."""
    journal = Journal.create(path)
    for record in records:
        journal.append(record)
    journal.close()
    return path.read_bytes()


def frames(data: bytes) -> list[bytes]:
    """Return the records of a file, each with its head."""
    found, place = [], len(TITLE)
    while place < len(data):
        _, length, _ = struct.unpack_from("<8sQ32s", data, place)
        found.append(data[place : place + HEAD + length])
        place += HEAD + length
    return found


def framed(packed: bytes, last: bytes = bytes(32)) -> bytes:
    """Put a head before a record, as `journal_format` documents it."""
    length = struct.pack("<Q", len(packed))
    return b"TRIAL\0\0\0" + length + hashlib.sha256(last + length + packed).digest() + packed


def bytes_of(records: Sequence[Record]) -> bytes:
    """Make the bytes of a journal of these records by hand."""
    data, last = TITLE, bytes(32)
    for record in records:
        frame = framed(pack(record.to_state()), last)
        data, last = data + frame, frame[16:HEAD]
    return data


def put(path: Path, data: bytes) -> None:
    """Write a file anew, which is much faster than overwriting it."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


@contextmanager
def on_disk(data: bytes) -> Iterator[Path]:
    """Write a temporary journal of these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "real.journal"
        path.write_bytes(data)
        yield path


def damaged(path: Path) -> str:
    """Return the pattern of the error for a damaged journal."""
    return rf"^{re.escape(str(path))} is damaged \(.+\); restore it.*--data {re.escape(str(path.parent))}/real\.csv$"


# Round trips ----------------------------------------------------------------------------------------------------------


def test_records_of_all_kinds_round_trip_to_the_bit(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "real.journal")
    for count, record in enumerate(RECORDS, 1):
        journal.append(record)
        # Records can be read while the journal is open, also by other programs.
        assert holds(journal, RECORDS[:count]) and holds(Journal.read(journal.path), RECORDS[:count])
    journal.close()
    assert holds(Journal.read(journal.path), RECORDS) and holds(Journal.open(journal.path, known=4), RECORDS)
    assert journal.find(0, 2) is None and journal.find(2, 0) is None


def test_the_file_has_the_documented_format(tmp_path: Path) -> None:
    """Other programs may read it, and later versions must."""
    assert written(tmp_path / "real.journal", RECORDS) == bytes_of(RECORDS)


@given(st.lists(st.tuples(st.sampled_from(range(4)), st.booleans()), max_size=5))
@settings(max_examples=30, deadline=None)
def test_closing_or_killing_between_records_changes_nothing(order: list[tuple[int, bool]]) -> None:
    records = [dataclasses.replace(RECORDS[which], trial=trial) for trial, (which, _) in enumerate(order)]
    with tempfile.TemporaryDirectory() as folder:
        whole, journal = written(Path(folder) / "whole", records), Journal.create(Path(folder) / "real.journal")
        for number, (record, (_, closed)) in enumerate(zip(records, order, strict=True)):
            journal.reserve(10_000)
            journal.append(record)
            if closed:
                journal.close()
            # Otherwise the reserved space is still there, as after the program was killed.
            journal = Journal.open(journal.path, known=number + 1)
            assert holds(journal, records[: number + 1]) and journal.torn is None
        journal.close()
        assert journal.path.read_bytes() == whole


def test_creating_a_journal_does_not_overwrite_a_file(tmp_path: Path) -> None:
    data = written(tmp_path / "real.journal", RECORDS)
    with pytest.raises(DiskError, match=r"real\.journal cannot be written: File exists"):
        Journal.create(tmp_path / "real.journal")
    assert (tmp_path / "real.journal").read_bytes() == data


def test_trials_come_in_order_with_their_parts_joined(tmp_path: Path) -> None:
    written(tmp_path / "real.journal", RECORDS)
    for journal in (Journal.read(tmp_path / "real.journal"), Journal.open(tmp_path / "real.journal")):
        earlier, first, second = journal.trials()
        parts = [record.steps for record in RECORDS if isinstance(record.steps, Traces)]
        assert same_steps(earlier, RECORDS[0].steps)
        # Only one of the parts has ζ.
        assert same_steps(first, Traces.joined(parts[:2])) and isinstance(first, Traces) and len(first.x) == 5
        assert torch.equal(first.x[3:], parts[1].x) and first.zeta is None
        assert same_steps(second, parts[2])
        for before, count in ((EARLIER, 0), (0, 1), (1, 2), (2, 3), (None, 3)):
            assert len(list(journal.trials(before))) == count


def test_parts_keep_the_order_in_which_they_were_measured(tmp_path: Path) -> None:
    records = [small(trial, part) for trial in range(12) for part in range(3)]
    written(tmp_path / "real.journal", records)
    for trial, found in enumerate(Journal.read(tmp_path / "real.journal").trials()):
        parts = [one.steps for one in records[3 * trial : 3 * trial + 3] if isinstance(one.steps, Traces)]
        assert same_steps(found, Traces.joined(parts))


def test_episodes_that_failed_before_their_first_step_are_kept_but_not_learned_from(tmp_path: Path) -> None:
    some = dataclasses.replace(traces(3, 2), active=torch.tensor([[True, True], [False, False], [True, False]]))
    none = dataclasses.replace(traces(2, 2), active=torch.zeros(2, 2, dtype=torch.bool))
    records = [Record(0, 0, none), Record(0, 1, some), Record(1, 0, none)]
    written(tmp_path / "real.journal", records)
    journal = Journal.read(tmp_path / "real.journal")
    first, second = journal.trials()
    assert holds(journal, records) and isinstance(first, Traces) and isinstance(second, Traces)
    assert torch.equal(first.x, some.x[[0, 2]]) and torch.equal(first.active, some.active[[0, 2]])
    assert len(second.x) == 0 and second.steps == 0


def test_checksums_depend_on_the_records_and_their_order(tmp_path: Path) -> None:
    one, two = small(0), small(1)
    written(tmp_path / "a", [one, two])
    written(tmp_path / "b", [two, one])
    journal, other = Journal.read(tmp_path / "a"), Journal.read(tmp_path / "b")
    digests = [journal.digest_of(count) for count in range(3)]
    assert digests[0] == "00" * 32 and len(set(digests)) == 3 and digests[2] == journal.digest != other.digest
    growing = Journal.create(tmp_path / "c")
    assert growing.digest == digests[0]
    for count, record in enumerate([one, two], 1):
        growing.append(record)
        assert growing.digest == growing.digest_of(count) == digests[count]
        assert Journal.open(growing.path).digest == digests[count]


def test_reading_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "real.journal"
    data = written(path, RECORDS)
    for slack in (b"", bytes(1000), b"\1" * 1000, b"TRIAL\0\0\0\5"):
        path.write_bytes(data + slack)
        journal = Journal.read(path)
        assert holds(journal, RECORDS) and journal.torn is None
        journal.close()
        assert path.read_bytes() == data + slack and os.listdir(tmp_path) == ["real.journal"]


# Killed while writing -------------------------------------------------------------------------------------------------


KEPT = [small(0), small(1)]
DUE, FRAME = bytes_of(KEPT), bytes_of([*KEPT, small(2)])[len(bytes_of(KEPT)) :]
"""The bytes of a journal of both, and those of a third record with its head."""


def opened_and_cut(path: Path, data: bytes, *, more: bool = False) -> Path | None:
    """Open a journal with other bytes behind its two whole records, and check that it can be continued.

    Return the file to which those bytes were moved, if they were.
    """
    put(path, data)
    assert len(Journal.read(path, known=2)) == 2 and path.read_bytes() == data
    journal = Journal.open(path, known=2)
    assert len(journal) == 2 and path.read_bytes() == DUE and journal.digest == journal.digest_of(2)
    if more:
        assert holds(journal, KEPT)
        journal.append(small(9))
        assert holds(journal, [*KEPT, small(9)]) and path.read_bytes() == bytes_of([*KEPT, small(9)])
    journal.close()
    if journal.torn is not None:
        assert journal.torn.read_bytes() == data[len(DUE) :]
        journal.torn.unlink()
    return journal.torn


@pytest.mark.parametrize("slack", [0, 5000], ids=lambda slack: f"{slack} zeros behind")
def test_a_record_that_was_partly_written_from_its_start_is_cut_off(slack: int, tmp_path: Path) -> None:
    """As after an interrupted copy, or on a disk that loses the latest writes."""
    for length in range(len(FRAME)):
        torn = opened_and_cut(tmp_path / "real.journal", DUE + FRAME[:length] + bytes(slack), more=length % 100 == 0)
        # A program that has read the head may have learned from the record.
        assert torn is not None or length < HEAD


@pytest.mark.parametrize("slack", [0, 1, 5000], ids=lambda slack: f"{slack} zeros behind")
def test_a_record_without_a_head_is_silently_cut_off(slack: int, tmp_path: Path) -> None:
    """As when the program is killed while it writes a record, before its head."""
    body = FRAME[HEAD:]
    for length in range(len(body) + 1):
        data = DUE + bytes(HEAD) + body[:length] + bytes(slack)
        assert opened_and_cut(tmp_path / "real.journal", data, more=length % 100 == 0) is None


@pytest.mark.parametrize("slack", [0, 1, 5000], ids=lambda slack: f"{slack} zeros behind")
def test_a_record_whose_head_is_half_written_is_cut_off(slack: int, tmp_path: Path) -> None:
    assert FRAME[HEAD - 1] != 0
    for length in range(HEAD):
        data = DUE + FRAME[:length] + bytes(HEAD - length) + FRAME[HEAD:] + bytes(slack)
        torn = opened_and_cut(tmp_path / "real.journal", data, more=length % 8 == 0)
        # A record without a checksum is dropped silently.
        assert torn is None or length > 16


def test_a_head_whose_last_bytes_were_written_first_harms_no_other_record(tmp_path: Path) -> None:
    """A head may span two sectors of a disk, which may be written in any order."""
    for length in range(1, HEAD):
        data = DUE + bytes(length) + FRAME[length:]
        opened_and_cut(tmp_path / "real.journal", data, more=length % 8 == 0)


def test_being_killed_at_any_moment_of_a_write_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Take the file before, after and in the middle of every call that changes it."""
    kept, new = [small(0), small(1)], small(2)
    written(tmp_path / "real.journal", kept)
    journal = Journal.open(tmp_path / "real.journal")
    moments: list[bytes] = []
    pwrite = os.pwrite

    def half(file: int, data: Any, place: int) -> int:
        moments.append(journal.path.read_bytes())
        written = pwrite(file, data[: len(data) // 2 + 1], place)
        moments.append(journal.path.read_bytes())
        return written

    monkeypatch.setattr(os, "pwrite", half)
    journal.reserve(10_000)
    journal.append(new)
    monkeypatch.undo()
    moments.append(journal.path.read_bytes())
    assert len(moments) > 20
    counts = []
    for data in moments:
        with on_disk(data) as path:
            found = Journal.open(path, known=2)
            counts.append(len(found))
            assert holds(found, [*kept, new][: len(found)])
            # The record may be reported only if its head has at least a part of its checksum.
            assert found.torn is None or data[len(DUE) + 16 : len(DUE) + HEAD].strip(b"\0")
    assert counts == sorted(counts) and set(counts) == {2, 3} and counts[-1] == 3


def test_a_record_is_written_before_its_head_and_both_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.create(tmp_path / "real.journal")
    calls: list[tuple[str, int, bytes]] = []
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def write(file: int, data: Any, place: int) -> int:
        calls.append(("write", place, bytes(data)))
        return pwrite(file, data, place)

    def flush(file: int) -> None:
        assert os.fstat(file).st_ino == journal.path.stat().st_ino
        calls.append(("flush", 0, b""))
        fdatasync(file)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fdatasync", flush)
    end = len(TITLE)
    for record in RECORDS:
        calls.clear()
        journal.append(record)
        (first, body_at, body), (second, head_at, head), (last, _, _) = calls
        assert [first, second, last] == ["write", "write", "flush"]
        assert body == pack(record.to_state()) and len(head) == HEAD and head.startswith(b"TRIAL\0\0\0")
        assert (head_at, body_at) == (end, end + HEAD)
        end += HEAD + len(body)


def test_a_new_journal_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda file: flushed.append(os.fstat(file).st_size))
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file).st_size))
    Journal.create(tmp_path / "real.journal").close()
    assert len(TITLE) in flushed


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    due = written(tmp_path / "due", RECORDS[:2])
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: pwrite(file, data[:11], place))
    assert written(tmp_path / "real.journal", RECORDS[:2]) == due


# Damage ---------------------------------------------------------------------------------------------------------------

THREE = [small(0), small(1), small(2)]


WHOLE = bytes_of(THREE)


def flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


def assert_found(data: bytes, broken: int, records: list[Record]) -> None:
    """Check that damage in record number `broken` (from 0) is found for any number of known records."""
    with on_disk(data) as path:
        for known in range(broken + 1, len(records) + 1):
            for opened in (Journal.open, Journal.read):
                with pytest.raises(UserError, match=damaged(path)) as caught:
                    opened(path, known)
                assert f"record {broken + 1} " in str(caught.value)
        if broken < len(records) - 1:
            with pytest.raises(UserError, match=damaged(path)):
                Journal.open(path, broken)
            with pytest.raises(UserError, match=damaged(path)):
                Journal.read(path)
            assert path.read_bytes() == data and os.listdir(path.parent) == [path.name]
            return
        start = len(bytes_of(records[:broken]))
        assert holds(Journal.read(path, broken), records[:broken])
        journal = Journal.open(path, broken)
        assert holds(journal, records[:broken]) and path.read_bytes() == data[:start]
        assert journal.torn == path.with_name("real.journal.torn") and journal.torn.read_bytes() == data[start:]
        journal.append(records[broken])
        assert holds(journal, records)
        journal.close()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_flipped_bit_in_any_record_is_found(data: st.DataObject) -> None:
    broken = data.draw(st.integers(0, 2))
    frame = frames(WHOLE)[broken]
    # Half of the places are in the head.
    place = data.draw(st.integers(0, HEAD - 1) | st.integers(0, len(frame) - 1))
    start = len(TITLE) + sum(map(len, frames(WHOLE)[:broken]))
    assert_found(flipped(WHOLE, start + place, data.draw(st.integers(0, 7))), broken, THREE)


def test_a_flipped_bit_in_the_length_of_the_last_record_is_found() -> None:
    place = len(WHOLE) - len(frames(WHOLE)[2]) + 8
    for bit in range(64):
        assert_found(flipped(WHOLE, place + bit // 8, bit % 8), 2, THREE)


def test_every_flipped_bit_of_a_head_is_found() -> None:
    first, second, _ = frames(WHOLE)
    for start, known in ((len(TITLE), 0), (len(TITLE + first + second), 3)):
        for place in range(HEAD):
            for bit in range(8):
                with on_disk(flipped(WHOLE, start + place, bit)) as path, pytest.raises(UserError, match=damaged(path)):
                    Journal.read(path, known)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_lost_added_and_overwritten_bytes_are_found(data: st.DataObject) -> None:
    first, second, _ = frames(WHOLE)
    place = len(TITLE) + data.draw(st.integers(0, len(first + second) - 1))
    count = data.draw(st.integers(1, 600))
    new = data.draw(st.sampled_from([b"", b"\xff" * count, b"x" * count, WHOLE[place : place + count] * 2]))
    changed = WHOLE[:place] + new + WHOLE[place + count :]
    if changed[: len(TITLE + first + second)] == WHOLE[: len(TITLE + first + second)]:
        return
    with on_disk(changed) as path:
        with pytest.raises(UserError, match=damaged(path)):
            Journal.read(path, 2)
        with pytest.raises(UserError, match=damaged(path)):
            Journal.open(path, 2)
        assert path.read_bytes() == changed


def test_reordered_records_are_found() -> None:
    first, second, third = frames(WHOLE)
    for order, broken in (
        ([second, first, third], 0),
        ([first, third, second], 1),
        ([third, second, first], 0),
        ([first, first, second, third], 1),
        ([second, third], 0),
    ):
        data = TITLE + b"".join(order)
        with on_disk(data) as path:
            for known in (0, 1, 2, 3):
                with pytest.raises(UserError, match=rf"record {broken + 1} was torn or altered"):
                    Journal.open(path, known)
            assert path.read_bytes() == data
    # The second record is missing, or the last one is there twice.
    for data, count in ((TITLE + first + third, 1), (WHOLE + third, 3)):
        with on_disk(data) as path:
            journal = Journal.open(path)
            assert holds(journal, THREE[:count]) and journal.torn is not None and journal.torn.read_bytes() == third
            journal.close()


def test_known_records_that_are_missing_at_the_end_are_noticed() -> None:
    first, second, _ = frames(WHOLE)
    for count, data in enumerate((TITLE, TITLE + first, TITLE + first + second)):
        with on_disk(data) as path:
            for known in range(count + 1, 4):
                with pytest.raises(UserError, match=damaged(path)):
                    Journal.open(path, known)
            Journal.open(path, count).close()


@pytest.mark.parametrize("broken", [0, 1])
def test_a_head_of_zeros_with_records_behind_it_is_found(broken: int) -> None:
    start = len(TITLE) + sum(map(len, frames(WHOLE)[:broken]))
    assert_found(WHOLE[:start] + bytes(HEAD) + WHOLE[start + HEAD :], broken, THREE)


@pytest.mark.parametrize("written_of_head", [1, 12, 16, 20, 47])
def test_a_head_that_ends_in_zeros_with_records_behind_it_is_found(written_of_head: int) -> None:
    start = len(TITLE)
    head = WHOLE[start : start + written_of_head] + bytes(HEAD - written_of_head)
    assert_found(WHOLE[:start] + head + WHOLE[start + HEAD :], 0, THREE)


def ending_in_one_bit(kept: list[Record]) -> Record:
    """Find a next record whose head has one bit set in its last byte, as one in 32 does."""
    for seed in range(10_000):
        record = small(len(kept), seed=seed)
        if frames(bytes_of([*kept, record]))[-1][HEAD - 1].bit_count() == 1:
            return record
    raise AssertionError


@pytest.mark.parametrize("behind", [0, 1])
def test_a_flipped_bit_that_makes_a_head_end_in_zero_is_found(behind: int) -> None:
    kept = [small(0)]
    records = [*kept, ending_in_one_bit(kept), small(2)][: 2 + behind]
    data = bytes_of(records)
    place = len(TITLE) + len(frames(data)[0]) + HEAD - 1
    assert_found(flipped(data, place, data[place].bit_length() - 1), 1, records)


def test_a_damaged_record_is_saved_before_it_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "real.journal"
    data = flipped(WHOLE, len(WHOLE) - 5, 0)
    path.write_bytes(data)
    ftruncate = os.ftruncate

    def cut(file: int, size: int) -> None:
        assert data.endswith((tmp_path / "real.journal.torn").read_bytes()) and path.read_bytes() == data
        ftruncate(file, size)

    monkeypatch.setattr(os, "ftruncate", cut)
    Journal.open(path)
    assert path.read_bytes() == data[: len(WHOLE) - len(frames(WHOLE)[-1])]


def test_a_damaged_record_that_cannot_be_saved_is_not_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "real.journal"
    data = flipped(WHOLE, len(WHOLE) - 5, 0)
    path.write_bytes(data)
    with files_of_at_most(100), pytest.raises(DiskError, match=r"/real\.journal.* cannot be written: File too large"):
        Journal.open(path)
    assert path.read_bytes() == data


def test_saving_a_second_damaged_record_keeps_the_first(tmp_path: Path) -> None:
    path = tmp_path / "real.journal"
    one = flipped(WHOLE, len(WHOLE) - 5, 0)
    path.write_bytes(one)
    Journal.open(path).close()
    path.write_bytes(path.read_bytes()[:-5])
    Journal.open(path).close()
    everything = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert frames(one)[2] in everything and frames(WHOLE)[1][:-5] in everything


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        TITLE[:-1],
        TITLE[:10],
        b"samba_rl journal, format \n",
        b"samba_rl journal, format -1\n",
        b"samba_rl journal, format 1 \n",
        b"samba_rl journal, format 1\r\n",
        b"samba_rl journal, format 1234567890\n",
        b"x" + TITLE,
        bytes(1000),
        b"x:theta,cost\n1,2\n",
        b"\x80\x04\x95" + b"x" * 100_000,
        "samba_rl journal, format ١\n".encode(),
    ],
)
def test_other_files_are_left_unchanged(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "real.journal"
    path.write_bytes(data)
    for opened in (Journal.open, Journal.read):
        with pytest.raises(UserError, match=damaged(path)) as caught:
            opened(path)
        assert "it does not begin like a journal" in str(caught.value)
    assert path.read_bytes() == data and os.listdir(tmp_path) == ["real.journal"]


def test_a_newer_format_is_rejected_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "real.journal"
    for number in (2, 17, 999_999_999):
        data = WHOLE.replace(b"format 1", f"format {number}".encode()) + b"other things"
        path.write_bytes(data)
        for opened in (Journal.open, Journal.read):
            with pytest.raises(UserError, match=rf"newer samba_rl \(format {number}; .*up to 1\); install that") as err:
                opened(path)
            assert str(path) in str(err.value)
        assert path.read_bytes() == data


def test_a_missing_journal_is_an_error_that_names_it(tmp_path: Path) -> None:
    for opened in (Journal.open, Journal.read):
        with pytest.raises(DiskError, match=rf"^{re.escape(str(tmp_path))}/real\.journal cannot be read: No such file"):
            opened(tmp_path / "real.journal")
        with pytest.raises(DiskError, match=r"cannot be read: Is a directory"):
            opened(tmp_path)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"nothing",
        pack({}),
        pack({"trial": 0, "part": 0, "kind": "traces", "steps": {}, "faults": [], "random": None}),
        pack({**small(0).to_state(), "steps": {"code": 1}}),
        pack({**small(0).to_state(), "steps": [1]}),
        pack({**small(0).to_state(), "steps": None}),
        pack({**small(0).to_state(), "faults": 3}),
        pack({**small(0).to_state(), "faults": [3]}),
        pack({**small(0).to_state(), "faults": [{"episode": 0}]}),
    ],
)
def test_a_whole_record_with_invalid_content_is_reported(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "real.journal"
    path.write_bytes(TITLE + framed(packed))
    for opened in (Journal.open, Journal.read):
        with pytest.raises(UserError, match=damaged(path)) as caught:
            opened(path)
        assert "record 1 is damaged: " in str(caught.value)


def test_an_absurd_length_allocates_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "real.journal"
    for length in (2**40, 2**63, 2**64 - 1):
        path.write_bytes(WHOLE + b"TRIAL\0\0\0" + struct.pack("<Q", length) + b"\1" * 32 + b"bytes")
        journal = Journal.open(path, 3)
        assert holds(journal, THREE) and journal.torn is not None
        journal.close()


def test_damage_while_the_journal_is_open_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "real.journal"
    written(path, THREE)
    journal = Journal.open(path)
    os.truncate(path, path.stat().st_size - 300)
    with pytest.raises(UserError, match=damaged(path)) as caught:
        journal.find(2, 0)
    assert "record 3 " in str(caught.value) and same(journal.find(1, 0), THREE[1])
    path.unlink()
    with pytest.raises(DiskError, match=r"real\.journal cannot be read: No such file"):
        journal.find(0, 0)
    journal.close()


# Full disks -----------------------------------------------------------------------------------------------------------


def full_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int, code: int = errno.ENOSPC) -> None:
    """Let the `call`-th call of a function of os fail; a write does half, as on a disk that fills up."""
    function: Callable[..., Any] = getattr(os, name)
    calls = [0]

    def fail(file: int, *args: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            if name == "pwrite":
                data, place = args
                return function(file, data[: len(data) // 2], place)
            raise OSError(code, os.strerror(code))
        if calls[0] > call:
            raise OSError(code, os.strerror(code))
        return function(file, *args)

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("reserved", [True, False])
@pytest.mark.parametrize(("name", "call"), [("pwrite", 1), ("pwrite", 2), ("fdatasync", 1)])
@pytest.mark.parametrize(
    ("code", "way_out"),
    [(errno.ENOSPC, "free some space"), (errno.EDQUOT, "free some space"), (errno.EIO, "fix its permissions")],
)
def test_a_full_disk_is_reported_and_harms_no_earlier_record(
    name: str,
    call: int,
    code: int,
    way_out: str,
    reserved: bool,
    closed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, new = THREE[:2], THREE[2]
    before = written(tmp_path / "real.journal", kept)
    journal = Journal.open(tmp_path / "real.journal")
    if reserved:
        journal.reserve(5_000)
    full_at(monkeypatch, name, call, code)
    with pytest.raises(DiskError) as caught:
        journal.append(new)
    monkeypatch.undo()
    message = str(caught.value)
    assert message.startswith(f"{journal.path} cannot be written: {os.strerror(code)}") and way_out in message
    # The failed record is absent for this program, and the others are there.
    assert holds(journal, kept)
    # As if the program were killed now:
    copy = Path(shutil.copy(journal.path, tmp_path / "copy"))
    found = Journal.open(copy, known=2)
    # If only the flush failed, the whole record is there.
    assert holds(found, THREE if name == "fdatasync" else kept)
    # Half a head may look like a whole one that was damaged.
    assert found.torn is None or (name, call) == ("pwrite", 2)
    if closed:
        journal.close()
        assert journal.path.read_bytes() == before
        journal = Journal.open(journal.path, known=2)
    # With space again, it continues.
    journal.append(new)
    journal.close()
    assert holds(Journal.open(journal.path, known=3), THREE)
    assert journal.path.read_bytes() == written(tmp_path / "due", THREE)


def test_a_short_record_after_a_longer_one_that_failed_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "real.journal", THREE[:2])
    journal = Journal.open(tmp_path / "real.journal")
    full_at(monkeypatch, "fdatasync", 1)
    with pytest.raises(DiskError, match="free some space"):
        journal.append(Record(7, 0, traces(9, 9)))
    monkeypatch.undo()
    journal.append(THREE[2])
    # As if the program were killed now, with the end of the longer record still behind it.
    assert holds(Journal.open(Path(shutil.copy(journal.path, tmp_path / "copy")), known=3), THREE)
    journal.close()
    assert journal.path.read_bytes() == written(tmp_path / "due", THREE)


def test_a_file_size_limit_is_reported_and_harms_no_earlier_record(tmp_path: Path) -> None:
    before = written(tmp_path / "real.journal", THREE[:2])
    frame = len(frames(written(tmp_path / "due", THREE))[2])
    for room in (0, 1, HEAD, HEAD + 1, frame - 1):
        journal = Journal.open(tmp_path / "real.journal", known=2)
        with files_of_at_most(len(before) + room), pytest.raises(DiskError) as caught:
            journal.append(THREE[2])
        assert str(journal.path) in str(caught.value) and "ulimit -f" in str(caught.value)
        assert holds(Journal.read(journal.path, known=2), THREE[:2])
        with files_of_at_most(len(before) + room), pytest.raises(DiskError, match=r"real\.journal .*ulimit -f"):
            journal.reserve(frame)
        journal.close()
        assert journal.path.read_bytes() == before
    journal = Journal.open(tmp_path / "real.journal", known=2)
    with files_of_at_most(len(before) + frame):
        journal.append(THREE[2])
    assert holds(Journal.read(journal.path, known=3), THREE)


@pytest.mark.parametrize("size", [1, 100, 20_000])
def test_reserved_space_is_released(size: int, tmp_path: Path) -> None:
    due = written(tmp_path / "due", RECORDS)
    journal = Journal.create(tmp_path / "real.journal")
    for record in RECORDS:
        journal.reserve(size)
        assert journal.path.stat().st_size >= len(TITLE) + size
        journal.append(record)
    journal.reserve(size)
    assert holds(Journal.read(journal.path), RECORDS)
    journal.close()
    assert journal.path.read_bytes() == due
    # Closing twice is harmless.
    journal.close()


@pytest.mark.parametrize(("code", "way_out"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "fix its permissions")])
def test_missing_disk_space_is_reported_before_anything_is_measured(
    code: int, way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written(tmp_path / "real.journal", THREE)
    journal = Journal.open(tmp_path / "real.journal")
    full_at(monkeypatch, "posix_fallocate", 1, code)
    with pytest.raises(DiskError, match=way_out) as caught:
        journal.reserve(1000)
    assert str(caught.value).startswith(f"{journal.path} cannot be written: {os.strerror(code)}")
    journal.close()
    assert journal.path.read_bytes() == before


def test_systems_that_cannot_reserve_space_reserve_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(tmp_path / "real.journal")
    monkeypatch.delattr(os, "posix_fallocate")
    journal.reserve(1000)
    assert journal.path.read_bytes() == TITLE
    journal.close()


@pytest.mark.parametrize("call", [0, 1])
def test_a_journal_that_cannot_be_created_leaves_no_file(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_at(monkeypatch, "pwrite", call)
    with pytest.raises(DiskError, match=r"real\.journal cannot be written: No space left on device; free some space"):
        Journal.create(tmp_path / "real.journal")
    monkeypatch.undo()
    Journal.create(tmp_path / "real.journal").close()


def test_a_folder_that_cannot_be_written_to_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiskError, match=r"nowhere/real\.journal cannot be written: No such file"):
        Journal.create(tmp_path / "nowhere" / "real.journal")
    data = written(tmp_path / "real.journal", THREE)

    open_file = os.open

    def fail(path: Path, flags: int, *more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return open_file(path, flags, *more)

    monkeypatch.setattr(os, "open", fail)
    for opened in (Journal.create, Journal.open):
        with pytest.raises(DiskError, match=r"real\.journal cannot be written: Read-only file system; give a folder"):
            opened(tmp_path / "real.journal")
    # Reading still works.
    assert holds(Journal.read(tmp_path / "real.journal"), THREE) and (tmp_path / "real.journal").read_bytes() == data


def test_the_state_of_a_generator_is_a_copy() -> None:
    generator = torch.Generator().manual_seed(0)
    state = random_state(generator)
    due = torch.randn(5, generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.randn(5, generator=generator), due)
    state.zero_()
    other = torch.Generator().manual_seed(0)
    torch.randn(5, generator=other)
    assert torch.equal(random_state(generator), random_state(other))
