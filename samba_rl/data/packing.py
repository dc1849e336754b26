"""Packing a `State` into bytes: JSON text followed by the raw values of its tensors, without any code to run."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samba_rl.types import State

_LENGTH = struct.Struct("<Q")
_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_TENSOR = "$tensor"


def pack(state: State) -> bytes:
    """Pack a state into bytes: the length of the text, the text, and the tensors one after the other."""
    blocks: list[bytes] = []
    size = 0

    def plain(value: Any) -> Any:
        nonlocal size
        if isinstance(value, Tensor):
            array = value.detach().cpu().contiguous().numpy()
            blocks.append(array.tobytes())
            place, size = size, size + array.nbytes
            return {_TENSOR: [_NAMES[value.dtype], list(value.shape), place]}
        if isinstance(value, dict):
            if not all(isinstance(name, str) for name in value) or value.keys() == {_TENSOR}:
                raise TypeError(
                    f"a state has the keys {list(value)[:5]}; they must be strings, and not '{_TENSOR}' alone"
                )
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(part) for part in value]
        return value

    text = json.dumps(plain(state), separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *blocks])


def unpack(packed: bytes) -> State:
    """Return the state that `pack` packed, with tensors on the CPU; raise ValueError for any other bytes."""
    if len(packed) < _LENGTH.size:
        raise ValueError(f"it has {len(packed)} bytes")
    (length,) = _LENGTH.unpack_from(packed)
    start = _LENGTH.size + length
    if start > len(packed):
        raise ValueError(f"its text should have {length} bytes")
    numbers = memoryview(packed)[start:]
    end = 0

    def full(value: Any) -> Any:
        nonlocal end
        if isinstance(value, dict):
            if value.keys() == {_TENSOR}:
                tensor, end = _tensor(value[_TENSOR], numbers, end)
                return tensor
            return {name: full(part) for name, part in value.items()}
        return [full(part) for part in value] if isinstance(value, list) else value

    try:
        state = full(json.loads(packed[_LENGTH.size : start]))
    except RecursionError as error:
        raise ValueError("its text is nested too deeply") from error
    if not isinstance(state, dict):
        raise ValueError(f"it holds a {type(state).__name__}, not a dict")
    return state


def _tensor(about: Any, numbers: memoryview, due: int) -> tuple[Tensor, int]:
    """Return a tensor, which must begin at `due`, where the previous one ended, and where it ends itself."""
    match about:
        case [str(name), list(shape), int(place)] if name in _DTYPES and all(type(n) is int and n >= 0 for n in shape):
            dtype, count = _DTYPES[name], math.prod(shape)
        case _:
            raise ValueError(f"{str(about)[:80]} describes no tensor")
    end = place + count * dtype.itemsize
    if place != due or end > len(numbers):
        raise ValueError(f"a tensor of shape {shape} at {place} lies outside its {len(numbers)} bytes")
    # Copy: a view of the bytes of a file would be read-only and would keep all of them in memory.
    array = np.frombuffer(numbers[place:end], dtype=name).copy()
    try:
        return torch.from_numpy(array).reshape(shape), end
    except (TypeError, RuntimeError) as error:
        # Next to a size of 0 any other size passes the checks above.
        raise ValueError(f"a tensor has the shape {str(shape)[:80]}") from error
