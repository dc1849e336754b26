"""Policies: maps from observations to actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor


@final
@dataclass(frozen=True)
class UniformPolicy:
    """Actions drawn uniformly from a box, whatever the observation."""

    low: tuple[float, ...]
    """[nu]"""
    high: tuple[float, ...]
    """[nu]"""

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Actions [B, nu] for observations [B, no]."""
        unit = torch.rand(
            len(observation), len(self.low), generator=generator, device=observation.device, dtype=observation.dtype
        )
        columns = [lo + (hi - lo) * unit[:, i] for i, (lo, hi) in enumerate(zip(self.low, self.high, strict=True))]
        return torch.stack(columns, dim=1)
