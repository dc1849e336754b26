"""Checkpoints of numbered states, and how to recognise them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from samba_rl import __version__
from samba_rl.runs.checkpoints import (
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from samba_rl.types import State
from tests.runs.systems import same_bits


def state(number: int) -> State:
    """Two parts."""
    return {
        "agent": {"x": torch.arange(5.0) + number, "nested": {"random": torch.arange(9, dtype=torch.uint8)}},
        "around": {"count": number, "text": "θ", "nothing": None},
    }


def about(number: int) -> dict[str, Any]:
    return {"trials": number, "journal": "00" * 32}


def write(home: Path, *numbers: int) -> None:
    for number in numbers:
        write_checkpoint(home, state(number), about(number))


def names(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "checkpoints").iterdir())


def is_state(found: Checkpoint | None, number: int) -> bool:
    """Whether a checkpoint is the one that was written for the state of that number."""
    if found is None:
        return False
    agent, due = found.state["agent"], state(number)["agent"]
    return (
        found.about == {"format": 2, "samba_rl": __version__, **about(number)}
        and list(found.state) == ["agent", "around"]
        and found.state["around"] == state(number)["around"]
        and same_bits(agent["x"], due["x"])
        and same_bits(agent["nested"]["random"], due["nested"]["random"])
    )


def assert_back(home: Path, number: int, *problems: str) -> None:
    """The last sound checkpoint is that one, and of later ones this is said."""
    found, said = read_checkpoint(home)
    assert is_state(found, number) and len(said) == len(problems), said
    for text, pattern in zip(said, problems, strict=True):
        assert re.search(pattern, text) and str(home / "checkpoints") in text and "\n" not in text
