"""The folder of a run: what it was asked to do, what happened, every real trial, checkpoints, and what it came to."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from samba_rl.agents.agent import Learned
from samba_rl.data import DataSet
from samba_rl.data.files import disk_error, flush, replacing, write_all
from samba_rl.data.journal import EARLIER, TITLE, Journal, Record, StepLog
from samba_rl.data.packing import pack, unpack
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.data.tables import append_csv
from samba_rl.errors import UserError, did_you_mean
from samba_rl.events import Event, ImprovementReport, LatentReport, Notice, TrialReport
from samba_rl.runs import checkpoints
from samba_rl.runs.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from samba_rl.runs.lock import LOCK, Lock
from samba_rl.types import State, Transitions

FORMAT = 1
CONFIG, METRICS, DATA, POLICY, SUMMARY = "config.json", "metrics.jsonl", "real.csv", "policy.npz", "summary.json"
JOURNAL, STEPS = "real.journal", "real.steps"
MODEL, EVALUATION = "model.state", "evaluation.json"
KINDS: dict[str, type[Event]] = {
    "trial": TrialReport,
    "improvement": ImprovementReport,
    "latent": LatentReport,
    "notice": Notice,
}
"""What the rows of metrics.jsonl are."""
_NAMES = {kind: name for name, kind in KINDS.items()}


@final
class RunFolder:
    """A run's folder while the run is under way; nobody else may write to it."""

    def __init__(self, folder: Path, lock: Lock, journal: Journal, config: str) -> None:
        """For `create` and `reopen`."""
        self.folder, self.journal = folder, journal
        self.steps = StepLog(folder / STEPS)
        self._lock, self._config = lock, config
        self._made: list[Path] = []
        self._rows = 0
        """Of real.csv."""
        self._closed = False
        try:
            self._metrics = os.open(folder / METRICS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            self._size, self._digest = 0, hashlib.sha256()
        except OSError as error:
            raise disk_error(folder / METRICS, error) from error

    @staticmethod
    def create(folder: Path, config: Mapping[str, Any], earlier: Transitions | None = None) -> RunFolder:
        """Take the folder for a run of this configuration; one that holds a run already is refused."""
        made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error.filename or folder, error) from error
        lock = Lock(folder)
        try:
            _remove_beginnings(folder)
            if any((folder / name).exists() for name in (CONFIG, METRICS, JOURNAL, DATA, POLICY, SUMMARY)):
                raise UserError(
                    f"{folder} holds a run already; go on with it: samba-rl resume {folder}, or give another folder"
                )
        except BaseException:
            lock.release()
            raise
        try:
            journal = Journal.create(folder / JOURNAL)
            if earlier is not None:
                journal.append(Record(EARLIER, 0, earlier))
            # Last: what has a configuration is a run.
            write_json(folder / CONFIG, {"format": FORMAT, **config})
            run = RunFolder(folder, lock, journal, _digest_of(folder / CONFIG))
        except BaseException:
            lock.release()
            _remove(folder, made)
            raise
        run._made = made
        return run

    @staticmethod
    def reopen(folder: Path) -> tuple[RunFolder, Checkpoint | None, list[str]]:
        """Take the folder of a run that was interrupted, with its last sound checkpoint and what there is to say."""
        read_config(folder)
        lock = Lock(folder)
        try:
            checkpoint, problems = read_checkpoint(folder)
            notices = [f"{problem}; the checkpoint before it is used" for problem in problems]
            if problems and checkpoint is None:
                notices[-1] = f"{problems[-1]}; the run is computed anew from its real trials"
            about = {} if checkpoint is None else checkpoint.about
            trials, metrics_bytes = _whole(about.get("trials", 0)), _whole(about.get("metrics_bytes", 0))
            journal = Journal.open(folder / JOURNAL, trials)
            if journal.torn is not None:
                notices.append(
                    f"the last record of {journal.path} was damaged; it was put aside as {journal.torn.name}"
                )
            config = _digest_of(folder / CONFIG)
            if checkpoint is not None:
                _check(folder, CONFIG, config, about.get("config"))
                _check(folder, JOURNAL, journal.digest_of(trials), about.get("journal"))
                checkpoints.remove_damaged(folder, checkpoint)
            run = RunFolder(folder, lock, journal, config)
            run._cut_metrics(metrics_bytes, about.get("metrics"))
        except BaseException:
            lock.release()
            raise
        return run, checkpoint, notices

    def _cut_metrics(self, size: int, digest: str | None) -> None:
        """Leave what was there at the checkpoint: what came after it happens again."""
        path = self.folder / METRICS
        kept = path.read_bytes()[:size]
        self._digest = hashlib.sha256(kept)
        if digest is not None:
            _check(self.folder, METRICS, self._digest.hexdigest(), digest)
        os.ftruncate(self._metrics, size)
        self._size = size

    @property
    def measured(self) -> bool:
        """Whether anything real has happened in this run."""
        return self.journal.find(0, 0) is not None or bool(self.steps.lines())

    def __call__(self, event: Event) -> None:
        """Add an event to the metrics."""
        line = (json.dumps({"kind": _NAMES[type(event)], **to_plain(event)}, ensure_ascii=False) + "\n").encode()
        try:
            write_all(self._metrics, line)
        except OSError as error:
            raise disk_error(self.folder / METRICS, error) from error
        self._size += len(line)
        self._digest.update(line)

    def write_data(self, data: DataSet) -> None:
        """Bring real.csv up to date: it is for people, the journal for the run."""
        path = self.folder / DATA
        try:
            new = {name: value[self._rows :] for name, value in vars(data.transitions).items()}
            append_csv(path, data.schema, Transitions(**new), anew=self._rows == 0)
        except OSError as error:
            raise disk_error(path, error) from error
        self._rows = len(data)

    def save(self, state: State) -> None:
        """Write a checkpoint."""
        try:
            flush(self._metrics)
        except OSError as error:
            raise disk_error(self.folder / METRICS, error) from error
        about = {
            "trials": len(self.journal),
            "journal": self.journal.digest,
            "metrics_bytes": self._size,
            "metrics": self._digest.hexdigest(),
            "config": self._config,
        }
        write_checkpoint(self.folder, state, about)

    def finish(self, policy: Learned, model: State, summary: Mapping[str, Any]) -> None:
        """Write what the run ended with; the summary comes last, so that a run that has one is whole."""
        with _writing(self.folder / MODEL), replacing(self.folder / MODEL, sync_name=False) as file:
            file.write(pack(model))
        with _writing(self.folder / POLICY), replacing(self.folder / POLICY, sync_name=False) as file:
            np.savez(file, **{name: value.cpu().numpy() for name, value in policy.state_dict().items()})
        (self.folder / STEPS).unlink(missing_ok=True)
        write_json(self.folder / SUMMARY, summary)

    def close(self) -> None:
        """Let go of the folder."""
        if self._closed:
            return
        self._closed = True
        os.close(self._metrics)
        self.steps.close()
        self.journal.close()
        self._lock.release()

    def discard(self) -> None:
        """Leave everything as it was, where nothing real has happened yet."""
        self.close()
        _remove(self.folder, self._made)


def _remove(home: Path, made: list[Path]) -> None:
    """Remove a run in which nothing was measured, and the folders that were made for it."""
    for name in (CONFIG, METRICS, JOURNAL, STEPS, DATA, LOCK):
        (home / name).unlink(missing_ok=True)
    shutil.rmtree(home / checkpoints.FOLDER, ignore_errors=True)
    for folder in made:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _remove_beginnings(folder: Path) -> None:
    """Remove what a program left that was killed while it took the folder, before anything had been measured."""
    journal = folder / JOURNAL
    if journal.exists() and not (folder / CONFIG).exists():
        begun = journal.stat().st_size <= len(TITLE) and TITLE.startswith(journal.read_bytes())
        if begun or not len(Journal.read(journal)):
            journal.unlink()


def _check(folder: Path, name: str, found: str, due: object) -> None:
    if found != due:
        anew = f"{METRICS} and {checkpoints.FOLDER}"
        raise UserError(
            f"{folder / name} was altered since the last checkpoint; put it back as it was. "
            f"Or remove {anew}: then the run is computed anew from its real trials"
        )


def _whole(value: Any) -> int:
    """A number that a manifest has; another one leads to checksums that do not fit."""
    return value if type(value) is int and value >= 0 else 0


def _digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    with _writing(path), replacing(path) as file:
        file.write((json.dumps(to_plain(dict(value)), indent=2, ensure_ascii=False) + "\n").encode())


# Reading --------------------------------------------------------------------------------------------------------------


def read_config(folder: Path) -> dict[str, Any]:
    """What the run in the folder was asked to do."""
    config = read_json(folder / CONFIG)
    form = config.get("format", FORMAT)
    if not isinstance(form, int) or form > FORMAT:
        raise UserError(
            f"{folder / CONFIG} was written by a newer samba_rl (format {form}; this one reads up to {FORMAT}); "
            "install that version or a later one"
        )
    return config


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of the folder."""
    if not path.is_file():
        raise _missing(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(value, dict):
        raise _damaged(path, f"it holds a {type(value).__name__}, not an object")
    return value


def read_events(path: Path, size: int | None = None) -> list[Event]:
    """What happened in the run, in order; only the first `size` bytes of it if that is given."""
    if not path.is_file():
        raise _missing(path)
    events: list[Event] = []
    try:
        *lines, last = path.read_bytes()[:size].decode().split("\n")
        if last:
            raise UserError("its last line is broken off")
        for number, line in enumerate(lines, 1):
            where = f"line {number}"
            row = json.loads(line)
            kind = row.pop("kind", None) if isinstance(row, dict) else None
            if kind not in KINDS:
                raise UserError(f"{where} is of the kind {kind!r}; {did_you_mean(str(kind), KINDS)}")
            events.append(from_plain(KINDS[kind], row, where))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    return events


def read_state(path: Path) -> State:
    """A file of the folder that holds a state."""
    if not path.is_file():
        raise _missing(path)
    try:
        return unpack(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def read_policy(path: Path, policy: Learned) -> None:
    """Give the policy the parameters that the file has."""
    if not path.is_file():
        raise _missing(path)
    try:
        # Without pickle: a file from elsewhere holds numbers, whatever it claims to be.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            state = {name: torch.from_numpy(np.array(arrays[name])) for name in arrays.files}
    except Exception as error:
        # Of a file that is not what it should be NumPy and zipfile complain in a dozen ways.
        raise _damaged(path, error) from error
    wanted = policy.state_dict()
    if state.keys() != wanted.keys():
        raise _damaged(path, f"it has {', '.join(sorted(state)) or 'nothing'}; expected {', '.join(sorted(wanted))}")
    for name, value in state.items():
        like = wanted[name]
        if value.shape != like.shape or value.dtype != like.dtype:
            found, due = f"{list(value.shape)} ({value.dtype})", f"{list(like.shape)} ({like.dtype})"
            raise _damaged(path, f"'{name}' is {found}; this system and these settings make it {due}")
        if not bool(value.isfinite().all()):
            raise _damaged(path, f"'{name}' holds NaN or infinity")
    policy.load_state_dict(state)


def _missing(path: Path) -> UserError:
    folder = path.parent
    if not (folder / CONFIG).is_file():
        return UserError(f"{folder} holds no run: there is no {CONFIG}; give the folder that `train` wrote")
    return UserError(
        f"{path} is missing: the run did not finish, or was copied in part. Go on with it: samba-rl resume {folder}"
    )


def _damaged(path: Path, why: object) -> UserError:
    return UserError(f"{path} is damaged ({why}); copy the run's folder again from where it was made, or run it again")
