"""Environments that a user's script or package has registered, for the processes that run them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvCreator, EnvSpec, load_env_creator

EVERYWHERE = ("gymnasium.", "gymnasium_robotics.", "samba_rl.")
"""Beginnings of entry points that every process registers itself."""


def registered_here() -> tuple[EnvSpec, ...]:
    """Return the specs that another process does not know, in a form that can be sent to it.

    Processes do not run the script that registered them. A spec that cannot be sent is left out, since only one of
    them is needed, and a process that misses it says so.
    """
    return tuple(spec for spec in map(_sendable, list(gymnasium.registry.values())) if spec is not None)


def register_all(specs: Sequence[EnvSpec]) -> None:
    """Register the specs in this process, except for ids that it knows already."""
    for spec in specs:
        gymnasium.registry.setdefault(spec.id, spec)


def _sendable(spec: EnvSpec) -> EnvSpec | None:
    """Return a spec that makes sense in another process; None if that knows it anyway or cannot be sent it."""
    if str(spec.entry_point).startswith(EVERYWHERE):
        return None
    found = copy.copy(spec)
    try:
        if isinstance(found.entry_point, str) and found.entry_point.startswith("__main__:"):
            found.entry_point = cast("EnvCreator", load_env_creator(found.entry_point))
        cloudpickle.dumps(found)
    except Exception:
        return None
    return found
