"""Reading lines, legends and texts back from Matplotlib figures."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text


def lines(axes: Axes) -> dict[str, tuple[Any, Any]]:
    """Return the x and y data of each line by its label."""
    return {str(line.get_label()): (line.get_xdata(), line.get_ydata()) for line in axes.get_lines()}


def legend(axes: Axes) -> list[str]:
    """Return the entries of a panel's legend."""
    found = axes.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def figure_legend(figure: Figure) -> list[str]:
    """Return the entries of the legend that all panels share."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def words(figure: Figure) -> str:
    """Return all text of a figure in lower case."""
    figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    return "\n".join(texts).lower()
