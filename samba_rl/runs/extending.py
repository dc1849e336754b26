"""Going on with a finished run: the larger budgets that it was given, in a file beside its configuration."""

from __future__ import annotations

import os
from pathlib import Path

from samba_rl.data.files import disk_error, sync_folder
from samba_rl.data.plain import from_plain
from samba_rl.errors import UserError
from samba_rl.runs.checkpoints import latest, signed
from samba_rl.runs.commands import next_command
from samba_rl.runs.folder import EVALUATION, EXTENDED, POLICY, SUMMARY, read_json, write_json
from samba_rl.runs.lock import Lock
from samba_rl.runs.manifest import MANIFEST, check_whole


def budgets_in(folder: Path) -> tuple[int, ...]:
    """Return the budgets that a run was given after its first, in order; raise a `UserError` if they were altered."""
    path = folder / EXTENDED
    if not os.path.lexists(path):
        return ()
    content = read_json(path)
    found: tuple[int, ...] = from_plain(tuple[int, ...], content.get("budgets"), f"{path}: budgets")
    if content != signed(content) or not found:
        raise UserError(f"{path} was altered; restore it from a copy")
    return found


def extend(folder: Path, first: int, real_samples: int) -> None:
    """Let a finished run go on to a larger budget; its results so far are kept under names that end in the old one.

    `first` is the budget with which the run was begun. An interrupted extension is completed by the same call.
    """
    before = (first, *budgets_in(folder))
    finished = (folder / SUMMARY).exists()
    if before[-1] == real_samples and not finished and len(before) > 1:
        return  # it is under way
    if not finished:
        raise UserError(f"{folder} is not finished; first let it end: {next_command(folder)}")
    old = before[-1]
    if real_samples < old or (real_samples == old and len(before) == 1):
        raise UserError(f"real_samples = {real_samples}; {folder} has spent {old}, so give more")
    if real_samples == old and _aside(folder / SUMMARY, before[-2]).exists():
        return  # and it has ended again
    if real_samples == old:
        old = before[-2]  # killed after the first step below
    else:
        check_whole(folder)
        if latest(folder) is None:
            raise UserError(f"{folder} has no checkpoint to go on from; start a new run with its measurements (--data)")
    lock = Lock(folder)
    try:
        if real_samples > before[-1]:
            write_json(folder / EXTENDED, signed({"budgets": [*before[1:], real_samples]}))
        for name in (POLICY, EVALUATION):
            if (folder / name).exists() and not _aside(folder / name, old).exists():
                os.link(folder / name, _aside(folder / name, old))
        # Without a summary, a run is not finished.
        os.replace(folder / SUMMARY, _aside(folder / SUMMARY, old))
        for name in (MANIFEST, EVALUATION):
            (folder / name).unlink(missing_ok=True)
        sync_folder(folder)
    except OSError as error:
        raise disk_error(error.filename or folder, error) from error
    finally:
        lock.release()


def _aside(path: Path, samples: int) -> Path:
    """Return the name of a result that more samples will replace."""
    return path.with_name(f"{path.stem}-{samples}{path.suffix}")
