"""The folder of a run: what it was asked to do, what happened, every real transition, the policy, a summary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from samba_rl.data import DataSet
from samba_rl.data.files import replacing
from samba_rl.policies import GaussianPolicy
from samba_rl.reports import Event, ImprovementReport, Notice, TrialReport
from samba_rl.runs.plain import from_plain, to_plain
from samba_rl.types import UserError, did_you_mean

CONFIG, METRICS, DATA, POLICY, SUMMARY = "config.json", "metrics.jsonl", "real.csv", "policy.npz", "summary.json"
KINDS: dict[str, type[TrialReport] | type[ImprovementReport] | type[Notice]] = {
    "trial": TrialReport,
    "improvement": ImprovementReport,
    "notice": Notice,
}
"""What the rows of metrics.jsonl are."""
_NAMES = {kind: name for name, kind in KINDS.items()}


@final
class FolderWriter:
    """Writes a run down as it goes: give it every event, and at the end the policy and the summary."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Take the folder for a run of this configuration; one that holds a run already is refused."""
        self.folder = folder
        for name in (METRICS, DATA, POLICY, SUMMARY):
            if (folder / name).exists():
                raise _taken(folder)
        self._made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                # Created here and nowhere else: of two runs that want the folder, one gets it.
                with open(folder / CONFIG, "x", encoding="utf-8") as file:
                    file.write(json.dumps(to_plain(dict(config)), indent=2, ensure_ascii=False) + "\n")
            except FileExistsError as error:
                raise _taken(folder) from error

    def __call__(self, event: Event, data: DataSet) -> None:
        """Add an event to the metrics; after a trial, write all real transitions anew."""
        row = {"kind": _NAMES[type(event)], **to_plain(event)}
        with _writing(self.folder):
            with open(self.folder / METRICS, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            if isinstance(event, TrialReport):
                data.to_csv(self.folder / DATA)

    def finish(self, policy: GaussianPolicy, summary: Mapping[str, Any]) -> None:
        """Write what the run ended with; the summary comes last, so that a run that has one is whole."""
        with _writing(self.folder):
            with replacing(self.folder / POLICY) as file:
                np.savez(file, **{name: value.numpy() for name, value in policy.state_dict().items()})
            write_json(self.folder / SUMMARY, summary)

    def discard(self) -> None:
        """Leave everything as it was, where nothing real has happened yet."""
        for name in (CONFIG, METRICS):
            (self.folder / name).unlink(missing_ok=True)
        for folder in self._made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _taken(folder: Path) -> UserError:
    return UserError(f"{folder} holds a run already; give another folder, or remove that one first")


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or folder}: {error.strerror}; give a folder that can be written to"
        ) from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    with _writing(path.parent), replacing(path) as file:
        file.write((json.dumps(to_plain(dict(value)), indent=2, ensure_ascii=False) + "\n").encode())


# Reading --------------------------------------------------------------------------------------------------------------


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


def read_events(path: Path) -> list[Event]:
    """What happened in the run, in order."""
    if not path.is_file():
        raise _missing(path)
    events: list[Event] = []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"line {number}"
            row = json.loads(line)
            kind = row.pop("kind", None) if isinstance(row, dict) else None
            if kind not in KINDS:
                raise UserError(f"{where} is of the kind {kind!r}; {did_you_mean(str(kind), KINDS)}")
            events.append(from_plain(KINDS[kind], row, where))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    return events


def read_data(path: Path) -> DataSet:
    """Every real transition of the run."""
    if not path.is_file():
        raise _missing(path)
    return DataSet.from_csv(path)


def read_policy(path: Path, policy: GaussianPolicy) -> None:
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
    rescue = f"; what it measured can be taken along: --data {folder / DATA}" if (folder / DATA).is_file() else ""
    return UserError(f"{path} is missing: the run did not finish, or was copied in part. Run it again{rescue}")


def _damaged(path: Path, why: object) -> UserError:
    return UserError(f"{path} is damaged ({why}); copy the run's folder again from where it was made, or run it again")
