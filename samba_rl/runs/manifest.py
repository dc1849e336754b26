"""The manifest of a finished run: the SHA-256 of each of its files, checked by whatever reads the run."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from samba_rl import __version__
from samba_rl.data.files import JSON_LIMIT, flush_file, read_own, reading_own
from samba_rl.errors import UserError
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.folder import (
    CONFIG,
    DATA,
    EVALUATION,
    JOURNAL,
    METRICS,
    MODEL,
    POLICY,
    SUMMARY,
    read_json,
    write_json,
    writing,
)

MANIFEST, SEALED = "manifest.json", "manifest"
"""Name of the file, and the entry of config.json which says that the run has one when it is finished."""
FORMAT = 1
FILES = (CONFIG, JOURNAL, METRICS, DATA, MODEL, POLICY, SUMMARY)
"""Files that a manifest lists. The evaluation comes later, and has a checksum of its own."""


def seal(folder: Path, summary: bytes) -> None:
    """Flush the files of a run and write its manifest; the summary, by which a run is finished, is written last."""
    files = {}
    for name in FILES:
        if name == SUMMARY:
            files[name] = _entry(len(summary), hashlib.sha256(summary).hexdigest())
        else:
            with writing(folder / name):
                flush_file(folder / name)
                files[name] = _entry(*_checksum(folder / name))
    write_json(folder / MANIFEST, signed({"format": FORMAT, "samba_rl": __version__, "files": files}))


def read_manifest(folder: Path) -> dict[str, object]:
    """Read the manifest of a run; raise a `UserError` if it is damaged."""
    path = folder / MANIFEST
    manifest = read_json(path)
    form, files = manifest.get("format"), manifest.get("files")
    if not isinstance(form, int) or form > FORMAT:
        raise UserError(f"{path} was written by a newer samba_rl (format {form}); install that version or a later one")
    sound = isinstance(files, dict) and all(isinstance(entry, dict) for entry in files.values())
    if not sound or manifest != signed(manifest) or not {CONFIG, JOURNAL, METRICS, POLICY, SUMMARY} <= set(files or ()):
        raise UserError(f"{path} is damaged (its checksum does not match)")
    return manifest


def problems(folder: Path) -> dict[str, str]:
    """Return what is wrong with the files of a finished run, by name; empty if they are as the manifest says.

    Runs of earlier versions, whose config.json does not promise a manifest, have none.
    """
    if not os.path.lexists(folder / MANIFEST):
        return {MANIFEST: "is missing"} if is_sealed(folder) else {}
    try:
        files = read_manifest(folder)["files"]
    except UserError as error:
        return {MANIFEST: str(error).removeprefix(f"{folder / MANIFEST} ")}
    assert isinstance(files, dict)
    found = {}
    for name in FILES:
        why = _problem(folder / name, files.get(name))
        if why:
            found[name] = why
    if os.path.lexists(folder / EVALUATION):
        try:
            evaluation = read_json(folder / EVALUATION)
            if evaluation != signed(evaluation):
                found[EVALUATION] = "was altered since it was written"
        except UserError as error:
            found[EVALUATION] = str(error).removeprefix(f"{folder / EVALUATION} ")
    return found


def check_whole(folder: Path) -> None:
    """Raise a `UserError` unless the files of a finished run are as its manifest says."""
    for name, why in problems(folder).items():
        raise UserError(f"{folder / name} {why}; see what can be rebuilt with: samba-rl verify {folder}")


def is_sealed(folder: Path) -> bool:
    """Return whether the configuration of a run says that it has a manifest when it is finished."""
    try:
        return bool(json.loads(read_own(folder / CONFIG, JSON_LIMIT)).get(SEALED, False))
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _problem(path: Path, due: dict[str, object] | None) -> str:
    if due is None:
        return "is not in the manifest"
    try:
        with reading_own(path) as file:
            size = os.fstat(file.fileno()).st_size
        if size != due.get("bytes"):
            return f"has {size:,} bytes instead of {due.get('bytes')}"  # without reading what may be huge
        checksum = _checksum(path)[1]
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if checksum == due.get("sha256") else "was altered since the run ended"


def _checksum(path: Path) -> tuple[int, str]:
    """Return the size and the SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with reading_own(path) as file:
        while part := file.read(2**20):
            digest.update(part)
            size += len(part)
            if size > 2**36:
                raise OSError(22, f"it has more than {size:,} bytes")
    return size, digest.hexdigest()


def _entry(size: int, checksum: str) -> dict[str, object]:
    return {"bytes": size, "sha256": checksum}
