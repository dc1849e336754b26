"""Types of arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from samba_rl.ranges import In

RunArgument = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""The folder of a run, as a positional argument."""
JsonFlag = Annotated[bool, tyro.conf.arg(name="json")]
"""The flag --json, under the name `as_json`."""
Steps = Annotated[int, In("[1, 1e9]")]
"""A number of real steps."""
Episodes = Annotated[int, In("[1, 1e7]")]
"""A number of real episodes."""
Seeds = Annotated[int, In("[1, 10000]")]
"""A number of seeds."""
