"""Checks of what users' functions of states and actions return."""

from __future__ import annotations

import torch
from torch import Tensor

from samba_rl.errors import UserError


def checked(owner: str, value: object, shape: tuple[int, ...], dtype: torch.dtype, *, truth: bool) -> Tensor:
    """Return what the function `owner` returned for a batch, in `dtype`, or as bool if it states a `truth`.

    Raise a `UserError` unless it is a tensor of the given shape ([B] will do for [B, 1]) and of a fitting type.
    """
    if not isinstance(value, Tensor):
        raise UserError(
            f"{owner} returned a {type(value).__name__}; write it with torch operations on whole batches, so that it "
            "returns a tensor"
        )
    if len(shape) == 2 and shape[1] == 1 and value.shape == shape[:1]:
        value = value[:, None]
    if value.shape != shape:
        raise UserError(
            f"{owner} returned shape {list(value.shape)} for a batch of {shape[0]}; expected {list(shape)}. Index "
            "columns as x[..., i], not x[i]"
        )
    if truth:
        if value.dtype != torch.bool:
            raise UserError(f"{owner} returned {value.dtype}; return truth values, as in x[..., 0].abs() > 1")
        return value
    if not value.dtype.is_floating_point:
        kind = "truth values" if value.dtype == torch.bool else str(value.dtype)
        raise UserError(
            f"{owner} returned {kind} instead of floating-point numbers; convert them, as in "
            "(x[..., 0].abs() > 1).to(x)"
        )
    return value.to(dtype)
