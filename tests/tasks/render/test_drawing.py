"""Facts about the pictures: what is where, in which colour, and what moves when the state does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from samba_rl import UserError
from samba_rl.tasks.render.drawing import (
    BACKGROUND,
    CART_TRAVEL,
    CART_VIEW,
    DIAL,
    GOAL,
    INK,
    STEEL,
    draw_cart_double_pendulum,
    draw_pendulum,
)

Picture = npt.NDArray[np.uint8]

UNSAFE = (math.radians(20), math.radians(30))
HAZARD = (math.radians(-25), math.radians(75))
REGIONS: dict[str, Any] = {"unsafe": UNSAFE, "hazard": HAZARD}
EVEN: dict[str, Any] = {"unsafe": (-0.2, 0.2), "hazard": (-0.8, 0.8)}
ROD = (INK, STEEL)


def polar(picture: Picture, radius: float, angle: float) -> tuple[int, int, int]:
    """Return the colour at `radius` (share of half the picture) and `angle` from the pendulum's pivot."""
    half = len(picture) / 2
    row, column = half - half * radius * math.cos(angle), half - half * radius * math.sin(angle)
    red, green, blue = picture[int(row), int(column)].tolist()
    return red, green, blue


def at_metres(picture: Picture, x: float, y: float, camera: float = 0.0) -> tuple[int, int, int]:
    """Return the colour at a point (m) of the cart's picture seen from x = `camera`."""
    scale = len(picture) / (2 * CART_VIEW)
    row, column = len(picture) / 2 - y * scale, len(picture) / 2 + (x - camera) * scale
    red, green, blue = picture[int(row), int(column)].tolist()
    return red, green, blue


def is_red(colour: tuple[int, int, int]) -> bool:
    """Tell the red of the unsafe sector from everything else."""
    return colour[0] > 180 and colour[1] < 100 and colour[2] < 100


def is_orange(colour: tuple[int, int, int]) -> bool:
    """Tell the orange of the hazard sector from everything else."""
    return colour[0] > 220 and 150 < colour[1] < 225 and colour[2] < 160


@pytest.mark.parametrize("size", [480, 64, 16])
def test_shape_and_type(size: int) -> None:
    """Both pendulums give [size, size, 3] bytes, which belong to the caller."""
    for _ in range(2):
        single = draw_pendulum(0.1, 1.0, **REGIONS, size=size)
        double = draw_cart_double_pendulum(0.1, 0.2, 0.3, 4.0, **REGIONS, size=size)
        for picture in (single, double):
            assert picture.shape == (size, size, 3) and picture.dtype == np.uint8
            assert picture.std() > 5
            picture[:] = 0  # must not reach a cache: the second round would be black


@pytest.mark.parametrize("size", [480, 64])
def test_pendulum_sectors(size: int) -> None:
    """Red where unsafe, orange in the rest of the hazard, plain elsewhere."""
    picture = draw_pendulum(math.pi, None, **REGIONS, size=size)
    assert is_red(polar(picture, 0.7, math.radians(25)))
    for degrees in (-20, 5, 35, 70):
        assert is_orange(polar(picture, 0.7, math.radians(degrees)))
    for degrees in (-30, 80, 110, -110):
        assert polar(picture, 0.7, math.radians(degrees)) == DIAL
    assert tuple(picture[0, 0]) == BACKGROUND


def test_pendulum_sectors_follow_their_bounds() -> None:
    """Other bounds, other places, also across the bottom and all around."""
    picture = draw_pendulum(0.0, None, unsafe=(3.0, 3.3), hazard=(2.5, 3.8))
    assert is_red(polar(picture, 0.7, 3.15)) and is_orange(polar(picture, 0.7, 3.6))
    assert polar(picture, 0.7, 0.44) == DIAL
    picture = draw_pendulum(0.0, None, unsafe=UNSAFE, hazard=(-math.pi, math.pi + 0.5))
    assert all(is_orange(polar(picture, 0.7, angle)) for angle in (-3.1, -1.3, 1.3, 3.1))


@pytest.mark.parametrize("angle", [0.0, math.pi / 2, math.pi, -math.pi / 2, 2.2, 2.2 + 2 * math.pi])
def test_pendulum_rod(angle: float) -> None:
    """The rod lies along the angle, and only there; pi/2 is to the left."""
    picture = draw_pendulum(angle, None, **REGIONS)
    assert polar(picture, 0.5, angle) == STEEL
    assert all(polar(picture, 0.5, angle + math.radians(k)) not in ROD for k in range(20, 350, 10))
    assert polar(picture, 0.83, angle) not in ROD
    if angle == math.pi / 2:
        assert tuple(picture[240, 120]) == STEEL


@pytest.mark.parametrize("size", [480, 64])
def test_mirror(size: int) -> None:
    """Mirrored states over symmetric regions give mirrored pictures, up to the rounding of edges."""
    pairs = [
        (draw_pendulum(s * 0.7, s * 1.3, **EVEN, size=size) for s in (1, -1)),
        (draw_cart_double_pendulum(s * 0.4, s * 0.3, s * -0.9, s * 9, **EVEN, size=size) for s in (1, -1)),
    ]
    for left, right in pairs:
        difference = np.abs(left.astype(int) - right[:, ::-1].astype(int))
        assert difference.mean() < 0.25
        assert np.abs(left.astype(int) - right.astype(int)).mean() > 20 * difference.mean()


def test_torque_arrow() -> None:
    """The arrow starts at the rod, goes the torque's way, grows with it, and stops growing at the limit."""
    none = draw_pendulum(math.pi, None, **REGIONS)

    def changed(torque: float) -> npt.NDArray[np.bool_]:
        changes: npt.NDArray[np.bool_] = np.any(draw_pendulum(math.pi, torque, **REGIONS) != none, axis=2)
        return changes

    assert not changed(0.0).any()
    sizes = [changed(torque).sum() for torque in (0.1, 0.5, 1.0, 2.0)]
    assert sizes[0] > 0 and sizes == sorted(set(sizes))
    assert np.array_equal(changed(2.0), changed(7.0))
    # A hanging rod is pushed to the right by a positive torque (counter-clockwise).
    assert changed(1.0)[:, 240:].sum() > 20 * changed(1.0)[:, :240].sum()
    assert changed(-1.0)[:, :240].sum() > 20 * changed(-1.0)[:, 240:].sum()


@pytest.mark.parametrize("state", [(0.0, 0.0, 0.0), (0.5, 2.0, 0.6), (-0.55, -0.9, -2.5)])
def test_double_pendulum_kinematics(state: tuple[float, float, float]) -> None:
    """Links and tip are where the angles, both from upright, put them; there is nothing beyond the tip."""
    position, angle1, angle2 = state
    picture = draw_cart_double_pendulum(position, angle1, angle2, None, **REGIONS)
    joint = np.array([position - 0.6 * math.sin(angle1), 0.6 * math.cos(angle1)])
    outer = 0.6 * np.array([-math.sin(angle2), math.cos(angle2)])
    assert at_metres(picture, (position + joint[0]) / 2, joint[1] / 2) == STEEL
    for share in (0.5, 0.9, 1.0):
        assert at_metres(picture, *(joint + share * outer)) == STEEL
    assert at_metres(picture, *(joint + 1.07 * outer)) == INK
    assert at_metres(picture, *(joint + 1.17 * outer)) not in ROD


@pytest.mark.parametrize("size", [480, 64])
def test_double_pendulum_sectors_and_target(size: int) -> None:
    """The sectors go with the cart; the target stays over the origin at twice the link's length."""
    for position in (0.0, 0.5):
        picture = draw_cart_double_pendulum(position, math.pi, math.pi, None, **REGIONS, size=size)
        for degrees, is_colour in ((25, is_red), (0, is_orange), (60, is_orange)):
            angle = math.radians(degrees)
            x, y = position - 0.6 * math.sin(angle), 0.6 * math.cos(angle)
            assert is_colour(at_metres(picture, x, y))
        assert at_metres(picture, position + 0.5, 0.3) == BACKGROUND
        red, green, blue = at_metres(picture, 0.0, 1.2)
        assert green > red + 50 and green > blue + 25
    assert at_metres(draw_cart_double_pendulum(0.5, 0.0, 0.0, None, **REGIONS, link=0.7), 0.0, 1.4) == GOAL


def test_camera_follows_the_cart() -> None:
    """Far out the cart stays in the picture, and the rail still tells where the origin is."""
    far = draw_cart_double_pendulum(2.0, math.pi, math.pi, None, **REGIONS)
    assert at_metres(far, 2.0, -0.9, camera=2.0 - CART_TRAVEL) == STEEL
    assert at_metres(far, 0.0, 1.2, camera=2.0 - CART_TRAVEL) == GOAL
    assert at_metres(far, 0.0, -0.4, camera=2.0 - CART_TRAVEL) == INK  # the origin's tick
    # Whatever the links do, they stay in sight.
    outward = draw_cart_double_pendulum(2.0, -math.pi / 2, -math.pi / 2, None, **REGIONS)
    assert at_metres(outward, 3.2, 0.0, camera=2.0 - CART_TRAVEL) == STEEL
    for sign in (1, -1):
        lost = draw_cart_double_pendulum(sign * 9.0, math.pi, math.pi, None, **REGIONS)
        edge = CART_VIEW - 0.15  # where a pointer says which way the origin is
        camera = sign * (9.0 - CART_TRAVEL)
        assert at_metres(lost, camera - sign * edge, -0.48, camera) == INK
        assert at_metres(lost, camera + sign * edge, -0.48, camera) == BACKGROUND


def test_force_arrow() -> None:
    """The arrow's head is on the force's side; the arrow grows with the force; it is seen at the edge too."""
    none, weak, strong = (draw_cart_double_pendulum(0.0, 0.0, 0.0, f, **REGIONS) for f in (None, 5.0, 20.0))
    assert 0 < np.any(weak != none, axis=2).sum() < np.any(strong != none, axis=2).sum()
    assert np.array_equal(draw_cart_double_pendulum(0.0, 0.0, 0.0, 99.0, **REGIONS), strong)
    column_heights = np.any(strong != none, axis=2).sum(axis=0)
    assert column_heights.argmax() > 240
    edge = [draw_cart_double_pendulum(1.6, 0.0, 0.0, f, **REGIONS) for f in (None, 20.0)]
    assert np.any(edge[0] != edge[1], axis=2).sum() == pytest.approx(column_heights.sum(), rel=0.02)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_values_are_refused(value: float) -> None:
    """The message has the argument's name and its value."""
    with pytest.raises(UserError, match=f"angle must be finite, got {value}"):
        draw_pendulum(value, None, **REGIONS)
    with pytest.raises(UserError, match=f"torque must be finite, got {value}"):
        draw_pendulum(0.0, value, **REGIONS)
    with pytest.raises(UserError, match=r"hazard must be finite, got \(0.0, "):
        draw_pendulum(0.0, None, unsafe=UNSAFE, hazard=(0.0, value))
    for i, name in enumerate(("position", "angle1", "angle2", "force")):
        state = [0.0] * 4
        state[i] = value
        with pytest.raises(UserError, match=f"{name} must be finite, got {value}"):
            draw_cart_double_pendulum(*state, **REGIONS)


@pytest.mark.parametrize("size", [15, 0, -3])
def test_small_sizes_are_refused(size: int) -> None:
    """The message has the size."""
    with pytest.raises(UserError, match=f"size must be at least 16, got {size}"):
        draw_pendulum(0.0, None, **REGIONS, size=size)
    with pytest.raises(UserError, match=f"size must be at least 16, got {size}"):
        draw_cart_double_pendulum(0.0, 0.0, 0.0, None, **REGIONS, size=size)


def test_same_state_same_picture() -> None:
    """Nothing of an earlier picture stays in the next."""
    first = draw_pendulum(0.3, 1.0, **REGIONS), draw_cart_double_pendulum(0.1, 0.2, 0.3, 4.0, **REGIONS)
    draw_pendulum(-2.0, -2.0, **REGIONS)
    draw_cart_double_pendulum(-1.0, 2.0, -2.0, -9.0, **REGIONS)
    again = draw_pendulum(0.3, 1.0, **REGIONS), draw_cart_double_pendulum(0.1, 0.2, 0.3, 4.0, **REGIONS)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
