"""Checking whether a run is whole, and rebuilding damaged files from its journal and its checkpoints."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from samba_rl.data import DataSet
from samba_rl.data.files import TEXT_LIMIT, check_regular, disk_error, read_own
from samba_rl.data.journal import Journal
from samba_rl.data.tables import append_csv
from samba_rl.errors import UserError
from samba_rl.events import Log
from samba_rl.runs import checkpoints
from samba_rl.runs.extending import budgets_in
from samba_rl.runs.folder import (
    CONFIG,
    DATA,
    EVALUATION,
    EXTENDED,
    JOURNAL,
    METRICS,
    MODEL,
    NEXT,
    POLICY,
    SUMMARY,
    read_config,
    read_events,
    read_json,
    read_next,
    read_state,
)
from samba_rl.runs.loading import data_of, run_in
from samba_rl.runs.lock import Lock, held
from samba_rl.runs.manifest import MANIFEST, check_whole, is_sealed, problems
from samba_rl.runs.training import resume
from samba_rl.tasks.task import Task

SOURCES = (CONFIG, JOURNAL)
"""Files from which everything else follows, and which nothing can replace."""
RESULTS = (METRICS, MODEL, POLICY, SUMMARY, MANIFEST)
"""Files that the learner writes again when it repeats its computation."""
DAMAGED = ".damaged"
"""Ending of the names of damaged files that a repair has set aside."""


@dataclass(frozen=True)
class Finding:
    """The state of one file of a run."""

    file: str
    """Name of the file."""
    state: Literal["whole", "damaged", "unchecked"]
    """Whether it is as it was written; unchecked: it can be read, but there is no checksum to compare it with."""
    why: str = ""
    """Description of the damage; empty if there is none."""
    remedy: str = ""
    """Way to mend it."""


@dataclass(frozen=True)
class Verdict:
    """The result of checking a run."""

    folder: str
    """Folder of the run."""
    state: Literal["finished", "interrupted", "running"]
    """State of the run."""
    findings: tuple[Finding, ...]
    """State of each file."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""

    @property
    def damaged(self) -> tuple[Finding, ...]:
        """Return the damaged files."""
        return tuple(one for one in self.findings if one.state == "damaged")


def verify(folder: Path) -> Verdict:
    """Check every file of a run without changing anything."""
    if held(folder):
        return Verdict(str(folder), "running", (), ("a process is writing to it; verify it afterwards",))
    if not os.path.lexists(folder / CONFIG) and not os.path.lexists(folder / JOURNAL):
        raise UserError(f"{folder} holds no run: it has no {CONFIG}; give a folder that `train` wrote")
    finished = any(os.path.lexists(folder / name) for name in (SUMMARY, MANIFEST))
    broken, notes = _sources(folder), []
    names: tuple[str, ...] = SOURCES
    if finished:
        names = (*SOURCES, METRICS, DATA, MODEL, POLICY, SUMMARY)
        if os.path.lexists(folder / EVALUATION):
            names = (*names, EVALUATION)
        sealed = os.path.lexists(folder / MANIFEST) or is_sealed(folder)
        if sealed:
            names = (*names, MANIFEST)
            broken = {**problems(folder), **broken}
        else:
            notes.append("written by an earlier version, without a manifest: what can be read is not compared with it")
            broken = {**_unreadable(folder), **broken}
    else:
        sealed = False
        broken = {**_prefix(folder), **broken}
        names = (*SOURCES, METRICS)
    lost = [name for name in SOURCES if name in broken]
    findings = []
    for name in names:
        if name not in broken:
            findings.append(Finding(name, "whole" if sealed or name == JOURNAL else "unchecked"))
        else:
            findings.append(Finding(name, "damaged", broken[name], _remedy(folder, name, lost)))
    findings += _beside(folder)
    saved = _checkpoints(folder)
    return Verdict(str(folder), "finished" if finished else "interrupted", (*findings, *saved), tuple(notes))


def repair(folder: Path, task: Task | None = None, *, log: Log | None = None) -> Verdict:
    """Rebuild what can be rebuilt, and return the verdict afterwards; the real system is not used.

    Damaged files are set aside, not removed. Results are computed again from the journal, and from the last sound
    checkpoint if there is one.
    """
    before = verify(folder)
    broken = {one.file for one in before.damaged}
    if before.state == "running" or not broken:
        return before
    for name in (*SOURCES, EXTENDED):
        if name in broken:
            found = next(one for one in before.damaged if one.file == name)
            raise UserError(f"{folder / name} {found.why}; {found.remedy}")
    system, _ = run_in(folder, task)
    lock = Lock(folder)
    try:
        repeat = before.state == "finished" and bool(broken & set(RESULTS))
        if METRICS in broken and not _prefix(folder):
            # The rows before the checkpoint are whole; those after it are written again.
            broken.remove(METRICS)
        elif METRICS in broken:
            # Without them, the run is computed from its beginning.
            checkpoints.remove_all(folder)
        for name in broken:
            if os.path.lexists(folder / name):
                os.replace(folder / name, folder / f"{name}{DAMAGED}")
        (folder / METRICS).touch()
        if repeat:
            for name in (SUMMARY, MANIFEST):
                (folder / name).unlink(missing_ok=True)
        elif DATA in broken:
            _write_data(folder, system)
    except OSError as error:
        raise disk_error(error.filename or folder, error) from error
    finally:
        lock.release()
    if repeat:
        resume(folder, system, log=log, measure=False)
    return verify(folder)


# Checks ---------------------------------------------------------------------------------------------------------------


def _sources(folder: Path) -> dict[str, str]:
    """Return what is wrong with the configuration and the journal, by themselves and compared with a checkpoint."""
    found = _failing(folder, {CONFIG: lambda: read_config(folder), JOURNAL: lambda: Journal.read(folder / JOURNAL)})
    try:
        saved = checkpoints.read_checkpoint(folder)[0]
    except UserError:
        saved = None
    if saved is None:
        return found
    trials = saved.about.get("trials")
    if CONFIG not in found and _digest(folder / CONFIG) != saved.about.get("config"):
        found[CONFIG] = "was altered since the last checkpoint"
    if JOURNAL not in found:
        journal = Journal.read(folder / JOURNAL)
        if not isinstance(trials, int) or not 0 <= trials <= len(journal):
            found[JOURNAL] = f"has {len(journal)} records; the last checkpoint knows {trials}"
        elif journal.digest_of(trials) != saved.about.get("journal"):
            found[JOURNAL] = "is not the journal that the last checkpoint knows"
    return found


def _prefix(folder: Path) -> dict[str, str]:
    """Return whether the metrics of an interrupted run begin as the last checkpoint says."""
    try:
        saved = checkpoints.read_checkpoint(folder)[0]
    except UserError:
        return {}
    if saved is None:
        return {}
    try:
        kept = read_own(folder / METRICS, TEXT_LIMIT)[: int(saved.about["metrics_bytes"])]
    except OSError as error:
        return {METRICS: f"cannot be read: {error.strerror}"}
    same = hashlib.sha256(kept).hexdigest() == saved.about.get("metrics")
    return {} if same else {METRICS: "was altered since the last checkpoint"}


def _unreadable(folder: Path) -> dict[str, str]:
    """Return the results of a finished run without a manifest that cannot be read."""
    checks: dict[str, Callable[[], object]] = {
        METRICS: lambda: read_events(folder / METRICS),
        SUMMARY: lambda: read_json(folder / SUMMARY),
        POLICY: lambda: check_regular(folder / POLICY),
        DATA: lambda: DataSet.from_csv(folder / DATA),
    }
    if os.path.lexists(folder / MODEL):
        checks[MODEL] = lambda: read_state(folder / MODEL)
    if os.path.lexists(folder / EVALUATION):
        checks[EVALUATION] = lambda: read_json(folder / EVALUATION)
    return _failing(folder, checks)


def _beside(folder: Path) -> list[Finding]:
    """Return the state of the files that only some runs have."""
    checks: dict[str, tuple[Callable[[Path], object], str]] = {
        NEXT: (read_next, "--repair sets it aside; samba-rl ask makes it again"),
        EXTENDED: (budgets_in, "copy it again from its source"),
    }
    found = []
    for name, (check, remedy) in checks.items():
        if os.path.lexists(folder / name):
            wrong = _failing(folder, {name: partial(check, folder)}).get(name)
            found.append(Finding(name, "damaged", wrong, remedy) if wrong else Finding(name, "whole"))
    return found


def _failing(folder: Path, checks: dict[str, Callable[[], object]]) -> dict[str, str]:
    found = {}
    for name, check in checks.items():
        try:
            check()
        except (UserError, OSError) as error:
            found[name] = str(error).removeprefix(f"{folder / name} ").split("; ")[0]
    return found


def _checkpoints(folder: Path) -> tuple[Finding, ...]:
    """Return what is known about the checkpoints."""
    try:
        saved, wrong = checkpoints.read_checkpoint(folder)
    except UserError as error:
        return (Finding(checkpoints.FOLDER, "unchecked", str(error)),)
    whole = () if saved is None else (Finding(f"{checkpoints.FOLDER}/{saved.path.name}", "whole"),)
    remedy = "the one before it is used" if saved else "the run is recomputed from its real trials"
    return (*whole, *(Finding(checkpoints.FOLDER, "unchecked", one, remedy) for one in wrong))


def _remedy(folder: Path, name: str, lost: list[str]) -> str:
    """Return what can be done about a damaged file."""
    if name == JOURNAL:
        return f"copy it again from its source, or start a new run from the measured data: --data {folder / DATA}"
    if name == CONFIG:
        return "copy it again from its source"
    if lost:
        return f"it cannot be rebuilt without a whole {lost[0]}"
    if name == DATA:
        return "--repair writes it again from the journal"
    if name == EVALUATION:
        return "--repair sets it aside; samba-rl resume evaluates again"
    return "--repair computes it again from the journal and the last sound checkpoint"


def _digest(path: Path) -> str:
    return hashlib.sha256(read_own(path, TEXT_LIMIT)).hexdigest()


def _write_data(folder: Path, task: Task) -> None:
    """Write the table of real steps again from the journal."""
    data = data_of(folder, task)
    append_csv(folder / DATA, data.schema, data.transitions, anew=True)
    check_whole(folder)
