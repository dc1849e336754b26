"""Software pictures of the tasks: two pendulums (Pillow) and the Fetch robot (a numpy z-buffer).

No display and no OpenGL are needed, so every machine draws the same picture. All public functions return
uint8 arrays [size, size, 3]; angles are in rad from upright, counter-clockwise (to the left) positive.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

    Colour = tuple[int, int, int]
    Region = tuple[float, float]
    Picture = npt.NDArray[np.uint8]
    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

# Hues near Okabe and Ito's, which the colour-blind can tell apart; red is also much darker than orange.
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

TORQUE_LIMIT = 2.0  # N m, that of Pendulum-v1
CART_TRAVEL, CART_VIEW = 1.6, 1.85  # m: where the camera starts to follow; half of what it sees at least
RAIL = -0.28  # m, the rail's height against the pivot's

TABLE_TOP, SLAB_TOP, SLAB_Y = 0.4, 0.9, (0.45, 1.05)  # m, where the hazard's box on the Fetch table is
LOOK_AT, DISTANCE = (1.19, 0.75, 0.62), 2.5  # m
AZIMUTH, ELEVATION = math.radians(103), math.radians(-20)  # nearly along y, so that x runs across
FOCAL = 2.05  # focal length in picture widths
LAMP = np.array([0.30, -0.62, 0.725])  # the direction of the light, a unit vector
PLANE, BOX, MESH = 0, 6, 7  # MuJoCo's mjtGeom, without importing mujoco


def _finite(**values: npt.ArrayLike | None) -> None:
    """Raise ValueError naming the first argument that holds a nan or an infinity (None passes)."""
    for name, value in values.items():
        if value is not None and not np.all(np.isfinite(np.asarray(value, dtype=np.float64))):
            raise ValueError(f"{name} must be finite, got {value}")


def _factor(size: int, large: int) -> int:
    """Return how finely to supersample a picture of `size` pixels: `large` times, small ones twice that."""
    if size < 16:
        raise ValueError(f"size must be at least 16, got {size}")
    return large if size >= 256 else 2 * large


def _clip(value: float, limit: float) -> float:
    """Return `value` moved into [-limit, limit]."""
    return max(-limit, min(limit, value))


def _polar(centre: npt.ArrayLike, radius: float, angle: float | Floats) -> Floats:
    """Return the points [..., 2] at `radius` from `centre` [2] in the directions `angle` [...]."""
    return np.asarray(centre) + radius * np.stack([-np.sin(angle), np.cos(angle)], axis=-1)


def _arc(centre: npt.ArrayLike, radius: float, low: float, high: float) -> Floats:
    """Return points [n, 2] about 3 degrees apart on the arc from `low` to `high`."""
    return _polar(centre, radius, np.linspace(low, high, max(2, math.ceil(abs(high - low) / 0.05) + 1)))


class _Canvas:
    """A supersampled Pillow picture addressed in world units, y upwards, `half` units to each side."""

    def __init__(self, size: int, half: float, x: float = 0.0, image: Image.Image | None = None):
        from PIL import Image, ImageDraw

        self.size, self.factor = size, _factor(size, large=3)
        full = size * self.factor
        self.pixel = 2.0 * half / size  # one final pixel in world units, the least useful line width
        self.image = image or Image.new("RGB", (full, full), BACKGROUND)
        self._draw = ImageDraw.Draw(self.image)
        self._scale = np.array([1.0, -1.0]) * full / (2.0 * half)
        self._shift = full / 2.0 - np.array([x, 0.0]) * self._scale
        self._low, self._high = np.full(2, float(full)), np.zeros(2)  # bounds of what was drawn on

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
        """Draw a stroke along `points` [n, 2] with a head that ends at the last of them."""
        head = 2.6 * max(width, self.pixel)
        tail = points[np.linalg.norm(points - points[-1], axis=1) > 1.05 * head]
        along = points[-1] - (tail[-1] if len(tail) else points[0])
        along *= head / np.linalg.norm(along)
        side, base = 0.58 * along[::-1] * (-1.0, 1.0), points[-1] - along
        if len(tail):  # else the arrow is so short that it is all head
            self.stroke(np.vstack([tail, base]), width, colour)
        self.polygon([points[-1], base + side, base - side], colour)

    def rod(self, start: Floats, end: Floats, width: float) -> None:
        """Draw a link, dark with a lighter core so that it reads on any sector."""
        self.stroke(np.stack([start, end]), width, INK)
        self.stroke(np.stack([start, end]), 0.42 * width, STEEL)

    def hinge(self, centre: npt.ArrayLike, radius: float) -> None:
        """Draw a joint, or a wheel."""
        self.disc(centre, radius, INK)
        self.disc(centre, 0.45 * radius, BACKGROUND)

    def sectors(self, pivot: Floats, radius: float, unsafe: Region, hazard: Region) -> None:
        """Draw the hazard sector and, on it, the unsafe one."""
        # Nothing but a flat background is below them, so fills already mixed with it look translucent.
        for (low, high), fill, rim in ((hazard, HAZARD_FILL, HAZARD), (unsafe, UNSAFE_FILL, UNSAFE)):
            arc = _arc(pivot, radius, low, min(high, low + 2.0 * math.pi))
            self.polygon(np.vstack([pivot, arc]), fill)
            self.stroke(arc, 0.03 * radius, rim)

    def array(self, untouched: Picture | None = None) -> Picture:
        """Return the picture, uint8 [size, size, 3]; where nothing was drawn, it is that of `untouched`."""
        if untouched is None:
            return np.array(self.image.reduce(self.factor))
        # Shrinking is what costs most, so only the part that was drawn on is shrunk.
        x0, y0 = np.clip(self._low // self.factor - 1, 0, self.size - 1).astype(int).tolist()
        x1, y1 = np.clip(self._high // self.factor + 2, 1, self.size).astype(int).tolist()
        box = (x0 * self.factor, y0 * self.factor, x1 * self.factor, y1 * self.factor)
        picture = untouched.copy()
        picture[y0:y1, x0:x1] = np.asarray(self.image.reduce(self.factor, box))
        return picture


@lru_cache(maxsize=8)
def _dial(size: int, unsafe: Region, hazard: Region) -> tuple[Image.Image, Picture]:
    """Return all that stands still in the pendulum's picture, supersampled and final."""
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
    _finite(angle=angle, torque=torque, unsafe=unsafe, hazard=hazard)
    image, untouched = _dial(size, (unsafe[0], unsafe[1]), (hazard[0], hazard[1]))
    canvas, pivot = _Canvas(size, 1.25, image=image.copy()), np.zeros(2)
    canvas.rod(pivot, _polar(pivot, 0.93, angle), 0.15)
    if torque:
        share = _clip(torque / TORQUE_LIMIT, 1.0)
        start = angle + math.copysign(0.3, share)  # beside the rod, on the side the torque pushes it to
        canvas.arrow(_arc(pivot, 0.42, start, start + 2.9 * share), 0.07 * min(1.0, 4 * abs(share)), ACTION)
    canvas.hinge(pivot, 0.13)
    return canvas.array(untouched)


@lru_cache(maxsize=8)
def _rail(size: int, x: float, half: float, target: float) -> tuple[Image.Image, Picture]:
    """Return the rail and the target (at height `target` m) as seen from `x` m, supersampled and final.

    There is a tick each half metre; the origin's is longer, and becomes a pointer when it is out of sight.
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
    _finite(position=position, angle1=angle1, angle2=angle2, force=force, unsafe=unsafe, hazard=hazard)
    half, camera = max(CART_VIEW, 2.0 * link + 0.4), position - _clip(position, CART_TRAVEL)
    image, untouched = _rail(size, camera, half, 2.0 * link)
    canvas, pivot = _Canvas(size, half, camera, image.copy()), np.array([position, 0.0])
    canvas.sectors(pivot, 1.15 * link, unsafe, hazard)
    canvas.stroke([(position - link, RAIL), (position + link, RAIL)], 0.04, STEEL)  # over the sectors
    for wheel in (-0.13, 0.13):
        canvas.hinge((position + wheel, RAIL + 0.09), 0.07)
    canvas.stroke([(position - 0.15, -0.05), (position + 0.15, -0.05)], 0.17, INK)
    if force:
        share = _clip(force / force_limit, 1.0)
        # Next to the edge the arrow stays back from the cart, or its head would be out of sight.
        middle, reach = camera + _clip(position - camera, half - 0.45), 0.4 * share
        ends = np.array([(middle - reach, RAIL - 0.24), (middle + reach, RAIL - 0.24)])
        canvas.arrow(ends, 0.08 * min(1.0, 2.5 * abs(share)), ACTION)
    joint = _polar(pivot, link, angle1)
    canvas.rod(pivot, joint, 0.13)
    canvas.rod(joint, _polar(joint, link, angle2), 0.13)
    canvas.hinge(pivot, 0.095)
    canvas.hinge(joint, 0.095)
    return canvas.array(untouched)


def _box(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the corners and normals, both [12, 3, 3], of the triangles of the box from `low` to `high`."""
    corners, normals = [], []
    for axis, sign in ((axis, sign) for axis in range(3) for sign in (-1.0, 1.0)):
        square = np.full((4, 3), sign)
        # Seen from outside the corners go counter-clockwise, on either side of the box.
        square[:, (axis + 1) % 3] = (-1.0, sign, 1.0, -sign)
        square[:, (axis + 2) % 3] = (-1.0, -sign, 1.0, sign)
        corners += [square[[0, 1, 2]], square[[0, 2, 3]]]
        normals += [np.tile(sign * np.eye(3)[axis], (3, 1))] * 2
    start, end = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    return (start + end) / 2.0 + np.array(corners) * (end - start) / 2.0, np.array(normals)


@lru_cache(maxsize=1)
def _ball() -> Floats:
    """Return the corners [n, 3, 3] of a unit ball's triangles, which are also its normals."""
    height, turn = np.meshgrid(np.linspace(0.0, np.pi, 13), np.linspace(0.0, 2.0 * np.pi, 25), indexing="ij")
    grid = np.stack([np.sin(height) * np.cos(turn), np.sin(height) * np.sin(turn), np.cos(height)], axis=-1)
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    return np.concatenate([np.stack(t, axis=2).reshape(-1, 3, 3) for t in ((a, b, c), (a, c, d))])


class _Scene(NamedTuple):
    """The visible triangles of a MuJoCo model, each in the frame of its geom."""

    parts: list[tuple[int, slice]]  # the id of each geom and where its triangles are
    corners: Floats  # [n, 3, 3] m
    normals: Floats  # [n, 3, 3], one for each corner
    colours: Floats  # [n, 3] in 0..255

    def posed(self, data: Any) -> tuple[Floats, Floats]:
        """Return the corners (m) and the normals in the world, both [n, 3, 3], for this MjData."""
        corners, normals = np.empty_like(self.corners), np.empty_like(self.normals)
        for geom, part in self.parts:
            turn = data.geom_xmat[geom].reshape(3, 3).T
            corners[part] = self.corners[part] @ turn + data.geom_xpos[geom]
            normals[part] = self.normals[part] @ turn
        return corners, normals


@lru_cache(maxsize=4)
def _scene(model: Any) -> _Scene:
    """Gather the meshes, boxes and floors of an MjModel, without markers (mocap or nearly transparent)."""
    parts, shapes, count = [], [], 0
    for geom, (kind, mesh) in enumerate(zip(model.geom_type, model.geom_dataid, strict=True)):
        rgba, reach, material = model.geom_rgba[geom], model.geom_size[geom], model.geom_matid[geom]
        marker = rgba[3] < 0.2 or model.body_mocapid[model.geom_bodyid[geom]] >= 0
        if marker or kind not in (PLANE, BOX, MESH):
            continue
        if kind == MESH:
            face = slice(model.mesh_faceadr[mesh], model.mesh_faceadr[mesh] + model.mesh_facenum[mesh])
            corners = model.mesh_vert[model.mesh_vertadr[mesh] + model.mesh_face[face]]
            normals = model.mesh_normal[model.mesh_normaladr[mesh] + model.mesh_facenormal[face]]
        else:
            corners, normals = _box(-reach * (1.0, 1.0, kind == BOX), reach * (1.0, 1.0, kind == BOX))
        if material >= 0 and np.all(rgba == (0.5, 0.5, 0.5, 1.0)):
            rgba = model.mat_rgba[material]  # MuJoCo's own rule for a geom that was left grey
        parts.append((geom, slice(count, count + len(corners))))
        colour = FLOOR if kind == PLANE else 255.0 * rgba[:3]
        shapes.append((corners, normals, np.tile(colour, (len(corners), 1))))
        count += len(corners)
    stacked = (np.concatenate(arrays).astype(np.float64) for arrays in zip(*shapes, strict=True))
    return _Scene(parts, *stacked)


def _expand(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return, for every element of the ranges [start, start + count), its range's index and its value."""
    owner = np.repeat(np.arange(len(start)), count)
    return owner, np.arange(len(owner)) + (start - np.cumsum(count) + count)[owner]


class _Fragments:
    """The pixels with centres in triangles [n, 3, (column, row, ...)] that are counter-clockwise there."""

    def __init__(self, screen: Floats, side: int):
        x, y = screen[..., 0], screen[..., 1]
        top, bottom = np.clip(np.ceil([y.min(axis=1) - 0.5, y.max(axis=1) - 0.5]), 0, side).astype(np.int64)
        owner, row = _expand(top, bottom - top)
        left, right = np.zeros(len(owner)), np.full(len(owner), float(side))
        for a, b in ((0, 1), (1, 2), (2, 0)):
            rise = y[:, b] - y[:, a]
            slope = (x[:, b] - x[:, a]) / np.where(rise == 0.0, 1.0, rise)
            crossing = (x[:, a] - y[:, a] * slope)[owner] + (row + 0.5) * slope[owner]
            # An edge that goes down bounds the triangle on its left, one that goes up on its right.
            left = np.where((rise > 0)[owner], np.maximum(left, crossing), left)
            right = np.where((rise < 0)[owner], np.minimum(right, crossing), right)
        # A hair wider than exact: rounding must not open a crack between two neighbours.
        first, end = np.clip([np.ceil(left - 0.5001), np.floor(right + 0.5001)], 0, side).astype(np.int64)
        span, self.column = _expand(first, np.maximum(end - first, 0))
        self.owner, self.row = owner[span], row[span]
        self.pixel = self.row * side + self.column
        self._screen = screen

    def between(self, values: Floats, chosen: slice | Ints = slice(None)) -> Floats:
        """Return `values` [n, 3] of the triangles' corners interpolated to the `chosen` fragments."""
        screen, owner = self._screen, self.owner[chosen]
        step, rise = screen[:, 1:, :2] - screen[:, :1, :2], values[:, 1:] - values[:, :1]
        across = (rise[:, 0] * step[:, 1, 1] - rise[:, 1] * step[:, 0, 1]) / _area(screen)
        down = (rise[:, 1] * step[:, 0, 0] - rise[:, 0] * step[:, 1, 0]) / _area(screen)
        corner = values[:, 0] - across * (screen[:, 0, 0] - 0.5) - down * (screen[:, 0, 1] - 0.5)
        return corner[owner] + across[owner] * self.column[chosen] + down[owner] * self.row[chosen]


def _area(screen: Floats) -> Floats:
    """Return twice the signed area (pixels) of triangles [n, 3, (column, row, ...)], negative for a front."""
    ab, ac = screen[:, 1] - screen[:, 0], screen[:, 2] - screen[:, 0]
    return ab[:, 0] * ac[:, 1] - ab[:, 1] * ac[:, 0]


class _View:
    """A supersampled picture of triangles, with the nearness (1 / distance; 0: nothing) at each pixel."""

    def __init__(self, size: int):
        self.factor = _factor(size, large=2)
        self.side = size * self.factor
        level = math.cos(ELEVATION)
        ahead = np.array([level * math.cos(AZIMUTH), level * math.sin(AZIMUTH), math.sin(ELEVATION)])
        right = np.array([math.sin(AZIMUTH), -math.cos(AZIMUTH), 0.0])
        self.axes = np.stack([right, np.cross(ahead, right), ahead], axis=1)
        self.eye = np.asarray(LOOK_AT) - DISTANCE * ahead
        self.colour = np.linspace(SKY, BACKGROUND, self.side).astype(np.float32).repeat(self.side, axis=0)
        self.nearness = np.zeros(self.side * self.side)

    def project(self, points: Floats) -> Floats:
        """Return (column, row, nearness) of world points [..., 3]."""
        screen: Floats = (points - self.eye) @ self.axes
        screen[..., 2] = 1.0 / screen[..., 2]
        screen[..., :2] = self.side * (0.5 + FOCAL * screen[..., :2] * screen[..., 2:])
        return screen

    def solid(self, corners: Floats, normals: Floats, colours: Floats) -> None:
        """Add opaque triangles: corners (m) and normals [n, 3, 3], colours [n, 3]."""
        screen = self.project(corners)
        front = _area(screen) < -1e-4
        screen, colours, normals = screen[front], colours[front], normals[front]
        fragments = _Fragments(screen, self.side)
        nearness = fragments.between(screen[..., 2])
        np.maximum.at(self.nearness, fragments.pixel, nearness)
        seen = np.flatnonzero(nearness == self.nearness[fragments.pixel])
        shade = 0.52 + 0.14 * normals[..., 2] + 0.40 * np.maximum(normals @ LAMP, 0.0)
        light = fragments.between(shade, seen)[:, None]
        self.colour[fragments.pixel[seen]] = np.minimum(colours[fragments.owner[seen]] * light, 255.0)

    def glass(self, screen: Floats, colour: Colour, opacity: float, *, shadow: bool = False) -> None:
        """Lay a colour, once, over projected triangles [n, 3, 3] wherever nothing solid is before them.

        A shadow is laid only where the triangles lie on something solid.
        """
        area = _area(screen)
        screen = np.where((area > 0)[:, None, None], screen[:, ::-1], screen)[np.abs(area) > 1e-4]
        fragments = _Fragments(screen, self.side)
        nearness, solid = fragments.between(screen[..., 2]), self.nearness[fragments.pixel]
        pixel = fragments.pixel[np.abs(nearness - solid) < 2e-3 * solid if shadow else nearness > solid]
        self.colour[pixel] += opacity * (np.asarray(colour, dtype=np.float32) - self.colour[pixel])

    def lines(self, ends: Floats, width: float, colour: Colour) -> None:
        """Draw straight lines between world points [n, 2, 3], `width` picture widths wide."""
        screen = self.project(ends)
        along = screen[:, 1, :2] - screen[:, 0, :2]
        side = along[:, ::-1] * (-1.0, 1.0) / np.linalg.norm(along, axis=1, keepdims=True)
        side = np.pad(side * max(width * self.side, 0.5 * self.factor) / 2.0, ((0, 0), (0, 1)))
        a, b, c, d = screen[:, 0] + side, screen[:, 1] + side, screen[:, 1] - side, screen[:, 0] - side
        self.glass(np.concatenate([np.stack(t, axis=1) for t in ((a, b, c), (a, c, d))]), colour, 0.9)

    def mark(self, point: Floats, radius: float, colour: Colour, opacity: float = 1.0) -> None:
        """Draw a flat disc at a world point; half-way to the eye, so that nothing hides it."""
        self.glass(self.project((self.eye + point + radius * _ball()) / 2.0), colour, opacity)

    def slab(self, low: float, high: float) -> None:
        """Draw the hazard: the translucent box over the table with x between `low` and `high` m."""
        corners, _ = _box((low, SLAB_Y[0], TABLE_TOP + 0.003), (high, SLAB_Y[1], SLAB_TOP))
        screen = self.project(corners)
        for faces in (_area(screen) > 0, _area(screen) < 0):  # the far ones, then the near ones
            self.glass(screen[faces], UNSAFE, 0.25)
        # Two sides of each square: all twelve edges of the box, twice.
        self.lines(np.concatenate([corners[::2, :2], corners[::2, 1:]]), 0.004, HAZARD)

    def array(self) -> Picture:
        """Return the picture, uint8 [size, size, 3]."""
        from PIL import Image

        full = self.colour.reshape(self.side, self.side, 3).astype(np.uint8)
        return np.array(Image.fromarray(full).reduce(self.factor))


def draw_fetch(
    model: Any, data: Any, *, goal: npt.ArrayLike, centre: float, half_width: float, size: int = 480
) -> Picture:
    """Draw the Fetch robot of MjModel `model` in the state of MjData `data`, with `goal` [3] (m).

    The hazard covers the gripper's x in [centre - half_width, centre + half_width] (m); with a `half_width`
    of 0 none is drawn. Returns uint8 [size, size, 3].
    """
    target = np.asarray(goal, dtype=np.float64)
    _finite(goal=target, centre=centre, half_width=half_width)
    view, scene = _View(size), _scene(model)
    corners, normals = scene.posed(data)
    view.solid(corners, normals, scene.colours)
    # The shadow of a lamp straight above shows over which part of the table the arm is.
    above = (corners[..., 2].min(axis=1) > TABLE_TOP + 0.01) & (corners[..., 0].max(axis=1) > 1.0)
    shadow = corners[above & (normals[:, 0, 2] > 0)] * (1.0, 1.0, 0.0) + (0.0, 0.0, TABLE_TOP)
    view.glass(view.project(shadow), INK, 0.25, shadow=True)
    pixel = DISTANCE / (FOCAL * size)  # m, about: marks must be seen in the smallest pictures too
    radius, ball = max(0.028, 2.0 * pixel), _ball()
    view.solid(target + radius * ball, ball, np.tile(GOAL, (len(ball), 1)))
    if half_width > 0:
        view.slab(centre - half_width, centre + half_width)
    grip = data.site("robot0:grip").xpos
    view.lines(np.array([[grip, (grip[0], grip[1], TABLE_TOP)]]), 0.003, GRIP)
    view.mark(target, radius, GOAL, 0.55)
    view.mark(grip, max(0.016, 1.5 * pixel), INK)
    view.mark(grip, max(0.011, 1.1 * pixel), GRIP)
    return view.array()
