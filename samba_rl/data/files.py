"""Helpers that the file formats share: optional packages, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import importlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from samba_rl.errors import UserError

FilePath: TypeAlias = "str | os.PathLike[str]"


def needed(module: str, package: str, what: str) -> Any:
    """Import a module of an optional package that `what` needs; raise UserError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{what} needs the package '{package}'; install it with: pip install 'samba-rl[data]'"
        ) from error


class DiskError(UserError):
    """A file cannot be written or read."""


def disk_error(path: FilePath, error: OSError, *, reading: bool = False) -> DiskError:
    """Return the error for a file that cannot be written, or read, with a way out."""
    what = f"{path} cannot be {'read' if reading else 'written'}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskError(f"{what}; free some space")
    if error.errno == errno.EFBIG:
        return DiskError(f"{what}; raise the limit on file sizes (ulimit -f)")
    if reading:
        return DiskError(f"{what}; check that it exists and is readable")
    return DiskError(f"{what}; give a folder that can be written to, or fix its permissions")


@contextmanager
def replacing(path: FilePath, *, sync_name: bool = True) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` once it is whole and on disk; until then the old one stays.

    When several files of a folder are replaced, only the last needs to sync the folder (`sync_name`).
    """
    target = Path(path).resolve()
    if target.is_dir() or not target.parent.is_dir():
        raise UserError(f"'{path}' cannot be written; give the name of a file in a folder that exists")
    temporary = target.with_name(f".samba-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        if sync_name:
            sync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_all(file: int, data: bytes, place: int | None = None) -> None:
    """Write all of the data to an open file, at the offset `place` or else at the end."""
    rest = memoryview(data)
    while rest:
        written = os.write(file, rest) if place is None else os.pwrite(file, rest, place)
        rest, place = rest[written:], None if place is None else place + written


def flush(file: int) -> None:
    """Flush an open file to disk."""
    os.fdatasync(file) if hasattr(os, "fdatasync") else os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system supports it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        # Windows cannot open folders.
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
