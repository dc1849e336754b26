"""Small plots of numbers for the terminal, drawn with braille dots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from rich.text import Text

ROWS = 4
"""Usual height of a plot [lines]."""
PEAK = 4.0
"""Values this many times as large as what is usual are cut off."""
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of the dots of a braille character: two columns of four, from the top."""
_MARGIN = 10


def plot(
    values: Sequence[float], width: int, rows: int = ROWS, *, mark: float | None = None, colour: str = "cyan"
) -> Text:
    """Return a plot of values in their order, with its range on the left and a dashed line at `mark`."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Text("no values yet", style="dim")
    low, high, cut = _range(known, mark)
    columns = max(width - _MARGIN, 8)
    cells = [[0] * columns for _ in range(rows)]
    levels = 4 * rows - 1

    def level(value: float) -> int:
        return round(levels * (min(max(value, low), high) - low) / (high - low))

    for (at, before), (_, after) in itertools.pairwise(_columns(values, 2 * columns)):
        ends = sorted((level(before), level(after)))
        for height in range(ends[0], ends[1] + 1):
            cells[rows - 1 - height // 4][at // 2] |= _DOTS[at % 2][3 - height % 4]
    line = None if mark is None or not low <= mark <= high else rows - 1 - level(mark) // 4
    text = Text()
    for row, cell in enumerate(cells):
        label = f"{'≥' * cut}{high:.3g}" if row == 0 else f"{low:.3g}" if row == rows - 1 else ""
        text.append(f"{label:>{_MARGIN - 2}} ┤" if label else " " * (_MARGIN - 1) + "│", style="dim")
        for dots in cell:
            text.append("╌" if row == line and not dots else chr(0x2800 + dots), "red" if not dots else colour)
        text.append("\n" if row < rows - 1 else "")
    return text


def _range(known: Sequence[float], mark: float | None) -> tuple[float, float, bool]:
    """Return the range to draw, and whether the largest values lie above it."""
    marks = [] if mark is None else [mark]
    low, high = min([*known, *marks]), max([*known, *marks])
    usual = max([*sorted(known)[: -max(1, len(known) // 10)], *marks], default=high)
    cut = low >= 0 and 0 < PEAK * usual < high
    if cut:
        high = 1.5 * usual
    if low >= 0:
        low, high = 0.0, high or 1.0
    return (low, high, cut) if high > low else (low - 1, high + 1, False)


def _columns(values: Sequence[float], count: int) -> list[tuple[int, float]]:
    """Return (column, value) at as many columns as there is room for, by linear interpolation or thinning."""
    known = [(i, value) for i, value in enumerate(values) if math.isfinite(value)]
    if len(known) == 1:
        return [(0, known[0][1]), (1, known[0][1])]
    last, found, at = len(values) - 1, [], 0
    for column in range(count):
        place = column * last / (count - 1)
        if place < known[0][0] or place > known[-1][0]:
            continue
        while known[at + 1][0] < place:
            at += 1
        (left, before), (right, after) = known[at], known[at + 1]
        found.append((column, before + (after - before) * (place - left) / (right - left)))
    return [*found, (count, found[-1][1])]
