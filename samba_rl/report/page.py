"""A page that carries everything it needs: tables, pictures with zoom and hover, clips. What is on it is plain data."""

from __future__ import annotations

import base64
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samba_rl.errors import UserError
from samba_rl.report import film as films
from samba_rl.report.interactive import Plot

if TYPE_CHECKING:
    from samba_rl.report.film import Frame

TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Clip:
    """A moving picture."""

    kind: str
    """Its media type."""
    data: bytes

    @property
    def base64(self) -> str:
        """As it stands in the page."""
        return base64.b64encode(self.data).decode("ascii")


@dataclass(frozen=True)
class PageTable:
    """A table that is written already."""

    title: str
    caption: str
    html: str
    """Taken as it is: whoever writes it escapes what is in it."""


@dataclass(frozen=True)
class Card:
    """A policy."""

    title: str
    facts: Sequence[tuple[str, str]]
    clip: Clip | None = None
    no_clip: str = ""
    """Why there is none."""
    notices: Sequence[str] = ()
    settings: Sequence[tuple[str, str]] = ()
    changed: Sequence[str] = ()
    """Names of settings to point out."""


@dataclass(frozen=True)
class Page:
    """All that is on a page."""

    title: str
    lead: str
    columns: Sequence[tuple[str, bool]]
    """Of the table of runs; whether they hold numbers."""
    rows: Sequence[Sequence[str]]
    legend: str
    """What the columns mean."""
    tables: Sequence[PageTable]
    plots: Sequence[Plot]
    cards: Sequence[Card]
    packages: Sequence[str]
    versions: Sequence[tuple[str, Sequence[str]]]
    """How many runs had the same versions, and these, by package."""
    made_by: str


def clip(frames: list[Frame], seconds: float) -> Clip:
    """Frames that are shown for `seconds` each, as a film that fits into a page; as a GIF where there is no encoder."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix, kind in ((".mp4", "video/mp4"), (".gif", "image/gif")):
            path = Path(folder) / f"clip{suffix}"
            try:
                films.save_film(frames, path, seconds)
            except UserError:
                if suffix == ".gif":
                    raise
                continue
            return Clip(kind, path.read_bytes())
    raise AssertionError("unreachable")


def to_html(page: Page) -> str:
    """The page; every text on it is escaped."""
    try:
        from jinja2 import Environment, StrictUndefined
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UserError(
            f"a report needs the package '{error.name}'; install it with: pip install 'samba-rl[report]'"
        ) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    plots = [{**vars(plot), "json": _json(plot)} for plot in page.plots]
    return template.render(page={**vars(page), "plots": plots}, plotly=get_plotlyjs() if plots else "")


def _json(plot: Plot) -> str:
    """What Plotly draws, as JSON that cannot end the element that it stands in."""
    text = json.dumps(_finite({"data": list(plot.data), "layout": plot.layout}), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(value: Any) -> Any:
    """With gaps where numbers are not finite: JSON has none of those."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
