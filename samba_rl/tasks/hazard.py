"""A hazard: an unsafe interval of one angle and the region around it in which the safety cost rises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from samba_rl.errors import UserError


def wrap(angle: Tensor) -> Tensor:
    """Return the angle wrapped to [-π, π), in any shape."""
    return (angle + math.pi).remainder_(2 * math.pi).sub_(math.pi)


def tent(share: Tensor) -> Tensor:
    """Return max(0, 1 - share) in any shape, overwriting `share`."""
    return share.neg_().add_(1).clamp_(min=0)


@dataclass(frozen=True)
class AngleHazard:
    """Unsafe angles `low..high` inside a hazard region that extends `margin` beyond them on both sides (all in rad).

    The safety cost is one at the centre of the hazard and falls linearly to zero at its edges. Angles are compared on
    the circle, so a hazard may extend across ±π.
    """

    low: float = math.radians(20)
    """Lower end of the unsafe region [rad]."""
    high: float = math.radians(30)
    """Upper end of the unsafe region [rad]."""
    margin: float = math.pi / 4
    """Distance that the hazard extends beyond the unsafe region on both sides [rad]."""

    def __post_init__(self) -> None:
        for name in ("low", "high", "margin"):
            value = getattr(self, name)
            if not math.isfinite(value):
                raise UserError(f"hazard: {name} = {value} is not a finite angle in radians")
        if self.low > self.high:
            raise UserError(f"hazard: low = {self.low:g} lies above high = {self.high:g}; swap them (radians)")
        if self.margin < 0:
            raise UserError(f"hazard: margin = {self.margin:g} is negative; give zero or a positive angle (radians)")
        if self.half_width > math.pi:
            raise UserError(
                f"hazard: {self.low:g}..{self.high:g} with a margin of {self.margin:g} rad covers more than the whole "
                "circle; narrow it"
            )
        if self.half_width == 0:
            raise UserError(f"hazard: low = high = {self.low:g} with margin 0 is empty; widen it or give a margin")

    @cached_property
    def centre(self) -> float:
        """Return the centre of the hazard [rad]."""
        return (self.low + self.high) / 2

    @cached_property
    def half_width(self) -> float:
        """Return the angle between the centre of the hazard and its edge [rad]."""
        return (self.high - self.low) / 2 + self.margin

    @property
    def unsafe(self) -> tuple[float, float]:
        """Return the ends of the unsafe region [rad]."""
        return self.low, self.high

    @property
    def region(self) -> tuple[float, float]:
        """Return the edges of the hazard [rad]."""
        return self.low - self.margin, self.high + self.margin

    def distance(self, angle: Tensor) -> Tensor:
        """Return the distance on the circle between angles of any shape and the centre of the hazard [rad]."""
        # `wrap` of (angle - centre), written out: this runs at every step of every episode.
        return (angle + (math.pi - self.centre)).remainder_(2 * math.pi).sub_(math.pi).abs_()

    def safety(self, angle: Tensor) -> Tensor:
        """Return the safety costs, in [0, 1], of angles of any shape [rad]."""
        return tent(self.distance(angle).div_(self.half_width))

    def violation(self, safety: Tensor) -> Tensor:
        """Return True (bool tensor) where safety costs of any shape belong to unsafe angles, ends included."""
        # A few ulp of slack: an angle equal to an end is unsafe however it was rounded.
        slack = 8 * torch.finfo(safety.dtype).eps
        return safety >= 1 - (self.high - self.low) / 2 / self.half_width - slack

    def describe(self) -> str:
        """Return both regions as text, in degrees."""
        unsafe, hazard = ("..".join(f"{math.degrees(end):g}°" for end in span) for span in (self.unsafe, self.region))
        return f"unsafe {unsafe}, hazard {hazard}"
