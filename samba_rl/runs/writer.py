"""The folder of a run in progress: everything that the run writes goes through it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from samba_rl.agents.agent import Learned
from samba_rl.data import DataSet
from samba_rl.data.files import (
    JSON_LIMIT,
    TEXT_LIMIT,
    DiskError,
    disk_error,
    flush,
    open_own,
    read_own,
    remove_temporary,
    replacing,
    sync_folder,
    write_all,
)
from samba_rl.data.journal import EARLIER, Journal, Record
from samba_rl.data.journal_format import TITLE
from samba_rl.data.packing import pack
from samba_rl.data.plain import to_plain
from samba_rl.data.step_log import StepLog
from samba_rl.data.tables import append_csv
from samba_rl.errors import UserError
from samba_rl.events import Event
from samba_rl.runs import checkpoints
from samba_rl.runs.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from samba_rl.runs.commands import next_command
from samba_rl.runs.folder import (
    CONFIG,
    DATA,
    EARLIER_DATA,
    EVALUATION,
    EXTENDED,
    FORMAT,
    JOURNAL,
    KINDS,
    METRICS,
    MODEL,
    NEXT,
    POLICY,
    STEPS,
    SUMMARY,
    TRIALS,
    begun,
    json_bytes,
    read_config,
    write_json,
    write_next,
    write_whole,
    writing,
)
from samba_rl.runs.lock import Lock
from samba_rl.runs.manifest import MANIFEST, SEALED, seal
from samba_rl.types import State, Transitions

RECOMPUTED = "the run is recomputed from its real trials"
_NAMES = {kind: name for name, kind in KINDS.items()}


@final
class RunFolder:
    """The folder of a run in progress, locked against other writers."""

    def __init__(self, folder: Path, lock: Lock, journal: Journal, config: str) -> None:
        """Open the metrics; use `create` or `reopen` instead. `config` is the checksum of config.json."""
        self.folder, self.journal = folder, journal
        self.steps = StepLog(folder / STEPS)
        self._lock, self._config = lock, config
        self._made: list[Path] = []
        self._rows = 0
        """Number of rows in real.csv."""
        self._closed = False
        try:
            self._metrics = open_own(folder / METRICS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._size, self._digest = 0, hashlib.sha256()
        except OSError as error:
            raise disk_error(folder / METRICS, error) from error

    @staticmethod
    def create(folder: Path, config: Mapping[str, Any], earlier: Transitions | None = None) -> RunFolder:
        """Make the folder of a new run with this configuration; refuse one that already holds a run."""
        made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for each in made:
                sync_folder(each.parent)
        except OSError as error:
            raise disk_error(error.filename or folder, error) from error
        lock = Lock(folder)
        try:
            _remove_beginnings(folder)
            _check_free(folder)
        except OSError as error:
            lock.release()
            raise disk_error(error.filename or folder, error) from error
        except BaseException:
            lock.release()
            raise
        try:
            journal = Journal.create(folder / JOURNAL)
            if earlier is not None:
                journal.append(Record(EARLIER, 0, earlier))
            # Last, because a folder with a configuration counts as a run.
            write_json(folder / CONFIG, {"format": FORMAT, SEALED: True, **config})
            run = RunFolder(folder, lock, journal, _digest_of(folder / CONFIG))
        except BaseException:
            _remove(folder, lock, made)
            raise
        run._made = made
        return run

    @staticmethod
    def reopen(folder: Path) -> tuple[RunFolder, Checkpoint | None, list[str]]:
        """Open the folder of an interrupted run; return it, its last sound checkpoint, and notices for the user."""
        read_config(folder)
        lock = Lock(folder)
        try:
            # Again: the process that held the lock before may have removed its run.
            read_config(folder)
            remove_temporary(folder)
            checkpoint, problems = read_checkpoint(folder)
            notices = [f"{problem}; the checkpoint before it is used" for problem in problems]
            if problems and checkpoint is None:
                notices[-1] = f"{problems[-1]}; {RECOMPUTED}"
            about = {} if checkpoint is None else checkpoint.about
            trials, metrics_bytes = _count(about.get("trials", 0)), _count(about.get("metrics_bytes", 0))
            journal = Journal.open(folder / JOURNAL, trials)
            config = _digest_of(folder / CONFIG)
            if checkpoint is not None:
                _check_unchanged(folder, CONFIG, config, about.get("config"))
                _check_unchanged(folder, JOURNAL, journal.digest_of(trials), about.get("journal"))
                checkpoints.remove_damaged(folder, checkpoint)
            run = RunFolder(folder, lock, journal, config)
            run._cut_metrics(metrics_bytes, about.get("metrics"))
            notices += run._moved_aside(metrics_bytes)
        except OSError as error:
            lock.release()
            raise disk_error(error.filename or folder, error) from error
        except BaseException:
            lock.release()
            raise
        return run, checkpoint, notices

    def _cut_metrics(self, size: int, digest: str | None) -> None:
        """Drop the rows written after the checkpoint: what they report will happen again."""
        path = self.folder / METRICS
        kept = read_own(path, TEXT_LIMIT)[:size]
        self._digest = hashlib.sha256(kept)
        if digest is not None:
            _check_unchanged(self.folder, METRICS, self._digest.hexdigest(), digest)
        os.ftruncate(self._metrics, size)
        self._size = size

    def _moved_aside(self, size: int) -> list[str]:
        """Return notices of damaged records that were moved aside, perhaps by a process that could not keep them."""
        said = read_own(self.folder / METRICS, TEXT_LIMIT)[:size].decode(errors="replace")
        names = sorted(path.name for path in self.folder.glob(f"{JOURNAL}.torn*"))
        told = "the last record of {} was damaged; it was moved to {}"
        return [told.format(self.folder / JOURNAL, name) for name in names if f'moved to {name}"' not in said]

    @property
    def measured(self) -> bool:
        """Return whether this run has measured anything on the real system."""
        came_back = any((self.folder / TRIALS).glob("*.csv"))
        return self.journal.find(0, 0) is not None or bool(self.steps.lines()) or came_back

    def __call__(self, event: Event) -> None:
        """Add an event to the metrics."""
        line = (json.dumps({"kind": _NAMES[type(event)], **to_plain(event)}, ensure_ascii=False) + "\n").encode()
        with writing(self.folder / METRICS):
            write_all(self._metrics, line)
        self._size += len(line)
        self._digest.update(line)

    def write_data(self, data: DataSet) -> None:
        """Bring real.csv up to date; it is for people, while the run itself relies on the journal."""
        with writing(self.folder / DATA):
            new = {name: value[self._rows :] for name, value in vars(data.transitions).items()}
            append_csv(self.folder / DATA, data.schema, Transitions(**new), anew=self._rows == 0)
        self._rows = len(data)

    def improving_for(self, trial: int) -> None:
        """Note that the improvement of the policy for a trial begins, unless it had begun in an earlier process."""
        if trial > begun(self.folder):
            write_next(self.folder, {"trial": trial, "asked": False})

    def save(self, state: State) -> None:
        """Write a checkpoint."""
        with writing(self.folder / METRICS):
            flush(self._metrics)
        about = {
            "trials": len(self.journal),
            "journal": self.journal.digest,
            "metrics_bytes": self._size,
            "metrics": self._digest.hexdigest(),
            "config": self._config,
        }
        write_checkpoint(self.folder, state, about)

    def finish(self, policy: Learned, model: State, summary: Mapping[str, Any]) -> None:
        """Write the results of the run; the summary comes last, so that a run with a summary is complete."""
        with writing(self.folder / METRICS):
            flush(self._metrics)
        # The room that was reserved for another record is not part of the journal.
        self.journal.close()
        with writing(self.folder / MODEL), replacing(self.folder / MODEL, sync_name=False, own=True) as file:
            file.write(pack(model))
        with writing(self.folder / POLICY), replacing(self.folder / POLICY, sync_name=False, own=True) as file:
            np.savez(file, **{name: value.cpu().numpy() for name, value in policy.state_dict().items()})
        (self.folder / STEPS).unlink(missing_ok=True)
        content = json_bytes(summary)
        seal(self.folder, content)
        write_whole(self.folder / SUMMARY, content)

    def close(self) -> None:
        """Close the files and release the folder."""
        try:
            self._close()
        finally:
            self._lock.release()

    def discard(self) -> None:
        """Remove everything that was written; for a run that has not measured anything."""
        try:
            self._close()
        finally:
            _remove(self.folder, self._lock, self._made)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        os.close(self._metrics)
        self.steps.close()
        # All that can fail is to give back reserved space, which the next program does.
        with contextlib.suppress(DiskError):
            self.journal.close()


def _remove(home: Path, lock: Lock, made: list[Path]) -> None:
    """Remove the files of a run that has not measured anything, and the folders that were made for it.

    The lock is released last: otherwise a process that resumes in between would lose what it measures. What a failing
    disk does not let go stays: it is a run that can be resumed, or the beginning of one.
    """
    try:
        with contextlib.suppress(OSError):
            for name in (CONFIG, METRICS, JOURNAL, STEPS, DATA, EARLIER_DATA, NEXT):
                (home / name).unlink(missing_ok=True)
            checkpoints.remove_all(home)
            for policy in (home / TRIALS).glob("*.policy"):
                policy.unlink()
            (home / TRIALS).rmdir()
    finally:
        lock.release(remove=True)
    for folder in made:
        # Another program may have put something there, or removed it.
        with contextlib.suppress(OSError):
            folder.rmdir()


def sweep(folder: Path) -> None:
    """Remove what a killed writer left in the folder of a finished run, unless another process is writing to it."""
    with contextlib.suppress(UserError, OSError):
        lock = Lock(folder)
        try:
            remove_temporary(folder)
        finally:
            lock.release()


def _check_free(folder: Path) -> None:
    """Raise a `UserError` if a folder holds a run, or anything that has the name of a part of one."""
    names = (CONFIG, METRICS, JOURNAL, STEPS, DATA, EARLIER_DATA, NEXT, POLICY, MODEL, SUMMARY, EVALUATION, MANIFEST)
    taken = [name for name in (*names, EXTENDED, TRIALS, checkpoints.FOLDER) if os.path.lexists(folder / name)]
    if {CONFIG, METRICS, JOURNAL, DATA, POLICY, SUMMARY} & set(taken):
        raise UserError(
            f"{folder} already holds a run; continue it with: {next_command(folder)}, or give another folder"
        )
    if taken:
        raise UserError(f"{folder} already holds '{taken[0]}', which is not this run's; give another folder")


def _remove_beginnings(folder: Path) -> None:
    """Remove what a program left that was killed while it created the folder, such as an empty journal."""
    remove_temporary(folder)
    journal = folder / JOURNAL
    if journal.exists() and not (folder / CONFIG).exists():
        begun = journal.stat().st_size <= len(TITLE) and TITLE.startswith(read_own(journal, len(TITLE)))
        if begun or not len(Journal.read(journal)):
            journal.unlink()


def _check_unchanged(folder: Path, name: str, found: str, due: object) -> None:
    if found != due:
        raise UserError(
            f"{folder / name} was altered since the last checkpoint; restore it, "
            f"or remove {METRICS} and {checkpoints.FOLDER}: then {RECOMPUTED}"
        )


def _count(value: object) -> int:
    """Return a count from a manifest, or 0 if it is not one; then the checksums will not match."""
    return value if type(value) is int and value >= 0 else 0


def _digest_of(path: Path) -> str:
    return hashlib.sha256(read_own(path, JSON_LIMIT)).hexdigest()
