"""How every picture of a run looks: its colours, its panels, its legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart; lines differ in their dashes as well.
BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
INK = "#222B3A"
CYCLE = ((BLUE, "-"), (VERMILION, "--"), (GREEN, "-."), (PURPLE, ":"), (SKY, "-"), (ORANGE, "--"))
"""Colour and dashes, for as many lines as there are."""

WIDTH = 6.5
"""Of a picture [inches]: that of a printed page's text, so that letters keep their size there."""
FONT_SIZE = 9.5
"""[points]"""
DPI = 160


def new_figure(height: float, title: str) -> Figure:
    """An empty figure of `height` inches. It belongs to no window, and nothing outside it is changed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            f"pictures need the package '{error.name}'; install it with: pip install 'samba-rl[figures]'"
        ) from error
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")
    figure.suptitle(plain(title), fontsize=FONT_SIZE + 1.5)
    return figure


def new_panels(heights: Sequence[float], title: str) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each of the `heights` [inches], under each other, with one x axis for all."""
    figure = new_figure(sum(heights) + 0.7, title)
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights))
    panels: list[Axes] = list(grid[:, 0])
    for axes in panels:
        tidy(axes)
        axes.grid(linewidth=0.5, color="0.9")
    figure.align_ylabels(panels)
    return figure, panels


def tidy(axes: Axes) -> None:
    """Leave out the frame's upper and right side, and set the size of the numbers."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT_SIZE - 0.5)
    axes.set_axisbelow(True)


def name_axes(axes: Axes, *, x: str = "", y: str = "") -> None:
    """Write what the axes show, with the unit."""
    axes.set_xlabel(plain(x), fontsize=FONT_SIZE)
    axes.set_ylabel(plain(y), fontsize=FONT_SIZE)


def whole_numbers(axes: Axes) -> None:
    """Mark whole numbers only on the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def legend_above(
    axes: Axes, handles: Sequence[Artist] | None = None, *, columns: int = 4, handle_length: float = 2.2
) -> None:
    """A legend above the panel, where it covers no data; dashes need some length to be told apart."""
    entries = axes.get_legend_handles_labels()[0] if handles is None else list(handles)
    legend = axes.legend(
        handles=entries,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=min(columns, len(entries)),
        fontsize=FONT_SIZE - 0.5,
        frameon=False,
        borderaxespad=0.2,
        labelspacing=0.2,
        handlelength=handle_length,
        handletextpad=0.6,
        columnspacing=1.2,
    )
    # The layout would make the panel narrower for a wide legend. So it does not see the legend, but an empty title that
    # keeps as many lines free.
    legend.set_in_layout(False)
    lines = -(-len(entries) // columns) + max(str(entry.get_label()).count("\n") for entry in entries)
    axes.set_title("\n".join(" " * lines), fontsize=FONT_SIZE)


def plain(text: str) -> str:
    """Text in which a user's dollar sign is one, and does not begin a formula."""
    return text.replace("$", r"\$")
