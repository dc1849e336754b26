"""The files of a run's folder: their names, and how they are read."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samba_rl.agents.agent import Learned
from samba_rl.data.files import JSON_LIMIT, STATE_LIMIT, TEXT_LIMIT, disk_error, read_own, replacing
from samba_rl.data.packing import unpack
from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError, did_you_mean
from samba_rl.events import Event, ImprovementReport, LatentReport, Notice, TrialReport
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.commands import next_command
from samba_rl.types import State

FORMAT = 2
"""Version of the format of config.json."""
CONFIG, METRICS, DATA, POLICY, SUMMARY = "config.json", "metrics.jsonl", "real.csv", "policy.npz", "summary.json"
JOURNAL, STEPS = "real.journal", "real.steps"
MODEL, EVALUATION = "model.state", "evaluation.json"
EARLIER_DATA = "earlier.json"
NEXT = "next.json"
"""The trial that a run waits for: its number, its policy, and what is expected of it."""
REPORT = "report.html"
"""The page of a run for people. Like its pictures it is no result, so the manifest does not list it."""
EXTENDED = "extended.json"
"""Budgets that a run was given after it had ended with a smaller one."""
TRIALS = "trials"
"""Folder of the files that go to a rig and come back from it."""
OWN = re.compile(
    r"(config|summary|evaluation|manifest|certificate|earlier|extended|next)(-\d+)?\.json|metrics\.jsonl|real\..*"
    r"|policy(-\d+)?\.npz|model\.state|\.lock|events\.out\..*"
)
"""Names of the files of a run, except for those in its folders; nothing else may be written in their place."""
KINDS: dict[str, type[Event]] = {
    "trial": TrialReport,
    "improvement": ImprovementReport,
    "latent": LatentReport,
    "notice": Notice,
}
"""Kinds of rows in metrics.jsonl."""


RUNS = "runs"
"""Folder, in the current one, of the runs that were given no folder."""


class Default(Enum):
    """The default of `train(out=...)`, which is not None: that means that nothing is written."""

    FOLDER = f"{RUNS}/SYSTEM-LEARNER-SEED"


def free_folder(task: str, learner: str, seed: int) -> Path:
    """Return runs/SYSTEM-LEARNER-SEED, with a number appended if that is taken."""
    name = re.sub(r"[^\w.-]+", "-", f"{task}-{learner}-{seed}")
    folder, number = Path(RUNS) / name, 2
    while folder.exists():
        folder, number = Path(RUNS) / f"{name}-{number}", number + 1
    return folder


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` inside the context into a `DiskError` that names the file."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file, completely or not at all."""
    write_whole(path, json_bytes(value))


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return the content of a JSON file."""
    text = json.dumps(to_plain(dict(value)), indent=2, ensure_ascii=False) + "\n"
    # A lone surrogate, which may be in a title, has no place in UTF-8.
    return text.encode(errors="backslashreplace")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of a run's folder, completely or not at all."""
    with writing(path), replacing(path, own=True) as file:
        file.write(content)


def check_not_own(path: Path, folder: Path) -> None:
    """Raise a `UserError` if a file to be written, named by the user, is one of a run's own."""
    if path.resolve().parent == folder.resolve() and OWN.fullmatch(path.name):
        raise UserError(f"{path} is a file of the run itself; give another name or folder")


def read_next(folder: Path) -> dict[str, Any]:
    """Read the trial that a run waits for; empty if none was asked for yet."""
    path = folder / NEXT
    if not os.path.lexists(path):
        return {}
    try:
        content = json.loads(read_own(path, JSON_LIMIT))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}); remove it, and ask again") from error
    if not isinstance(content, dict) or type(content.get("trial")) is not int:
        raise UserError(f"{path} is damaged (it names no trial); remove it, and ask again")
    if content != signed(content):
        raise UserError(f"{path} is damaged (it is not as it was written); remove it, and ask again")
    return content


def write_next(folder: Path, content: Mapping[str, object]) -> None:
    """Write the trial that a run waits for, with a checksum: a rig acts on the policy in it."""
    write_json(folder / NEXT, signed(to_plain(dict(content))))


def begun(folder: Path) -> int:
    """Return the number of the latest trial for which the improvement of the policy has begun; -1 if there is none."""
    return int(read_next(folder).get("trial", -1))


def read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration of the run in a folder."""
    config = read_json(folder / CONFIG)
    form = config.get("format", 1)
    if not isinstance(form, int) or form > FORMAT:
        raise UserError(
            f"{folder / CONFIG} was written by a newer samba_rl (format {form}; this version reads up to {FORMAT}); "
            "install that version or a later one"
        )
    return config


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run's folder."""
    _check_exists(path)
    try:
        value = json.loads(read_own(path, JSON_LIMIT))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(value, dict):
        raise _damaged(path, f"it holds a {type(value).__name__}, not an object")
    return value


def read_events(path: Path, size: int | None = None) -> list[Event]:
    """Read the events of a run in order; with `size`, only those in the first `size` bytes of the file."""
    _check_exists(path)
    events: list[Event] = []
    try:
        *lines, last = read_own(path, TEXT_LIMIT)[:size].decode().split("\n")
        if last:
            raise UserError("its last line is incomplete")
        for number, line in enumerate(lines, 1):
            where = f"line {number}"
            row = json.loads(line)
            kind = row.pop("kind", None) if isinstance(row, dict) else None
            if kind not in KINDS:
                raise UserError(f"{where} is of unknown kind {kind!r}; {did_you_mean(str(kind), KINDS)}")
            events.append(from_plain(KINDS[kind], row, where))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    return events


def read_state(path: Path) -> State:
    """Read a file that holds the state of something."""
    _check_exists(path)
    try:
        return unpack(read_own(path, STATE_LIMIT))
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def read_policy(path: Path, policy: Learned) -> None:
    """Load the parameters in a file into a policy."""
    _check_exists(path)
    wanted = policy.state_dict()
    try:
        packed = read_own(path, _most(wanted))
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            # Compressed entries, which no run has, could be far larger than the file.
            if any(entry.file_size != entry.compress_size for entry in archive.infolist()):
                raise UserError("its entries are compressed")
        # Without pickle, so that a file from elsewhere can only hold numbers.
        with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
            state = {name: torch.from_numpy(np.array(arrays[name])) for name in arrays.files}
    except Exception as error:
        # NumPy and zipfile raise a dozen kinds of errors for a file that is not an archive of arrays.
        raise _damaged(path, error) from error
    if state.keys() != wanted.keys():
        raise _damaged(path, f"it has {', '.join(sorted(state)) or 'nothing'}; expected {', '.join(sorted(wanted))}")
    for name, value in state.items():
        like = wanted[name]
        if value.shape != like.shape or value.dtype != like.dtype:
            found, due = f"{list(value.shape)} ({value.dtype})", f"{list(like.shape)} ({like.dtype})"
            raise _damaged(path, f"'{name}' is {found}; for this system and these settings it should be {due}")
        if not bool(value.isfinite().all()):
            raise _damaged(path, f"'{name}' contains NaN or infinity")
    policy.load_state_dict(state)


def _most(state: Mapping[str, Tensor]) -> int:
    """Return an upper bound of the size of the file of a policy."""
    return sum(value.nbytes + 2000 for value in state.values()) + 10_000


def _check_exists(path: Path) -> None:
    folder = path.parent
    if path.is_symlink() or path.exists():
        return
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} holds no run: it has no {CONFIG}; give a folder that `train` wrote")
    raise UserError(
        f"{path} is missing: the run did not finish, or was copied only in part. "
        f"Continue it with: {next_command(folder)}"
    )


def _damaged(path: Path, why: object) -> UserError:
    return UserError(
        f"{path} is damaged ({why}); copy the run's folder again from its source, or see what can be rebuilt with: "
        f"samba-rl verify {path.parent}"
    )
