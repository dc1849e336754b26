"""The journal of real trials: each is on disk, checksummed and flushed, before anything learns from it.

A record is written first, its head after it. If the program is killed in between, the record has no head and counts as
absent. Then both are flushed; if the power fails before the flush has finished, the checksum reveals it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from samba_rl.data.files import RECORD_LIMIT, disk_error, flush, open_own, reading_own, reserve, sync_folder, write_all
from samba_rl.data.journal_format import HEAD, MARK, NO_DIGEST, TITLE, Frame, Scan, damage, digest_of, scan
from samba_rl.data.packing import pack, unpack
from samba_rl.errors import UserError
from samba_rl.types import Fault, State, Traces, Transitions

EARLIER = -1
"""Trial number of transitions that were measured before the run."""


def unasked(before: int) -> int:
    """Return the trial number of trials that the run did not ask for, and that it learns from before trial `before`."""
    return -2 - before


@dataclass(frozen=True)
class Record:
    """Real episodes that ran together, or transitions that were measured before the run."""

    trial: int
    """Number of the trial, from 0; or `EARLIER`, or that of trials that were not asked for: `unasked(before)`."""
    part: int
    """Number of the part, from 0: a system that runs one episode at a time has a part for each episode of a trial."""
    steps: Traces | Transitions
    """Measured steps."""
    faults: tuple[Fault, ...] = ()
    """Faults that cut episodes short."""
    random: Tensor | None = None
    """State of the random number generator afterwards."""

    def to_state(self) -> State:
        """Return the record as plain values and tensors."""
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
        """Make the record that `to_state` returned."""
        kind = Traces if state["kind"] == "traces" else Transitions
        faults = tuple(Fault(**fault) for fault in state["faults"])
        return Record(state["trial"], state["part"], kind(**state["steps"]), faults, state["random"])


@final
class Journal:
    """Appends records to a file and finds them again; made by `create`, `open` or `read`."""

    def __init__(self, path: Path, frames: dict[tuple[int, int], Frame], end: int, digest: bytes) -> None:
        self.path = path
        self.torn: Path | None = None
        """File to which `open` moved a damaged last record."""
        self._frames = frames
        self._end = end
        self._last = digest
        self._file: int | None = None

    @staticmethod
    def create(path: Path) -> Journal:
        """Create a new journal."""
        try:
            file = open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except OSError as error:
            raise disk_error(path, error) from error
        try:
            write_all(file, TITLE, 0)
            flush(file)
        except OSError as error:
            os.close(file)
            with contextlib.suppress(OSError):
                path.unlink()
            raise disk_error(path, error) from error
        journal = Journal(path, {}, len(TITLE), NO_DIGEST)
        journal._file = file
        return journal

    @staticmethod
    def open(path: Path, known: int = 0) -> Journal:
        """Open an existing journal to continue it; raise UserError unless the first `known` records are whole.

        A record behind them that a killed program left half written is cut off. One that was whole before and is now
        damaged is moved to the file `torn`.
        """
        journal, found = _indexed(path, known)
        try:
            if found.torn:
                journal.torn = _free_name(path)
                with open(journal.torn, "xb") as aside:
                    aside.write(found.torn)
                    aside.flush()
                    os.fsync(aside.fileno())
                sync_folder(path.parent)
            journal._file = open_own(path, os.O_RDWR)
            os.ftruncate(journal._file, found.end)
            # A program that was killed may have written a record and not flushed it; from here on it counts.
            flush(journal._file)
        except OSError as error:
            raise disk_error(path, error) from error
        return journal

    @staticmethod
    def read(path: Path, known: int = 0) -> Journal:
        """Open an existing journal for reading only; raise UserError unless the first `known` records are whole."""
        return _indexed(path, known)[0]

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def digest(self) -> str:
        """Return a checksum of all records."""
        return self._last.hex()

    def digest_of(self, count: int) -> str:
        """Return a checksum of the first `count` records."""
        return (list(self._frames.values())[count - 1].digest if count else NO_DIGEST).hex()

    def find(self, trial: int, part: int) -> Record | None:
        """Return a record, or None if it is absent."""
        frame = self._frames.get((trial, part))
        return None if frame is None else self._load(frame)

    def numbers(self) -> list[int]:
        """Return the numbers of all trials in the order in which a run learns from them."""
        return sorted({trial for trial, _ in self._frames}, key=_place)

    def parts(self, trial: int) -> list[Record]:
        """Return the parts of a trial that are there, in order."""
        numbers = sorted(part for number, part in self._frames if number == trial)
        return [self._load(self._frames[trial, part]) for part in numbers]

    def trials(self, before: int | None = None, unasked_before: int | None = None) -> Iterator[Traces | Transitions]:
        """Yield the measured steps in the order in which a run learns from them.

        These are the steps of trials numbered below `before` (None: of all), and of trials that were not asked for and
        are learned from before a trial numbered below `unasked_before` (None: of all). Episodes that failed before
        their first step are left out.
        """
        for trial in self.numbers():
            most = before if trial >= EARLIER else unasked_before
            if most is not None and _place(trial)[0] >= most:
                continue
            steps = [record.steps for record in self.parts(trial)]
            if trial < EARLIER:
                # Of any length each, so they cannot be joined.
                yield from steps
                continue
            traces = [each for each in steps if isinstance(each, Traces)]
            yield Traces.joined(traces).begun() if traces else steps[0]

    def reserve(self, size: int) -> None:
        """Reserve disk space for a record of `size` bytes before it is measured; raise DiskError if there is none."""
        assert self._file is not None
        try:
            reserve(self._file, self._end, size)
        except OSError as error:
            raise disk_error(self.path, error) from error

    def append(self, record: Record) -> None:
        """Write a record; it is on disk when this returns."""
        assert self._file is not None
        packed = pack(record.to_state())
        if len(packed) > RECORD_LIMIT:
            raise UserError(
                f"{self.path} cannot hold {len(packed):,} bytes in one record; give at most {RECORD_LIMIT:,}"
            )
        digest = digest_of(self._last, packed)
        start = self._end + HEAD.size
        try:
            write_all(self._file, packed, start)
            write_all(self._file, HEAD.pack(MARK, len(packed), digest), self._end)
            flush(self._file)
        except OSError as error:
            raise disk_error(self.path, error) from error
        self._frames[record.trial, record.part] = Frame(len(self._frames), start, len(packed), digest)
        self._last, self._end = digest, start + len(packed)

    def close(self) -> None:
        """Release reserved space and close the file; raise DiskError, with the file closed, if the space stays."""
        if self._file is not None:
            file, self._file = self._file, None
            try:
                os.ftruncate(file, self._end)
            except OSError as error:
                raise disk_error(self.path, error) from error
            finally:
                os.close(file)

    def _load(self, frame: Frame) -> Record:
        try:
            with reading_own(self.path) as file:
                file.seek(frame.start)
                packed = file.read(frame.length)
        except OSError as error:
            raise disk_error(self.path, error, reading=True) from error
        return _decoded(self.path, frame, packed)


def _place(trial: int) -> tuple[int, bool]:
    """Return the place of a trial in the order of learning."""
    return (-2 - trial, False) if trial < EARLIER else (trial, True)


def random_state(generator: torch.Generator) -> Tensor:
    """Return a copy of the state of a generator."""
    return generator.get_state().clone()


def _indexed(path: Path, known: int) -> tuple[Journal, Scan]:
    """Scan the journal at `path`; return it, not yet open for writing, and the result of the scan."""
    frames: dict[tuple[int, int], Frame] = {}

    def add(frame: Frame, packed: bytes) -> None:
        record = _decoded(path, frame, packed)
        frames[record.trial, record.part] = frame

    found = scan(path, known, add)
    return Journal(path, frames, found.end, found.digest), found


def _decoded(path: Path, frame: Frame, packed: bytes) -> Record:
    try:
        return Record.from_state(unpack(packed))
    except (ValueError, KeyError, TypeError) as error:
        raise damage(path, f"record {frame.number + 1} is damaged: {error}") from error


def _free_name(path: Path) -> Path:
    """Return a file name for a damaged record that is not in use."""
    names = (path.with_name(f"{path.name}.torn{'' if number == 1 else number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())
