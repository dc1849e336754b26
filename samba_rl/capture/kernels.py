"""Modules of kernels that are written for GPUs."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import ModuleType

import torch


@lru_cache
def kernels(module: str, device: torch.device, *numbers: int) -> ModuleType | None:
    """Return a module of GPU kernels if the device can run them, which its `check` of these numbers tells."""
    if device.type == "cpu":
        return None
    try:
        found = import_module(module)
        found.check(device, *numbers)
    except Exception:  # there is no Triton, or no compiler for what it makes
        return None
    return found
