"""A hazard: an unsafe interval of one angle and the region around it in which the safety cost rises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from samba_rl.errors import UserError


def wrap(angle: Tensor) -> Tensor:
    """The same angle in [-π, π), any shape."""
    return (angle + math.pi).remainder_(2 * math.pi).sub_(math.pi)


def tent(share: Tensor) -> Tensor:
    """One at zero, falling linearly to zero at one, and zero beyond; any shape. `share` is overwritten."""
    return share.neg_().add_(1).clamp_(min=0)


@dataclass(frozen=True)
class AngleHazard:
    """The unsafe angles `low..high` and the hazard that reaches `margin` further on both sides (all in rad).

    The safety cost is one at the centre of the hazard and falls linearly to zero at its edges. Angles are compared on
    the circle, so a hazard may lie across ±π.
    """

    low: float = math.radians(20)
    """Where the unsafe region begins [rad]."""
    high: float = math.radians(30)
    """Where the unsafe region ends [rad]."""
    margin: float = math.pi / 4
    """How far the hazard reaches beyond the unsafe region, on both sides [rad]."""

    def __post_init__(self) -> None:
        for name in ("low", "high", "margin"):
            value = getattr(self, name)
            if not math.isfinite(value):
                raise UserError(f"hazard: {name} = {value} is not a finite angle in radians")
        if self.low > self.high:
            raise UserError(f"hazard: low = {self.low:g} lies above high = {self.high:g}; swap them (radians)")
        if self.margin < 0:
            raise UserError(f"hazard: margin = {self.margin:g} is negative; give how far the hazard reaches (radians)")
        if self.half_width > math.pi:
            raise UserError(
                f"hazard: {self.low:g}..{self.high:g} with a margin of {self.margin:g} rad covers more than the whole "
                "circle; narrow it"
            )
        if self.half_width == 0:
            raise UserError(f"hazard: low = high = {self.low:g} with margin 0 is empty; widen it or give a margin")

    @cached_property
    def centre(self) -> float:
        """The middle of the hazard [rad]."""
        return (self.low + self.high) / 2

    @cached_property
    def half_width(self) -> float:
        """From the centre of the hazard to its edge [rad]."""
        return (self.high - self.low) / 2 + self.margin

    @property
    def unsafe(self) -> tuple[float, float]:
        """The ends of the unsafe region [rad]."""
        return self.low, self.high

    @property
    def region(self) -> tuple[float, float]:
        """The edges of the hazard [rad]."""
        return self.low - self.margin, self.high + self.margin

    def distance(self, angle: Tensor) -> Tensor:
        """How far the angle is from the centre of the hazard on the circle [rad], any shape."""
        # `wrap` of (angle - centre), written out: this runs at every step of every episode.
        return (angle + (math.pi - self.centre)).remainder_(2 * math.pi).sub_(math.pi).abs_()

    def safety(self, angle: Tensor) -> Tensor:
        """The safety cost of being at this angle, in [0, 1], any shape."""
        return tent(self.distance(angle).div_(self.half_width))

    def violation(self, safety: Tensor) -> Tensor:
        """Whether the angle with this safety cost is unsafe (bool), any shape; the ends count as unsafe."""
        # A few ulp of slack, so that an angle equal to an end is unsafe however it was rounded.
        slack = 8 * torch.finfo(safety.dtype).eps
        return safety >= 1 - (self.high - self.low) / 2 / self.half_width - slack

    def describe(self) -> str:
        """In words, in degrees."""
        unsafe, hazard = ("..".join(f"{math.degrees(end):g}°" for end in span) for span in (self.unsafe, self.region))
        return f"unsafe {unsafe}, hazard {hazard}"
