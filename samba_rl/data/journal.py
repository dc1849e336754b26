"""The journal of real trials: on the disk, checksummed and flushed, before anybody learns from them.

A line that says what the file is, then records, each behind a head of 48 bytes: "TRIAL", the length of the record, and
the SHA-256 of the head before it, the length and the record, so that records can be neither changed nor left out.
A record is written first, its head after it: if the program is killed in between, it has no head and counts as not
there. Then both are flushed; if the power fails before that has come to its end, the checksum tells.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from samba_rl.data.files import disk_error, flush, sync_folder, write_all
from samba_rl.data.packing import pack, unpack
from samba_rl.errors import UserError
from samba_rl.types import Fault, State, Traces, Transitions

FORMAT = 1
TITLE = f"samba_rl journal, format {FORMAT}\n".encode()
_TITLE = re.compile(rb"samba_rl journal, format (\d{1,9})\n")
_HEAD = struct.Struct("<8sQ32s")
_MARK = b"TRIAL\0\0\0"
EARLIER = -1
"""The number of the trial that transitions from before the run stand for."""


@dataclass(frozen=True)
class Record:
    """Real episodes that ran together, or transitions that were there before the run."""

    trial: int
    part: int
    """A trial on a system that runs one episode at a time has a part for each."""
    steps: Traces | Transitions
    faults: tuple[Fault, ...] = ()
    random: Tensor | None = None
    """The state of the random numbers afterwards."""

    def to_state(self) -> State:
        """As plain numbers and tensors."""
        return {
            "trial": self.trial,
            "part": self.part,
            "kind": "traces" if isinstance(self.steps, Traces) else "transitions",
            "steps": {name: value for name, value in vars(self.steps).items() if value is not None},
            "faults": [vars(fault) for fault in self.faults],
            "random": self.random,
        }

    @staticmethod
    def from_state(state: State) -> Record:
        """What `to_state` gave."""
        kind = Traces if state["kind"] == "traces" else Transitions
        faults = tuple(Fault(**fault) for fault in state["faults"])
        return Record(state["trial"], state["part"], kind(**state["steps"]), faults, state["random"])


@dataclass(frozen=True)
class _Place:
    number: int
    """Of the record in the file, from 0."""
    trial: int
    part: int
    start: int
    length: int
    digest: bytes
    """Of the record and, through its head, of all before it."""


@final
class Journal:
    """Appends records to a file, and finds them again."""

    def __init__(self, path: Path, places: list[_Place], end: int, file: int | None) -> None:
        """For `create`, `open` and `read`."""
        self.path = path
        self._places = {(place.trial, place.part): place for place in places}
        self._last = places[-1].digest if places else bytes(32)
        self._end = end
        self._file = file
        self.torn: Path | None = None
        """Where a last record that was damaged has been put aside."""

    @staticmethod
    def create(path: Path) -> Journal:
        """A new one."""
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            raise disk_error(path, error) from error
        try:
            write_all(file, TITLE, 0)
            flush(file)
        except OSError as error:
            os.close(file)
            path.unlink(missing_ok=True)
            raise disk_error(path, error) from error
        return Journal(path, [], len(TITLE), file)

    @staticmethod
    def open(path: Path, known: int = 0) -> Journal:
        """The one that is there, to go on with. The first `known` records were whole once, so they must be now.

        What a program that was killed has left half written behind them is cut off; if it had been whole before, it is
        kept as `torn`.
        """
        found = _scan(path, known)
        journal = Journal(path, found.places, found.end, None)
        try:
            if found.rest:
                journal.torn = _free_name(path)
                with open(journal.torn, "xb") as aside:
                    aside.write(found.rest)
                    aside.flush()
                    os.fsync(aside.fileno())
                sync_folder(path.parent)
            journal._file = os.open(path, os.O_RDWR)
            os.ftruncate(journal._file, found.end)
        except OSError as error:
            raise disk_error(path, error) from error
        return journal

    @staticmethod
    def read(path: Path, known: int = 0) -> Journal:
        """The one that is there, for reading alone."""
        found = _scan(path, known)
        return Journal(path, found.places, found.end, None)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def digest(self) -> str:
        """A checksum of all records."""
        return self._last.hex()

    def digest_of(self, count: int) -> str:
        """A checksum of the first `count` records."""
        return list(self._places.values())[count - 1].digest.hex() if count else bytes(32).hex()

    def find(self, trial: int, part: int) -> Record | None:
        """A record, if it is there."""
        place = self._places.get((trial, part))
        return None if place is None else self._load(place)

    def trials(self, before: int | None = None) -> Iterator[Traces | Transitions]:
        """What was measured, trial by trial, in those of a lower number than `before` (None: in all).

        Episodes that failed before their first step are left out.
        """
        parts: dict[int, list[_Place]] = {}
        for place in self._places.values():
            if before is None or place.trial < before:
                parts.setdefault(place.trial, []).append(place)
        for places in parts.values():
            steps = [self._load(place).steps for place in places]
            traces = [each for each in steps if isinstance(each, Traces)]
            yield Traces.joined(traces).begun() if traces else steps[0]

    def reserve(self, size: int) -> None:
        """Make sure that a record of so many bytes will find room, while nothing has been measured yet."""
        assert self._file is not None
        if not hasattr(os, "posix_fallocate"):
            return
        try:
            os.posix_fallocate(self._file, self._end, size)
        except OSError as error:
            # Not every disk can take room beforehand.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise disk_error(self.path, error) from error

    def append(self, record: Record) -> None:
        """Write a record; it is on the disk when this returns."""
        assert self._file is not None
        packed = pack(record.to_state())
        digest = _digest(self._last, packed)
        start = self._end + _HEAD.size
        try:
            write_all(self._file, packed, start)
            write_all(self._file, _HEAD.pack(_MARK, len(packed), digest), self._end)
            flush(self._file)
        except OSError as error:
            raise disk_error(self.path, error) from error
        place = _Place(len(self._places), record.trial, record.part, start, len(packed), digest)
        self._places[place.trial, place.part] = place
        self._last, self._end = digest, start + len(packed)

    def close(self) -> None:
        """Give back what was reserved."""
        if self._file is not None:
            file, self._file = self._file, None
            try:
                os.ftruncate(file, self._end)
            finally:
                os.close(file)

    def _load(self, place: _Place) -> Record:
        try:
            with open(self.path, "rb") as file:
                file.seek(place.start)
                packed = file.read(place.length)
        except OSError as error:
            raise disk_error(self.path, error, reading=True) from error
        return _decoded(self.path, place.number, packed)


class _Found(NamedTuple):
    places: list[_Place]
    end: int
    """Where the last record ends."""
    rest: bytes
    """What stands behind it, if it is a record that is no longer whole."""


def _scan(path: Path, known: int) -> _Found:
    """What records there are, each checked; the first `known` must be whole."""
    try:
        with open(path, "rb") as file:
            title = file.readline(64)
            _check_title(path, title)
            places: list[_Place] = []
            end, last = len(title), bytes(32)
            while True:
                file.seek(end)
                head = file.read(_HEAD.size)
                _, length, digest = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
                packed = file.read(min(length, os.fstat(file.fileno()).st_size))
                due = _HEAD.pack(_MARK, length, _digest(last, packed))
                if head != due or len(packed) != length:
                    file.seek(end)
                    rest = file.read()
                    break
                record = _decoded(path, len(places), packed)
                places.append(_Place(len(places), record.trial, record.part, end + _HEAD.size, length, digest))
                end, last = end + _HEAD.size + length, digest
    except OSError as error:
        raise disk_error(path, error, reading=True) from error
    if len(places) < known or _MARK in rest[8:]:
        # Another one follows, or this one was whole once: it was no write that broke off.
        raise _damage(path, f"record {len(places) + 1} was torn or altered")
    # The end, or a record that was being written when the program was killed: of its head, at most the beginning is
    # there, and zeros behind that. (If only its last bytes are zeros it was a whole one, which has been damaged.)
    begun = head.rstrip(b"\0")
    unfinished = len(begun) <= 40 and len(packed) == length and due.startswith(begun)
    return _Found(places, end, b"" if unfinished else rest)


def _check_title(path: Path, title: bytes) -> None:
    match = _TITLE.fullmatch(title)
    if match is None:
        raise _damage(path, "it does not begin like a journal")
    if int(match[1]) > FORMAT:
        raise UserError(
            f"{path} was written by a newer samba_rl (format {int(match[1])}; this one reads up to {FORMAT}); install "
            "that version or a later one"
        )


def _decoded(path: Path, number: int, packed: bytes) -> Record:
    try:
        return Record.from_state(unpack(packed))
    except (ValueError, KeyError, TypeError) as error:
        raise _damage(path, f"record {number + 1} is none: {error}") from error


def _free_name(path: Path) -> Path:
    """For what is put aside."""
    names = (path.with_name(f"{path.name}.torn{'' if number == 1 else number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _damage(path: Path, why: str) -> UserError:
    table = path.with_name("real.csv")
    return UserError(
        f"{path} is damaged ({why}); put it back from a copy, or begin a new run with what was measured: --data {table}"
    )


def _digest(last: bytes, packed: bytes) -> bytes:
    digest = hashlib.sha256(last)
    digest.update(len(packed).to_bytes(8, "little"))
    digest.update(packed)
    return digest.digest()


# Steps of an episode that is running ----------------------------------------------------------------------------------


@final
class StepLog:
    """The steps of the episode that runs on a real system, written down one by one.

    If the program is killed in the middle of it, they are still there. A line for the start, then one for each step.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def begin(self, about: State, x: Tensor) -> None:
        """An episode begins in the state x [nx]."""
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.ftruncate(self._file, 0)
        except OSError as error:
            raise disk_error(self._path, error) from error
        self._line({**about, "x": x.tolist()})

    def step(self, **numbers: Any) -> None:
        """A step has been measured."""
        self._line(numbers)

    def done(self) -> None:
        """The episode is in the journal."""
        if self._file is not None:
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Leave what is there."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _line(self, values: State) -> None:
        assert self._file is not None
        try:
            write_all(self._file, (json.dumps(values) + "\n").encode())
        except OSError as error:
            raise disk_error(self._path, error) from error

    def lines(self) -> list[State]:
        """What is there; a last line that was broken off is left out."""
        try:
            text = self._path.read_bytes() if self._path.exists() else b""
        except OSError as error:
            raise disk_error(self._path, error, reading=True) from error
        found = []
        for line in text.split(b"\n")[:-1]:
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found


def random_state(generator: torch.Generator) -> Tensor:
    """Where a generator is, as a copy."""
    return generator.get_state().clone()
