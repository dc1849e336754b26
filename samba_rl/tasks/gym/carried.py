"""What an environment carries over its resets (wear, temperature, a counter), as numbers that a checkpoint can hold.

Environments that carry something have `state_dict()`, which gives it as a dict of numbers and arrays by name, and
`load_state_dict(state)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from samba_rl.errors import UserError


def carried(env: gymnasium.Env[Any, Any]) -> dict[str, NDArray[Any]] | None:
    """What the environment carries, by name, as copies; None if it does not say."""
    if not _says(env):
        return None
    given = env.unwrapped.state_dict()  # type: ignore[attr-defined]
    if not isinstance(given, Mapping):
        raise UserError(f"{env}: state_dict() gave a {type(given).__name__}; give a dict of numbers and arrays")
    return {name: _numbers(env, name, value) for name, value in given.items()}


def carry_on(env: gymnasium.Env[Any, Any], state: Mapping[str, NDArray[Any]]) -> None:
    """Give the environment what `carried` gave; numbers come as numbers of Python."""
    if not _says(env):
        raise UserError(
            f"{env}: has no state_dict() and load_state_dict(), but is to go on with {sorted(state)}; use the "
            "environment that these came from"
        )
    values = {name: value if value.ndim else value.item() for name, value in state.items()}
    env.unwrapped.load_state_dict(values)  # type: ignore[attr-defined]


def _says(env: gymnasium.Env[Any, Any]) -> bool:
    return hasattr(env.unwrapped, "state_dict") and hasattr(env.unwrapped, "load_state_dict")


def _numbers(env: gymnasium.Env[Any, Any], name: Any, value: Any) -> NDArray[Any]:
    """A value as an array, of one of the few types of number that checkpoints hold."""
    try:
        array = np.array(value)
    except ValueError:  # lists of different lengths
        array = np.array(None)
    # Whole numbers beyond 63 bits fit into no tensor.
    fits = array.dtype.kind in "bif" or (array.dtype.kind == "u" and bool((array < 2**63).all()))
    if not isinstance(name, str) or not fits:
        raise UserError(
            f"{env}: state_dict() has {name!r}: {value!r:.100}; names must be text, and values numbers or arrays of "
            "numbers, whole ones below 2^63"
        )
    if array.dtype in (np.bool_, np.uint8, np.float32):
        return array
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
