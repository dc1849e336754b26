"""What the formats of files share: the packages that they need, and files that are written whole or not at all."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from samba_rl.types import UserError

FilePath: TypeAlias = "str | os.PathLike[str]"


def needed(module: str, package: str, what: str) -> Any:
    """The module, which the package brings and `what` cannot do without."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{what} needs the package '{package}'; install it with: pip install 'samba-rl[data]'"
        ) from error


@contextmanager
def replacing(path: FilePath) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` once it is whole and on the disk; until then the old one stays."""
    target = Path(path).resolve()
    if target.is_dir() or not target.parent.is_dir():
        raise UserError(f"'{path}' cannot be written; give the name of a file in a folder that exists")
    temporary = target.with_name(f".samba-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
