"""State that an environment keeps across resets (wear, temperature, a counter), in a form that checkpoints can hold.

An environment that keeps such a state implements `state_dict()`, which returns a dict of numbers and arrays by name,
and `load_state_dict(state)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from samba_rl.tasks.gym.adapters import AnyEnv


def saved_state(env: AnyEnv) -> dict[str, NDArray[np.generic]] | None:
    """Return copies of what the environment keeps across resets, by name, or None if it keeps nothing."""
    if not _keeps_state(env):
        return None
    state: object = env.unwrapped.state_dict()  # type: ignore[attr-defined]
    if not isinstance(state, Mapping):
        raise UserError(f"{env}: state_dict() returned a {type(state).__name__}; return a dict of numbers and arrays")
    return {name: _as_array(env, name, value) for name, value in state.items()}


def restore_state(env: AnyEnv, state: Mapping[str, NDArray[np.generic]]) -> None:
    """Restore what `saved_state` returned; arrays without dimensions become Python numbers."""
    if not _keeps_state(env):
        raise UserError(
            f"{env}: has no state_dict() and load_state_dict(), but should restore {sorted(state)}; use the "
            "environment that this state came from"
        )
    values = {name: value if value.ndim else value.item() for name, value in state.items()}
    env.unwrapped.load_state_dict(values)  # type: ignore[attr-defined]


def _keeps_state(env: AnyEnv) -> bool:
    return hasattr(env.unwrapped, "state_dict") and hasattr(env.unwrapped, "load_state_dict")


def _as_array(env: AnyEnv, name: object, value: object) -> NDArray[np.generic]:
    """Return a value as an array of one of the few number types that checkpoints hold."""
    try:
        array = np.array(value)
    except ValueError:  # lists of different lengths
        array = np.array(None)
    # Integers beyond 63 bits fit into no tensor.
    fits = array.dtype.kind in "bif" or (array.dtype.kind == "u" and bool((array < 2**63).all()))
    if not isinstance(name, str) or not fits:
        raise UserError(
            f"{env}: state_dict() has {name!r}: {value!r:.100}; names must be strings, and values numbers or arrays of "
            "numbers, with integers below 2^63"
        )
    if array.dtype in (np.bool_, np.uint8, np.float32):
        return array
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
