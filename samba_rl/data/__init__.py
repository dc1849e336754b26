"""The data set: every real transition of a run, kept, written and read to the last bit."""

from samba_rl.data.dataset import DataSet
from samba_rl.data.schema import Schema

__all__ = ["DataSet", "Schema"]
