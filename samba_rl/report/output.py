"""Writing figures and films to files."""

from __future__ import annotations

import io
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
    """Write a figure as PNG, PDF or SVG, by the suffix; `dpi` overrides the resolution of the figure.

    No date is written, so that the same figure gives the same file.
    """
    with writing(path), replacing(path, own=True) as file:
        file.write(figure_bytes(figure, path.suffix[1:].lower(), dpi))


def figure_bytes(figure: Figure, form: str, dpi: int | None = None) -> bytes:
    """Return a figure as the content of a file: png, pdf or svg."""
    from matplotlib import rc_context

    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(form)
    content = io.BytesIO()
    # The salt makes the names inside an SVG the same every time.
    with rc_context({"svg.hashsalt": "samba_rl"}):
        figure.savefig(content, dpi="figure" if dpi is None else dpi, metadata=undated, format=form)
    return content.getvalue()
