"""Common style of the figures: colours, panels, axes and legends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart; lines differ in their dashes as well.
BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
INK = "#222B3A"
CYCLE = ((BLUE, "-"), (VERMILION, "--"), (GREEN, "-."), (PURPLE, ":"), (SKY, "-"), (ORANGE, "--"))
"""Colours and dashes of successive lines."""

WIDTH = 6.5
"""Width of a figure [inches]: that of the text on a printed page, so that letters keep their size in print."""
FONT_SIZE = 9.5
"""Size of the text [points]."""
DPI = 160
"""Resolution of a figure [dots per inch]."""
PEAK = 4.0
"""A value is a peak that flattens the others if it is this many times as large as what is usual."""
MARKED = 40
"""Largest number of points that are drawn with markers; more markers would run into each other."""


def new_figure(height: float, title: str) -> Figure:
    """Return an empty figure of `height` inches, without a window and without any change of Matplotlib's state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            f"figures need the package '{error.name}'; install it with: pip install 'samba-rl[figures]'"
        ) from error
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")
    figure.suptitle(plain(title), fontsize=FONT_SIZE + 1.5)
    return figure


def new_panels(heights: Sequence[float], title: str) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels of these `heights` [inches] below each other, which share their x axis."""
    figure = new_figure(sum(heights) + 0.7, title)
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights))
    panels: list[Axes] = list(grid[:, 0])
    for axes in panels:
        tidy(axes)
        axes.grid(linewidth=0.5, color="0.9")
    figure.align_ylabels(panels)
    return figure, panels


def tidy(axes: Axes) -> None:
    """Hide the upper and the right side of the frame, and set the size of the tick labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT_SIZE - 0.5)
    axes.set_axisbelow(True)


def name_axes(axes: Axes, *, x: str = "", y: str = "") -> None:
    """Label the axes."""
    axes.set_xlabel(plain(x), fontsize=FONT_SIZE)
    axes.set_ylabel(plain(y), fontsize=FONT_SIZE)


def whole_numbers(axes: Axes) -> None:
    """Put ticks of the x axis only at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def from_zero(axes: Axes, values: Sequence[float]) -> None:
    """Let the y axis of values begin at zero, with room for markers there; it ends at 1 if all values are zero."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0) or 1.0
    axes.set_ylim(-0.05 * largest, 1.08 * largest)


def from_zero_with_peaks(axes: Axes, values: Sequence[float], marks: Sequence[float] = ()) -> None:
    """Let the y axis begin at zero; if a few values would flatten all others, it is logarithmic above those.

    `marks` are further values, such as limits, that must be easy to read.
    """
    ordered = sorted(value for value in values if math.isfinite(value))
    # All but the largest tenth of the values, and at least one of several.
    usual = max([*ordered[: -max(1, len(ordered) // 10)], *marks], default=0.0)
    if len(ordered) < 3 or not 0 < PEAK * usual < ordered[-1] or ordered[0] < 0:
        from_zero(axes, [*values, *marks])
        return
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

    axes.set_yscale("symlog", linthresh=usual, linscale=1.5)
    axes.set_ylim(-0.05 * usual, 1.3 * ordered[-1])
    below = [tick for tick in MaxNLocator(3).tick_values(0, usual) if 0 <= tick <= 0.9 * usual]
    powers = [10.0**power for power in range(-6, 9) if 1.5 * usual < 10.0**power <= 1.3 * ordered[-1]]
    top = [ordered[-1]] if ordered[-1] > 2 * max([usual, *powers]) else []
    axes.yaxis.set_major_locator(FixedLocator([*below, *powers, *top]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.3g}"))


def legend_above(
    axes: Axes, handles: Sequence[Artist] | None = None, *, columns: int = 4, handle_length: float = 2.2
) -> None:
    """Draw a legend above the panel, where it covers no data; dashes need some handle length to be told apart."""
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
    # The layout would make the panel narrower for a wide legend. Hide the legend from it, and reserve its lines with an
    # empty title instead.
    legend.set_in_layout(False)
    lines = -(-len(entries) // columns) + max(str(entry.get_label()).count("\n") for entry in entries)
    axes.set_title("\n".join(" " * lines), fontsize=FONT_SIZE)


def plain(text: str) -> str:
    """Return a text in which dollar signs are literal and do not start a formula."""
    return text.replace("$", r"\$")
