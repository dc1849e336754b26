"""Checkpoints: folders with a manifest of format, parts and checksums. The last two are kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samba_rl import __version__
from samba_rl.data.files import (
    JSON_LIMIT,
    STATE_LIMIT,
    disk_error,
    open_own,
    read_own,
    reading_own,
    sync_folder,
    write_all,
)
from samba_rl.data.packing import pack, unpack
from samba_rl.errors import UserError
from samba_rl.types import State

FORMAT = 2
"""Version of the format of checkpoints."""
FOLDER, MANIFEST, PART = "checkpoints", "manifest.json", ".state"
KEPT = 2
"""Number of checkpoints that are kept."""
_PART = re.compile(r"\w[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run, read from disk and verified."""

    path: Path
    """Folder of the checkpoint."""
    about: dict[str, Any]
    """Content of the manifest, without its list of parts."""
    state: State
    """State of each part, by name."""


def write_checkpoint(home: Path, state: State, about: dict[str, Any]) -> Path:
    """Write each entry of the state as a part, all or nothing; then remove all but the last two checkpoints."""
    folder = home / FOLDER
    draft = folder / ".draft"
    target = folder
    try:
        if not _is_real(folder):
            folder.mkdir()
            sync_folder(home)
        number = max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=0) + 1
        target = folder / f"{number:06d}"
        _remove_draft(draft)
        draft.mkdir()
        parts = {}
        for name, value in state.items():
            packed = pack(value)
            file = f"{name}{PART}"
            _write(draft / file, packed)
            parts[file] = {"bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
        manifest = signed({"format": FORMAT, "samba_rl": __version__, **about, "parts": parts})
        _write(draft / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
        sync_folder(draft)
        os.rename(draft, target)
        sync_folder(folder)
        for old in _numbers(folder)[:-KEPT]:
            _remove(folder / f"{old:06d}")
    except OSError as error:
        raise disk_error(error.filename or target, error) from error
    return target


def read_checkpoint(home: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the last sound checkpoint (None if there is none) and the problems with later ones."""
    problems: list[str] = []
    folder = home / FOLDER
    # Something else in the place of a checkpoint is a problem with it.
    for number in reversed(_numbers(folder, files=True)):
        try:
            return _read(folder / f"{number:06d}"), problems
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            problems.append(str(error))
    return None, problems


def _read(path: Path) -> Checkpoint:
    """Read a checkpoint; raise a ValueError that names the file if it is damaged."""
    if path.is_symlink():
        raise ValueError(f"{path} is a symbolic link")
    manifest = read_manifest(path)
    state: State = {}
    for name, about in manifest.pop("parts").items():
        file = path / name
        try:
            with reading_own(file) as opened:
                size = os.fstat(opened.fileno()).st_size
                packed = opened.read(size if size == about["bytes"] <= STATE_LIMIT else 0)
        except FileNotFoundError as error:
            raise ValueError(f"{file} is missing") from error
        except OSError as error:
            raise ValueError(f"{file} cannot be read: {error.strerror}") from error
        if len(packed) != about["bytes"]:
            raise ValueError(f"{file} has {size} bytes instead of {about['bytes']}")
        if hashlib.sha256(packed).hexdigest() != about["sha256"]:
            raise ValueError(f"{file} was altered")
        try:
            state[file.stem] = unpack(packed)
        except ValueError as error:
            raise ValueError(f"{file} is damaged: {error}") from error
    return Checkpoint(path, manifest, state)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of a checkpoint.

    Raises a ValueError that names the file if it is damaged, and a `UserError` if it has another format.
    """
    file = path / MANIFEST
    try:
        manifest = json.loads(read_own(file, JSON_LIMIT))
        _check_not_newer(file, manifest)
        if manifest != signed(manifest):
            raise ValueError("its checksum does not match")
        _check_not_older(file, manifest)
        parts = {
            str(name): {"bytes": int(about["bytes"]), "sha256": str(about["sha256"])}
            for name, about in manifest["parts"].items()
        }
    except FileNotFoundError as error:
        raise ValueError(f"{file} is missing") from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise ValueError(f"{file} is damaged ({type(error).__name__}: {error})") from error
    if not all(_PART.fullmatch(name) for name in parts):
        raise ValueError(f"{file} names a part outside its folder")
    del manifest["sha256"]
    return {**manifest, "parts": parts}


def _check_not_newer(file: Path, manifest: dict[str, Any]) -> None:
    form = manifest["format"]
    if not isinstance(form, int) or form > FORMAT:
        raise UserError(
            f"{file} was written by a newer samba_rl ({manifest.get('samba_rl')}, format {form}; this version reads up "
            f"to {FORMAT}); install that version or a later one"
        )


def _check_not_older(file: Path, manifest: dict[str, Any]) -> None:
    if manifest["format"] < FORMAT:
        data = file.parents[2] / "real.csv"
        raise UserError(
            f"{file} was written by samba_rl {manifest.get('samba_rl')}, whose unfinished runs this version cannot "
            "continue; finish the run with that version, or start a new one with its measurements: "
            f"samba-rl train SYSTEM --data {data}"
        )


def signed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with a checksum of its other entries."""
    rest = {name: value for name, value in manifest.items() if name != "sha256"}
    return {**rest, "sha256": hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def remove_damaged(home: Path, sound: Checkpoint) -> None:
    """Remove the damaged checkpoints after a sound one, so that they do not count among those that are kept."""
    folder = home / FOLDER
    for number in _numbers(folder):
        if number > int(sound.path.name):
            _remove(folder / f"{number:06d}")


def latest(home: Path) -> Path | None:
    """Return the folder of the last checkpoint, sound or not; None if there is none."""
    numbers = _numbers(home / FOLDER, files=True)
    return home / FOLDER / f"{numbers[-1]:06d}" if numbers else None


def _numbers(folder: Path, *, files: bool = False) -> list[int]:
    """Return the numbers of the checkpoints in a folder, in order, and perhaps of `files` that are named like one.

    Whatever else is there belongs to others.
    """
    if not _is_real(folder):
        return []
    named = [path for path in folder.iterdir() if path.name.isdecimal() and path.name == f"{int(path.name):06d}"]
    return sorted(int(path.name) for path in named if _is_checkpoint(path) or (files and not _is_real(path)))


def _is_checkpoint(path: Path) -> bool:
    """Return whether a folder has the content of a checkpoint, perhaps a damaged one."""
    if not _is_real(path):
        return False
    names = [each.name for each in path.iterdir()]
    return not names or any(name == MANIFEST or name.endswith(PART) for name in names)


def _is_real(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


def _write(path: Path, data: bytes) -> None:
    file = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def _remove(folder: Path) -> None:
    """Remove the files of a checkpoint, and its folder if nothing else is in it."""
    if not _is_real(folder):
        return
    # The manifest first: if the program is killed here, the rest does not look like a checkpoint.
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in [each for each in folder.iterdir() if each.name.endswith(PART)]:
        path.unlink()
    _remove_empty(folder)


def remove_all(home: Path) -> None:
    """Remove the checkpoints of a run, and their folder if nothing else is in it."""
    folder = home / FOLDER
    for number in _numbers(folder):
        _remove(folder / f"{number:06d}")
    if _is_real(folder):
        _remove_draft(folder / ".draft")
        _remove_empty(folder)


def _remove_draft(draft: Path) -> None:
    if _is_real(draft):
        shutil.rmtree(draft)
    elif draft.is_symlink():
        draft.unlink()


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
