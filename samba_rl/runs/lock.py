"""One process at a time writes to a run's folder."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, final

from samba_rl.data.files import disk_error
from samba_rl.types import UserError

LOCK = ".lock"


@final
class Lock:
    """Held from when it is made until `release`, or until the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise disk_error(path, error) from error
        if not _take(self._file, shared=False):
            holder = _holder(self._file)
            os.close(self._file)
            raise UserError(f"{folder} is in use: {holder} is writing to it; wait until that ends, or stop it first")
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps({"process": os.getpid(), "machine": socket.gethostname()}).encode(), 0)

    def release(self) -> None:
        """Let others write."""
        os.close(self._file)


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
    except OSError:
        return False
    return True


def _holder(file: int) -> str:
    try:
        who: Any = json.loads(os.pread(file, 1000, 0))
        return f"process {int(who['process'])} on {who['machine']!s}"
    except (ValueError, KeyError, TypeError):
        return "another process"
