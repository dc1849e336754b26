"""Acting by hand: observations as arrays or tensors in, actions of the same kind within their bounds out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def batch_of(observation: Tensor | ArrayLike, shape: tuple[int, ...]) -> Tensor:
    """Return one observation of a `shape`, or a batch of them, as a batch [B, *shape]; floats become float64.

    Raise UserError for another shape, or for a number that is not finite.
    """
    try:
        given = observation if isinstance(observation, Tensor) else torch.as_tensor(np.asarray(observation))
    except (TypeError, ValueError) as error:
        raise UserError(f"the observation is not an array of numbers ({error}); give {_words(shape)}") from error
    if given.shape[-len(shape) :] != shape or given.dim() - len(shape) not in (0, 1):
        raise UserError(f"the observation has shape {list(given.shape)}; give {_words(shape)}")
    if not bool(given.isfinite().all()):
        bad = int((~given.isfinite()).reshape(-1, *shape).flatten(1).any(0).nonzero()[0])
        raise UserError(f"component {bad} of the observation is not finite; stop the system, and check its sensor")
    batch = given.reshape(-1, *shape)
    return batch if batch.dtype == torch.uint8 else batch.double()


def _words(shape: tuple[int, ...]) -> str:
    sizes = ", ".join(map(str, shape))
    return f"one of [{sizes}] or a batch of [B, {sizes}]"


def answer(action: Tensor, low: Tensor, high: Tensor, observation: Tensor | ArrayLike, dims: int) -> Tensor:
    """Return actions [B, nu] within `low` and `high` [nu], in the shape and, for a tensor, the type of the observation.

    An observation has `dims` dimensions. Bounds that the type cannot represent are rounded inwards.
    """
    like = observation if isinstance(observation, Tensor) else None
    dtype = like.dtype if like is not None and like.is_floating_point() else torch.float64
    least, most = low.to(dtype), high.to(dtype)
    least = torch.where(least.double() < low, torch.nextafter(least, torch.full_like(least, torch.inf)), least)
    most = torch.where(most.double() > high, torch.nextafter(most, torch.full_like(most, -torch.inf)), most)
    within = torch.minimum(torch.maximum(action.to(dtype), least), most)
    single = (like.dim() if like is not None else np.ndim(np.asarray(observation))) == dims
    within = within[0] if single else within
    return within if like is None else within.to(like.device)


def array(action: Tensor) -> NDArray[np.float64]:
    """Return actions as a NumPy array of float64."""
    return np.asarray(action.cpu().numpy(), dtype=np.float64)
