"""The file format of the journal: a title line, then records that checksums chain together.

Each record follows a head of 48 bytes: the mark "TRIAL", the length of the record, and the SHA-256 of the checksum
before it, the length and the record. So a record can be neither changed nor left out unnoticed.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from samba_rl.data.files import RECORD_LIMIT, disk_error, reading_own
from samba_rl.errors import UserError

FORMAT = 1
TITLE = f"samba_rl journal, format {FORMAT}\n".encode()
NO_DIGEST = bytes(32)
"""Stands for the checksum before the first record."""
HEAD = struct.Struct("<8sQ32s")
MARK = b"TRIAL\0\0\0"
_TITLE = re.compile(rb"samba_rl journal, format (\d{1,9})\n")


class Frame(NamedTuple):
    """Place of a record in the file."""

    number: int
    """Number of the record, from 0."""
    start: int
    """Offset of its first byte."""
    length: int
    """Length in bytes."""
    digest: bytes
    """Checksum of the record and, through the chain, of all before it."""


class Scan(NamedTuple):
    """Result of scanning a journal."""

    end: int
    """Offset behind the last whole record."""
    digest: bytes
    """Checksum of all whole records."""
    torn: bytes
    """Bytes of a last record that was written whole but is now damaged; empty if there is none."""


def digest_of(last: bytes, packed: bytes) -> bytes:
    """Return the checksum of a record that follows the checksum `last`."""
    digest = hashlib.sha256(last)
    digest.update(len(packed).to_bytes(8, "little"))
    digest.update(packed)
    return digest.digest()


def scan(path: Path, known: int, visit: Callable[[Frame, bytes], None]) -> Scan:
    """Check all records and call `visit` with each; raise UserError unless the first `known` are whole."""
    count, last = 0, NO_DIGEST
    try:
        with reading_own(path) as file:
            size = os.fstat(file.fileno()).st_size
            title = file.readline(64)
            _check_title(path, title)
            end = len(title)
            while True:
                file.seek(end)
                head = file.read(HEAD.size)
                _, length, digest = HEAD.unpack(head.ljust(HEAD.size, b"\0"))
                packed = file.read(min(length, size, RECORD_LIMIT))
                due = HEAD.pack(MARK, length, digest_of(last, packed))
                if head != due or len(packed) != length:
                    file.seek(end)
                    too_long = size > end + HEAD.size + RECORD_LIMIT
                    rest = b"" if too_long else file.read(HEAD.size + RECORD_LIMIT)
                    break
                visit(Frame(count, end + HEAD.size, length, digest), packed)
                count, end, last = count + 1, end + HEAD.size + length, digest
    except OSError as error:
        raise disk_error(path, error, reading=True) from error
    if count < known or too_long or MARK in rest[8:]:
        # Another record follows, or this one was whole once: this is not an interrupted write.
        raise damage(path, f"record {count + 1} was torn or altered")
    # Either this is the end, or the program was killed while it wrote a record: then at most the beginning of the head
    # is there, followed by zeros. If only the last bytes are zeros, the head was whole once and has been damaged.
    begun = head.rstrip(b"\0")
    unfinished = len(begun) <= 40 and len(packed) == length and due.startswith(begun)
    return Scan(end, last, b"" if unfinished else rest)


def damage(path: Path, why: str) -> UserError:
    """Return the error for a damaged journal."""
    table = path.with_name("real.csv")
    return UserError(
        f"{path} is damaged ({why}); restore it from a copy, or start a new run from the measured data: --data {table}"
    )


def _check_title(path: Path, title: bytes) -> None:
    match = _TITLE.fullmatch(title)
    if match is None:
        raise damage(path, "it does not begin like a journal")
    if int(match[1]) > FORMAT:
        raise UserError(
            f"{path} was written by a newer samba_rl (format {int(match[1])}; this one reads up to {FORMAT}); install "
            "that version or a later one"
        )
