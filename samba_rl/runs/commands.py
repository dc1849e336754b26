"""The command that goes on with a run, for messages: the whole of it, so that it can be copied."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from samba_rl.data.files import JSON_LIMIT, read_own
from samba_rl.tasks import TASKS

CONFIG_FILE = "config.json"
UNKNOWN = "FILE.py:FUNCTION"
"""Stands for a system of one's own of which nothing is recorded but its title."""


def named_task(config: Mapping[str, object]) -> str:
    """Return what --task needs for a run: nothing for a system of the paper, else how the system was named."""
    if config.get("task") in TASKS and not config.get("changed_task"):
        return ""
    return str(config.get("named") or UNKNOWN)


def command(folder: Path, verb: str, *more: str) -> str:
    """Return `samba-rl VERB FOLDER MORE`, with the --task that the run in the folder needs."""
    named = named_task(_config(folder))
    return shlex.join(["samba-rl", verb, str(folder), *more, *(["--task", named] if named else [])])


def next_command(folder: Path) -> str:
    """Return the command that goes on with the run in a folder: `ask` if it waits for trials, else `resume`."""
    return command(folder, "ask" if _config(folder).get("trials") == "told" else "resume")


def _config(folder: Path) -> Mapping[str, object]:
    """Return the configuration; if it cannot be read, which others complain about, that of a paper's system."""
    try:
        config = json.loads(read_own(folder / CONFIG_FILE, JSON_LIMIT))
    except (OSError, ValueError, RecursionError):
        config = None
    return config if isinstance(config, dict) else {"task": next(iter(TASKS))}
