"""The steps of a running real episode, written one by one until the journal has the whole episode."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, final

from torch import Tensor

from samba_rl.data.files import TEXT_LIMIT, disk_error, open_own, read_own, reserve, write_all
from samba_rl.types import State


@final
class StepLog:
    """A file with a line of JSON for the start of the running episode and one for each step.

    If the program is killed in the middle of the episode, its steps are still there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._end = 0

    def reserve(self, size: int) -> None:
        """Remove the steps of the previous episode, and reserve disk space for those of the next."""
        try:
            self._clear()
            assert self._file is not None
            reserve(self._file, 0, size)
        except OSError as error:
            raise disk_error(self._path, error) from error

    def begin(self, about: State, x: Tensor) -> None:
        """Begin an episode in the state x [nx]; the steps of the previous one are removed."""
        try:
            if self._file is None or self._end:
                self._clear()
        except OSError as error:
            raise disk_error(self._path, error) from error
        self._line({**about, "x": x.tolist()})

    def step(self, **values: Any) -> None:
        """Write a step that was measured."""
        self._line(values)

    def done(self) -> None:
        """Remove the steps, once the journal has the episode."""
        if self._file is not None:
            try:
                self._clear()
            except OSError as error:
                raise disk_error(self._path, error) from error

    def close(self) -> None:
        """Close the file and keep its lines."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def lines(self) -> list[State]:
        """Return the lines of the file up to the first that is incomplete."""
        try:
            text = read_own(self._path, TEXT_LIMIT) if self._path.exists() else b""
        except OSError as error:
            raise disk_error(self._path, error, reading=True) from error
        found = []
        for line in text.split(b"\n")[:-1]:
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def _clear(self) -> None:
        if self._file is None:
            self._file = open_own(self._path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(self._file, 0)
        self._end = 0

    def _line(self, values: State) -> None:
        assert self._file is not None
        line = (json.dumps(values) + "\n").encode()
        try:
            # Not at the end of the file, where the reserved space ends.
            write_all(self._file, line, self._end)
        except OSError as error:
            raise disk_error(self._path, error) from error
        self._end += len(line)
