"""A lock that lets only one process at a time write to a run's folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import final

from samba_rl.data.files import disk_error, open_own
from samba_rl.errors import UserError

LOCK = ".lock"
ATTEMPTS = 100


class InUse(UserError):  # noqa: N818 - named for what it says
    """Another process is writing to a folder."""


class _InUse(Exception):  # noqa: N818 - caught here, and not an error by itself
    """Raised when another process holds the lock; the message names it."""


@final
class Lock:
    """A lock held from its creation until `release`, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._path = path = folder / LOCK
        try:
            self._file: int | None = _locked(path)
        except OSError as error:
            raise disk_error(path, error) from error
        except _InUse as error:
            raise InUse(f"{folder} is in use: {error} is writing to it; wait until it ends, or stop it first") from None

    def release(self, *, remove: bool = False) -> None:
        """Let other processes write; with `remove`, the lock's file goes first, while nobody else can hold it."""
        if self._file is not None:
            if remove:
                # On a disk that fails it stays, which harms nobody: what counts is the lock, not the file.
                with contextlib.suppress(OSError):
                    self._path.unlink()
            # Closing is not enough: a forked child may have the file open too.
            _free(self._file)
            os.close(self._file)
            self._file = None


def held(folder: Path) -> bool:
    """Return whether a process is writing to the folder."""
    try:
        file = open_own(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _take(file, shared=True)
    finally:
        os.close(file)


def lock_for_others(folder: Path) -> int:
    """Return an open file that locks a folder until every process has closed it, for a process to inherit."""
    file = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT)
    _take(file, shared=False)
    return file


def _take(file: int, *, shared: bool) -> bool:
    """Try to lock a file; return whether it is locked now."""
    try:
        import fcntl
    except ImportError:
        # Windows has no such locks, so nothing keeps two processes apart there.
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        # The file system does not support locks.
        return True
    return True


def _free(file: int) -> None:
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _locked(path: Path) -> int:
    """Open and lock the lock's file."""
    for _ in range(ATTEMPTS):
        file = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            if _take(file, shared=False):
                # The previous holder may have removed the file after it was opened here.
                if path.exists() and os.path.samestat(os.fstat(file), os.stat(path)):
                    os.ftruncate(file, 0)
                    os.pwrite(file, json.dumps({"process": os.getpid(), "machine": socket.gethostname()}).encode(), 0)
                    return file
            elif not _take(file, shared=True):
                raise _InUse(_holder(file))
            # Otherwise other processes hold it only for a moment, to see whether it is held.
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        time.sleep(0.01)
    raise _InUse("another process")


def _holder(file: int) -> str:
    try:
        who = json.loads(os.pread(file, 1000, 0))
        return f"process {int(who['process'])} on {who['machine']!s}"
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another process"
