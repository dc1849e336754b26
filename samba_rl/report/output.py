"""Writing figures and films to files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from samba_rl.data.files import replacing
from samba_rl.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Create the folder of a file that is written inside the context, and name the file if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def save_figure(figure: Figure, path: Path, dpi: int | None = None) -> None:
    """Write a figure as PNG or PDF, by the suffix; `dpi` overrides the resolution of the figure.

    No date is written, so that the same figure gives the same file.
    """
    pdf = path.suffix.lower() == ".pdf"
    metadata = {"CreationDate": None} if pdf else None
    with writing(path), replacing(path, own=True) as file:
        figure.savefig(file, dpi="figure" if dpi is None else dpi, metadata=metadata, format=path.suffix[1:].lower())
