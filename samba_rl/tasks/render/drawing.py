"""Software renderer for the two pendulums, and the palette shared by all pictures.

It needs neither a display nor OpenGL, so every machine draws the same picture: uint8 [size, size, 3]. Angles are in
rad from upright, positive counter-clockwise (to the left).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

    Colour = tuple[int, int, int]
    Region = tuple[float, float]
    Picture = npt.NDArray[np.uint8]
    Floats = npt.NDArray[np.float64]

# Hues close to Okabe and Ito's palette for the colour-blind; red is also much darker than orange.
BACKGROUND: Colour = (247, 248, 250)
SKY: Colour = (224, 231, 240)
FLOOR: Colour = (222, 226, 232)
DIAL: Colour = (234, 237, 242)
FAINT: Colour = (176, 183, 194)
STEEL: Colour = (104, 114, 130)
INK: Colour = (34, 43, 58)
HAZARD: Colour = (245, 166, 35)
HAZARD_FILL: Colour = (246, 201, 130)
UNSAFE: Colour = (205, 32, 44)
UNSAFE_FILL: Colour = (213, 62, 60)
ACTION: Colour = (0, 104, 190)
GOAL: Colour = (0, 200, 95)
GRIP: Colour = (250, 228, 50)

CIRCLE = np.stack([np.cos(np.arange(64) * np.pi / 32), np.sin(np.arange(64) * np.pi / 32)], axis=1)

TORQUE_LIMIT = 2.0  # N m, as in Pendulum-v1
# m: distance from the origin at which the camera starts to follow the cart, and least half-width of its view; with
# these, two links of 0.6 m stay in sight.
CART_TRAVEL, CART_VIEW = 0.6, 1.85
RAIL = -0.28  # m, height of the rail relative to the pivot


def check_finite(**values: npt.ArrayLike | None) -> None:
    """Raise an error that names the first argument with NaN or infinity; None passes."""
    for name, value in values.items():
        if value is not None and not np.all(np.isfinite(np.asarray(value, dtype=np.float64))):
            raise UserError(f"{name} must be finite, got {value}")


def supersampling(size: int, large: int) -> int:
    """Return the supersampling factor for a picture of `size` pixels: `large`, or twice that for small pictures."""
    if size < 16:
        raise UserError(f"size must be at least 16, got {size}")
    return large if size >= 256 else 2 * large


def _clip(value: float, limit: float) -> float:
    """Return `value` clipped to [-limit, limit]."""
    return max(-limit, min(limit, value))


def _polar(centre: npt.ArrayLike, radius: float, angle: float | Floats) -> Floats:
    """Return the points [..., 2] at `radius` from `centre` [2] in the directions `angle` [...]."""
    return np.asarray(centre) + radius * np.stack([-np.sin(angle), np.cos(angle)], axis=-1)


def _arc(centre: npt.ArrayLike, radius: float, low: float, high: float) -> Floats:
    """Return points [n, 2] about 3 degrees apart on the arc from `low` to `high`."""
    return _polar(centre, radius, np.linspace(low, high, max(2, math.ceil(abs(high - low) / 0.05) + 1)))


class _Canvas:
    """A supersampled Pillow picture with coordinates in world units: y upwards, `half` units to each side."""

    def __init__(self, size: int, half: float, x: float = 0.0, image: Image.Image | None = None):
        from PIL import Image, ImageDraw

        self.size, self.factor = size, supersampling(size, large=3)
        full = size * self.factor
        self.pixel = 2.0 * half / size  # one final pixel in world units, the smallest useful line width
        self.image = image or Image.new("RGB", (full, full), BACKGROUND)
        self._draw = ImageDraw.Draw(self.image)
        self._scale = np.array([1.0, -1.0]) * full / (2.0 * half)
        self._shift = full / 2.0 - np.array([x, 0.0]) * self._scale
        self._low, self._high = np.full(2, float(full)), np.zeros(2)  # bounds of the area drawn on

    def polygon(self, points: npt.ArrayLike, colour: Colour) -> None:
        """Fill the polygon through `points` [n, 2]."""
        at = np.asarray(points) * self._scale + self._shift
        self._draw.polygon(at.ravel().tolist(), fill=colour)
        self._low = np.minimum(self._low, at.min(axis=0))
        self._high = np.maximum(self._high, at.max(axis=0))

    def disc(self, centre: npt.ArrayLike, radius: float, colour: Colour) -> None:
        """Fill a disc."""
        self.polygon(np.asarray(centre) + radius * CIRCLE, colour)

    def stroke(self, points: npt.ArrayLike, width: float, colour: Colour) -> None:
        """Draw a line through `points` [n, 2] with round ends, at least one final pixel wide."""
        line = np.asarray(points, dtype=np.float64)
        along = np.diff(line, axis=0, prepend=2.0 * line[:1] - line[1:2])
        along *= max(width, self.pixel) / 2.0 / np.sqrt((along * along).sum(axis=1, keepdims=True))
        side = along[:, ::-1] * (-1.0, 1.0)
        start, end = (CIRCLE[:33:3] @ np.stack([side[i], along[i]]) for i in (0, -1))
        outline = (line + side, line[-1] + end, (line - side)[::-1], line[0] - start)
        self.polygon(np.concatenate(outline), colour)

    def arrow(self, points: Floats, width: float, colour: Colour) -> None:
        """Draw an arrow along `points` [n, 2] with its tip at the last one."""
        head = 2.6 * max(width, self.pixel)
        tail = points[np.linalg.norm(points - points[-1], axis=1) > 1.05 * head]
        along = points[-1] - (tail[-1] if len(tail) else points[0])
        along *= head / np.linalg.norm(along)
        side, base = 0.58 * along[::-1] * (-1.0, 1.0), points[-1] - along
        if len(tail):  # otherwise the arrow is so short that only its head is drawn
            self.stroke(np.vstack([tail, base]), width, colour)
        self.polygon([points[-1], base + side, base - side], colour)

    def rod(self, start: Floats, end: Floats, width: float) -> None:
        """Draw a link, dark with a lighter core, so that it is visible on any sector."""
        self.stroke(np.stack([start, end]), width, INK)
        self.stroke(np.stack([start, end]), 0.42 * width, STEEL)

    def hinge(self, centre: npt.ArrayLike, radius: float) -> None:
        """Draw a joint or a wheel."""
        self.disc(centre, radius, INK)
        self.disc(centre, 0.45 * radius, BACKGROUND)

    def sectors(self, pivot: Floats, radius: float, unsafe: Region, hazard: Region) -> None:
        """Draw the hazard sector and, on top of it, the unsafe sector."""
        # The background is flat, so fills that are already mixed with it look translucent.
        for (low, high), fill, rim in ((hazard, HAZARD_FILL, HAZARD), (unsafe, UNSAFE_FILL, UNSAFE)):
            arc = _arc(pivot, radius, low, min(high, low + 2.0 * math.pi))
            self.polygon(np.vstack([pivot, arc]), fill)
            self.stroke(arc, 0.03 * radius, rim)

    def array(self, untouched: Picture | None = None) -> Picture:
        """Return the picture, uint8 [size, size, 3], using `untouched` where nothing was drawn."""
        if untouched is None:
            return np.array(self.image.reduce(self.factor))
        # Downsampling is the most expensive part, so only the area drawn on is downsampled.
        x0, y0 = np.clip(self._low // self.factor - 1, 0, self.size - 1).astype(int).tolist()
        x1, y1 = np.clip(self._high // self.factor + 2, 1, self.size).astype(int).tolist()
        box = (x0 * self.factor, y0 * self.factor, x1 * self.factor, y1 * self.factor)
        picture = untouched.copy()
        picture[y0:y1, x0:x1] = np.asarray(self.image.reduce(self.factor, box))
        return picture


@lru_cache(maxsize=8)
def _dial(size: int, unsafe: Region, hazard: Region) -> tuple[Image.Image, Picture]:
    """Return the static part of the pendulum's picture, supersampled and final."""
    canvas, pivot = _Canvas(size, 1.25), np.zeros(2)
    canvas.disc(pivot, 1.15, DIAL)
    canvas.sectors(pivot, 1.15, unsafe, hazard)
    for hour in range(12):
        inner = 1.02 if hour else 0.96  # upright stands out
        canvas.stroke([_polar(pivot, radius, hour * math.pi / 6) for radius in (inner, 1.08)], 0.014, FAINT)
    return canvas.image, canvas.array()


def draw_pendulum(
    angle: float,
    torque: float | None,
    *,
    unsafe: Region,
    hazard: Region,
    size: int = 480,
) -> Picture:
    """Draw the pendulum at `angle` (rad) under `torque` (N m in [-2, 2]; None: not shown).

    `unsafe` and `hazard` are (low, high) angles in rad. Returns uint8 [size, size, 3].
    """
    check_finite(angle=angle, torque=torque, unsafe=unsafe, hazard=hazard)
    image, untouched = _dial(size, (unsafe[0], unsafe[1]), (hazard[0], hazard[1]))
    canvas, pivot = _Canvas(size, 1.25, image=image.copy()), np.zeros(2)
    canvas.rod(pivot, _polar(pivot, 0.93, angle), 0.15)
    if torque:
        share = _clip(torque / TORQUE_LIMIT, 1.0)
        start = angle + math.copysign(0.3, share)  # beside the rod, on the side to which the torque pushes it
        canvas.arrow(_arc(pivot, 0.42, start, start + 2.9 * share), 0.07 * min(1.0, 4 * abs(share)), ACTION)
    canvas.hinge(pivot, 0.13)
    return canvas.array(untouched)


@lru_cache(maxsize=8)
def _rail(size: int, x: float, half: float, target: float) -> tuple[Image.Image, Picture]:
    """Return the rail and the target (at height `target` m) as seen from `x` m, supersampled and final.

    There is a tick every half metre. The one at the origin is longer; when it is out of sight, an arrow points to it.
    """
    canvas = _Canvas(size, half, x)
    canvas.stroke([(x - half, RAIL), (x + half, RAIL)], 0.04, STEEL)
    for tick in range(math.ceil(2.0 * (x - half)), math.floor(2.0 * (x + half)) + 1):
        end, colour = (RAIL - 0.12, FAINT) if tick else (RAIL - 0.22, INK)
        canvas.stroke([(tick / 2.0, RAIL - 0.06), (tick / 2.0, end)], 0.035, colour)
    if abs(x) > half:
        edge = np.array([math.copysign(abs(x) - half + 0.25, x), RAIL - 0.2])
        canvas.arrow(np.stack([edge, edge - (math.copysign(0.2, x), 0.0)]), 0.07, INK)
    for radius, colour in ((0.12, GOAL), (0.075, BACKGROUND), (0.04, GOAL)):
        canvas.disc((0.0, target), radius, colour)
    return canvas.image, canvas.array()


def draw_cart_double_pendulum(
    position: float,
    angle1: float,
    angle2: float,
    force: float | None,
    *,
    unsafe: Region,
    hazard: Region,
    link: float = 0.6,
    force_limit: float = 20.0,
    size: int = 480,
) -> Picture:
    """Draw the cart at `position` (m) with links at `angle1` and `angle2` (rad, both from upright).

    `force` (N; None: not shown) is drawn in proportion to `force_limit`; `link` is each link's length (m);
    `unsafe` and `hazard` are (low, high) angles of the first link (rad). Returns uint8 [size, size, 3].
    """
    check_finite(position=position, angle1=angle1, angle2=angle2, force=force, unsafe=unsafe, hazard=hazard)
    half, camera = max(CART_VIEW, 2.0 * link + 0.4), position - _clip(position, CART_TRAVEL)
    image, untouched = _rail(size, camera, half, 2.0 * link)
    canvas, pivot = _Canvas(size, half, camera, image.copy()), np.array([position, 0.0])
    canvas.sectors(pivot, 1.15 * link, unsafe, hazard)
    canvas.stroke([(position - link, RAIL), (position + link, RAIL)], 0.04, STEEL)  # on top of the sectors
    for wheel in (-0.13, 0.13):
        canvas.hinge((position + wheel, RAIL + 0.09), 0.07)
    canvas.stroke([(position - 0.15, -0.05), (position + 0.15, -0.05)], 0.17, INK)
    if force:
        share = _clip(force / force_limit, 1.0)
        # Near the edge the arrow stays behind the cart, so that its head remains in sight.
        middle, reach = camera + _clip(position - camera, half - 0.45), 0.4 * share
        ends = np.array([(middle - reach, RAIL - 0.24), (middle + reach, RAIL - 0.24)])
        canvas.arrow(ends, 0.08 * min(1.0, 2.5 * abs(share)), ACTION)
    joint = _polar(pivot, link, angle1)
    canvas.rod(pivot, joint, 0.13)
    canvas.rod(joint, _polar(joint, link, angle2), 0.13)
    canvas.hinge(pivot, 0.095)
    canvas.hinge(joint, 0.095)
    return canvas.array(untouched)
