"""One process at a time writes to a run's folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Any, final

from samba_rl.data.files import disk_error
from samba_rl.errors import UserError

LOCK = ".lock"
ATTEMPTS = 100


class _InUse(Exception):  # noqa: N818
    """By whom."""


@final
class Lock:
    """Held from when it is made until `release`, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        try:
            self._file: int | None = _locked(path)
        except OSError as error:
            raise disk_error(path, error) from error
        except _InUse as error:
            raise UserError(
                f"{folder} is in use: {error} is writing to it; wait until that ends, or stop it first"
            ) from None

    def release(self) -> None:
        """Let others write."""
        if self._file is not None:
            # Not closed alone: a forked child may have the file open too.
            _free(self._file)
            os.close(self._file)
            self._file = None


def held(folder: Path) -> bool:
    """Whether a process is writing to the folder."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _take(file, shared=True)
    finally:
        os.close(file)


def _take(file: int, shared: bool) -> bool:
    try:
        import fcntl
    except ImportError:
        # Windows has no such locks; there nothing keeps two processes apart.
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        # A disk that knows no locks: there nothing keeps two processes apart either.
        return True
    return True


def _free(file: int) -> None:
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _locked(path: Path) -> int:
    """The lock's file, open and locked."""
    for _ in range(ATTEMPTS):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if _take(file, shared=False):
                # Whoever held it before may have removed it since it was opened here.
                if path.exists() and os.path.samestat(os.fstat(file), os.stat(path)):
                    os.ftruncate(file, 0)
                    os.pwrite(file, json.dumps({"process": os.getpid(), "machine": socket.gethostname()}).encode(), 0)
                    return file
            elif not _take(file, shared=True):
                raise _InUse(_holder(file))
            # Else others only ask whether it is held, and have it for a moment.
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        time.sleep(0.01)
    raise _InUse("another process")


def _holder(file: int) -> str:
    try:
        who: Any = json.loads(os.pread(file, 1000, 0))
        return f"process {int(who['process'])} on {who['machine']!s}"
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another process"
