"""A self-contained web page with tables, interactive figures and film clips, from plain data."""

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
from samba_rl.report.verdicts import Verdict

if TYPE_CHECKING:
    from samba_rl.report.film import Frame

TEMPLATE = Path(__file__).with_name("page.html")
SVG = "image/svg+xml"
"""Media type of figures."""


@dataclass(frozen=True)
class Media:
    """A film clip, or a figure that was drawn before."""

    kind: str
    """Media type, such as video/mp4."""
    data: bytes
    """Content of the file."""
    title: str = ""
    """Description of a figure; the card's title describes its clip."""

    @property
    def url(self) -> str:
        """Return the content as a data URL."""
        return f"data:{self.kind};base64,{base64.b64encode(self.data).decode('ascii')}"


class Broken(str):
    """Text of a cell that is shown in red."""

    is_red = True


@dataclass(frozen=True)
class PageTable:
    """A table that has been written as HTML."""

    title: str
    brief: str
    """Caption of one line."""
    caption: str
    """Whole caption, which is folded."""
    html: str
    """HTML that is inserted as it is; its writer escapes the texts in it."""


@dataclass(frozen=True)
class Card:
    """The presentation of a policy, or of policies that differ in their seeds alone."""

    title: str
    facts: Sequence[tuple[str, str]]
    """Names and values."""
    clip: Media | None = None
    no_clip: str = ""
    """Reason why there is no clip."""
    plot: Plot | None = None
    """Learning curve."""
    pictures: Sequence[Media] = ()
    """Figures; the first is the learning curve if there is no `plot`."""
    alarms: Sequence[str] = ()
    """Warnings that are shown in red."""
    notices: Sequence[str] = ()
    """Warnings that the run gave."""
    settings: Sequence[tuple[str, str]] = ()
    """Names and values of the settings."""
    changed: Sequence[str] = ()
    """Names of the settings that are highlighted."""


@dataclass(frozen=True)
class Page:
    """The content of a page, in the order in which it is shown."""

    title: str
    lead: str
    """Line below the title."""
    verdicts: Sequence[tuple[str, Sequence[Verdict]]]
    """Systems, each with the verdicts on its runs."""
    cards: Sequence[Card]
    """Policies with a film or a learning curve of their own."""
    others: Sequence[Card]
    """Policies of which only results are available; they are folded."""
    plots: Sequence[Plot]
    tables: Sequence[PageTable]
    columns: Sequence[tuple[str, bool]]
    """Headings of the table of runs, and whether a column holds numbers."""
    rows: Sequence[Sequence[str]]
    """Rows of the table of runs."""
    legend: str
    """Explanation of the columns."""
    packages: Sequence[str]
    """Names of the packages whose versions are listed."""
    versions: Sequence[tuple[str, Sequence[str]]]
    """Number of runs with the same versions, and the version of each package."""
    made_by: str
    """Version of samba_rl that made the page."""


def clip(frames: list[Frame], seconds: float) -> Media:
    """Return frames that are shown for `seconds` each as an MP4 clip, or as a GIF if there is no encoder."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix, kind in ((".mp4", "video/mp4"), (".gif", "image/gif")):
            path = Path(folder) / f"clip{suffix}"
            try:
                films.save_film(frames, path, seconds)
            except UserError:
                if suffix == ".gif":
                    raise
                continue
            return Media(kind, path.read_bytes())
    raise AssertionError("unreachable")


def to_html(page: Page) -> str:
    """Return a page as HTML, with every text escaped."""
    try:
        from jinja2 import Environment, StrictUndefined

        every = [*page.plots, *(card.plot for card in page.cards if card.plot is not None)]
        library = ""
        if every:
            from plotly.offline import get_plotlyjs

            library = get_plotlyjs()
    except ImportError as error:
        raise UserError(
            f"a report needs the package '{error.name}'; install it with: pip install 'samba-rl[report]'"
        ) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(page=page, plotly=library, json={plot.name: _json(plot) for plot in every})


def _json(plot: Plot) -> str:
    """Return a figure as JSON that cannot close the HTML element around it."""
    text = json.dumps(_finite({"data": list(plot.data), "layout": plot.layout}), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(value: Any) -> Any:
    """Return JSON data with null for numbers that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
