"""Exporting policies to files that other programs and languages read."""

from samba_rl.export.description import Description, describe
from samba_rl.export.formats import FORMATS, Comparison, compare, write

__all__ = ["FORMATS", "Comparison", "Description", "compare", "describe", "write"]
