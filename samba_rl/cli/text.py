"""Formatting of values for the terminal."""

from __future__ import annotations

import math
import time

from rich.markup import escape

from samba_rl.errors import duration as duration, printable


def text(value: object) -> str:
    """Return text from a file or a user that is shown literally, without markup or control characters."""
    return escape(printable(str(value)))


def number(value: float) -> str:
    """Format a number with two decimals; a dash if it is not known."""
    return "–" if math.isnan(value) else f"{value:.2f}"


def ago(moment: float) -> str:
    """Format the time since a moment, in seconds since 1970, such as 5 min ago."""
    minutes = (time.time() - moment) / 60
    if minutes < 2:
        return "just now"
    if minutes < 120:
        return f"{minutes:.0f} min ago"
    return f"{minutes / 60:.0f} h ago" if minutes < 2880 else f"{minutes / 1440:.0f} days ago"


def file_size(size: float) -> str:
    """Format a number of bytes, such as 12 kB."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
