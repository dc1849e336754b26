"""Types of arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

RunArgument = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""The folder of a run, as a positional argument."""
JsonFlag = Annotated[bool, tyro.conf.arg(name="json")]
"""The flag --json, under the name `as_json`."""
