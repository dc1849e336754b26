"""Software renderer for the Fetch robot: MuJoCo's meshes on a numpy z-buffer, without a display or OpenGL."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from samba_rl.tasks.render.drawing import (
    BACKGROUND,
    FLOOR,
    GOAL,
    GRIP,
    HAZARD,
    INK,
    SKY,
    UNSAFE,
    check_finite,
    supersampling,
)

if TYPE_CHECKING:
    from mujoco import MjData, MjModel

    from samba_rl.tasks.render.drawing import Colour, Floats, Picture

    Ints = npt.NDArray[np.int64]

TABLE_TOP, SLAB_TOP, SLAB_Y = 0.4, 0.9, (0.45, 1.05)  # m, extent of the hazard's box on the table
LOOK_AT, DISTANCE = (1.19, 0.75, 0.62), 2.5  # m
AZIMUTH, ELEVATION = math.radians(103), math.radians(-20)  # nearly along y, so that x runs across the picture
FOCAL = 2.05  # focal length in picture widths
LAMP = np.array([0.30, -0.62, 0.725])  # direction of the light, a unit vector
PLANE, BOX, MESH = 0, 6, 7  # MuJoCo's mjtGeom, without importing mujoco


def _box(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the corners and normals, both [12, 3, 3], of the triangles of the box from `low` to `high`."""
    corners, normals = [], []
    for axis, sign in ((axis, sign) for axis in range(3) for sign in (-1.0, 1.0)):
        square = np.full((4, 3), sign)
        # Seen from outside, the corners run counter-clockwise on every side of the box.
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

    parts: list[tuple[int, slice]]  # id of each geom and the range of its triangles
    corners: Floats  # [n, 3, 3] m
    normals: Floats  # [n, 3, 3], one per corner
    colours: Floats  # [n, 3] in 0..255

    def posed(self, data: MjData) -> tuple[Floats, Floats]:
        """Return the corners (m) and normals in world coordinates, both [n, 3, 3], for the given MjData."""
        corners, normals = np.empty_like(self.corners), np.empty_like(self.normals)
        for geom, part in self.parts:
            turn = data.geom_xmat[geom].reshape(3, 3).T
            corners[part] = self.corners[part] @ turn + data.geom_xpos[geom]
            normals[part] = self.normals[part] @ turn
        return corners, normals


@lru_cache(maxsize=4)
def _scene(model: MjModel) -> _Scene:
    """Collect the meshes, boxes and floors of an MjModel, without markers (mocap or nearly transparent)."""
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
            rgba = model.mat_rgba[material]  # MuJoCo's own rule for a geom with the default grey
        parts.append((geom, slice(count, count + len(corners))))
        colour = FLOOR if kind == PLANE else 255.0 * rgba[:3]
        shapes.append((corners, normals, np.tile(colour, (len(corners), 1))))
        count += len(corners)
    stacked = (np.concatenate(arrays).astype(np.float64) for arrays in zip(*shapes, strict=True))
    return _Scene(parts, *stacked)


def _expand(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return the range index and the value of every element of the ranges [start, start + count)."""
    owner = np.repeat(np.arange(len(start)), count)
    return owner, np.arange(len(owner)) + (start - np.cumsum(count) + count)[owner]


class _Fragments:
    """Pixels whose centres lie in triangles [n, 3, (column, row, ...)], which are counter-clockwise on the screen."""

    def __init__(self, screen: Floats, side: int):
        x, y = screen[..., 0], screen[..., 1]
        top, bottom = np.clip(np.ceil([y.min(axis=1) - 0.5, y.max(axis=1) - 0.5]), 0, side).astype(np.int64)
        owner, row = _expand(top, bottom - top)
        left, right = np.zeros(len(owner)), np.full(len(owner), float(side))
        for a, b in ((0, 1), (1, 2), (2, 0)):
            rise = y[:, b] - y[:, a]
            slope = (x[:, b] - x[:, a]) / np.where(rise == 0.0, 1.0, rise)
            crossing = (x[:, a] - y[:, a] * slope)[owner] + (row + 0.5) * slope[owner]
            # A downward edge bounds the triangle on its left, an upward edge on its right.
            left = np.where((rise > 0)[owner], np.maximum(left, crossing), left)
            right = np.where((rise < 0)[owner], np.minimum(right, crossing), right)
        # Slightly wider than exact, so that rounding leaves no gap between neighbours.
        first, end = np.clip([np.ceil(left - 0.5001), np.floor(right + 0.5001)], 0, side).astype(np.int64)
        span, self.column = _expand(first, np.maximum(end - first, 0))
        self.owner, self.row = owner[span], row[span]
        self.pixel = self.row * side + self.column
        self._screen = screen

    def between(self, values: Floats, chosen: slice | Ints = slice(None)) -> Floats:
        """Interpolate `values` [n, 3] at the corners of the triangles to the `chosen` fragments."""
        screen, owner = self._screen, self.owner[chosen]
        step, rise = screen[:, 1:, :2] - screen[:, :1, :2], values[:, 1:] - values[:, :1]
        across = (rise[:, 0] * step[:, 1, 1] - rise[:, 1] * step[:, 0, 1]) / _area(screen)
        down = (rise[:, 1] * step[:, 0, 0] - rise[:, 0] * step[:, 1, 0]) / _area(screen)
        corner = values[:, 0] - across * (screen[:, 0, 0] - 0.5) - down * (screen[:, 0, 1] - 0.5)
        return corner[owner] + across[owner] * self.column[chosen] + down[owner] * self.row[chosen]


def _area(screen: Floats) -> Floats:
    """Return twice the signed area (pixels) of triangles [n, 3, (column, row, ...)]; front faces are negative."""
    ab, ac = screen[:, 1] - screen[:, 0], screen[:, 2] - screen[:, 0]
    return ab[:, 0] * ac[:, 1] - ab[:, 1] * ac[:, 0]


class _View:
    """A supersampled picture of triangles, with the nearness (1 / distance; 0: empty) of each pixel."""

    def __init__(self, size: int):
        self.factor = supersampling(size, large=2)
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
        """Blend a colour once over projected triangles [n, 3, 3] wherever nothing solid is in front of them.

        A shadow is drawn only where the triangles lie on something solid.
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
        """Draw a flat disc at a world point, moved half-way to the eye so that nothing hides it."""
        self.glass(self.project((self.eye + point + radius * _ball()) / 2.0), colour, opacity)

    def slab(self, low: float, high: float) -> None:
        """Draw the hazard as a translucent box above the table, with x between `low` and `high` (m)."""
        corners, _ = _box((low, SLAB_Y[0], TABLE_TOP + 0.003), (high, SLAB_Y[1], SLAB_TOP))
        screen = self.project(corners)
        for faces in (_area(screen) > 0, _area(screen) < 0):  # far faces, then near ones
            self.glass(screen[faces], UNSAFE, 0.25)
        # Two edges of each square cover all twelve edges of the box.
        self.lines(np.concatenate([corners[::2, :2], corners[::2, 1:]]), 0.004, HAZARD)

    def array(self) -> Picture:
        """Return the picture, uint8 [size, size, 3]."""
        from PIL import Image

        full = self.colour.reshape(self.side, self.side, 3).astype(np.uint8)
        return np.array(Image.fromarray(full).reduce(self.factor))


def draw_fetch(
    model: MjModel, data: MjData, *, goal: npt.ArrayLike, centre: float, half_width: float, size: int = 480
) -> Picture:
    """Draw the Fetch robot of MjModel `model` in the state of MjData `data`, with `goal` [3] (m).

    The hazard covers the gripper's x in [centre - half_width, centre + half_width] (m); it is not drawn if
    `half_width` is 0. Returns uint8 [size, size, 3].
    """
    target = np.asarray(goal, dtype=np.float64)
    check_finite(goal=target, centre=centre, half_width=half_width)
    view, scene = _View(size), _scene(model)
    corners, normals = scene.posed(data)
    view.solid(corners, normals, scene.colours)
    # A shadow cast from straight above shows where the arm is over the table.
    above = (corners[..., 2].min(axis=1) > TABLE_TOP + 0.01) & (corners[..., 0].max(axis=1) > 1.0)
    shadow = corners[above & (normals[:, 0, 2] > 0)] * (1.0, 1.0, 0.0) + (0.0, 0.0, TABLE_TOP)
    view.glass(view.project(shadow), INK, 0.25, shadow=True)
    pixel = DISTANCE / (FOCAL * size)  # m, roughly; keeps marks visible in the smallest pictures
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
