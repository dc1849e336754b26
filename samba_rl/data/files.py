"""Helpers that the file formats share: optional packages, files that may come from strangers, files written whole."""

from __future__ import annotations

import errno
import importlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from samba_rl.errors import UserError

FilePath: TypeAlias = "str | os.PathLike[str]"
JSON_LIMIT, RECORD_LIMIT, TEXT_LIMIT, STATE_LIMIT = 2**24, 2**30, 2**29, 2**32
"""Largest JSON file, record of a journal, file of lines, and packed state that is read, in bytes."""
_TEMPORARY = ".samba-*.tmp"
_SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


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


def open_own(path: FilePath, flags: int) -> int:
    """Open a file of a folder that may come from a stranger: a regular file only, and not through a link.

    A write through a symbolic link, or to a file that has other names, would change a file elsewhere; opening a FIFO
    would wait for ever.
    """
    try:
        file = os.open(path, (flags & ~os.O_TRUNC) | _SAFELY, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "it is a symbolic link, and the files of this folder must be its own"
        raise
    try:
        about = os.fstat(file)
        if stat.S_ISDIR(about.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        if about.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EMLINK, "it has other names (hard links) elsewhere; copy the folder", os.fspath(path))
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


def reading_own(path: FilePath) -> BinaryIO:
    """Open a file as `open_own` does, for reading."""
    return os.fdopen(open_own(path, os.O_RDONLY), "rb")


def read_own(path: FilePath, limit: int) -> bytes:
    """Return the content of a file opened as by `open_own`; raise OSError, before reading, if it is larger."""
    with reading_own(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EINVAL, _too_large(size, limit), os.fspath(path))
        return file.read(limit)


def check_regular(path: FilePath, limit: int = TEXT_LIMIT) -> None:
    """Raise OSError for a file that the user named, perhaps through a link, if it is no file, or too large to read."""
    try:
        about = os.stat(path)
    except ValueError as error:  # a null character or a lone surrogate
        raise OSError(errno.EINVAL, f"no file can have such a name ({error})", os.fspath(path)) from error
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    if about.st_size > limit:
        raise OSError(errno.EINVAL, _too_large(about.st_size, limit), os.fspath(path))


def _too_large(size: int, limit: int) -> str:
    return f"it has {size:,} bytes; at most {limit:,} are read"


def reason(error: Exception) -> str:
    """Return what went wrong with a file, without its name and the number of the error."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def remove_temporary(folder: Path) -> None:
    """Remove what writers that were killed left in a folder; nobody else may be writing to it."""
    for path in folder.glob(_TEMPORARY):
        path.unlink(missing_ok=True)


def check_target(path: FilePath, *, own: bool = False) -> Path:
    """Return the file that `replacing` replaces; raise a `UserError` if there can be none."""
    target = Path(path).absolute() if own else Path(path).resolve()
    if target.is_dir() or not target.parent.is_dir():
        raise UserError(f"'{path}' cannot be written; give the name of a file in a folder that exists")
    return target


@contextmanager
def replacing(path: FilePath, *, sync_name: bool = True, own: bool = False) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` once it is whole and on disk; until then the old one stays.

    When several files of a folder are replaced, only the last needs to sync the folder (`sync_name`). A link at `path`
    is followed, unless the folder may come from a stranger (`own`): then it is replaced.
    """
    target = check_target(path, own=own)
    temporary = target.with_name(_TEMPORARY.replace("*", secrets.token_hex(8)))
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


def reserve(file: int, place: int, size: int) -> None:
    """Reserve disk space for `size` bytes from `place` on, where the file system can."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, place, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def flush(file: int) -> None:
    """Flush an open file to disk."""
    os.fdatasync(file) if hasattr(os, "fdatasync") else os.fsync(file)


def flush_file(path: Path) -> None:
    """Flush a file to disk that was written without flushing."""
    file = open_own(path, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)


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
