"""Facts about the pictures of the Fetch robot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from samba_rl import UserError
from samba_rl.tasks.fetch_reach import import_robots
from samba_rl.tasks.render.robot import FOCAL, _box, _scene, _View, draw_fetch

pytest.importorskip("gymnasium_robotics")

Picture = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def fetch() -> Any:
    """Return a FetchReach environment after its reset."""
    import gymnasium

    import_robots()
    env: Any = gymnasium.make("FetchReach-v4").unwrapped
    env.reset(seed=0)
    return env


def draw(env: Any, size: int = 128, half_width: float = 0.03, goal: Any = (1.48, 0.7, 0.6)) -> Picture:
    """Return the robot's picture with the slab around x = 1.4."""
    return draw_fetch(env.model, env.data, goal=goal, centre=1.4, half_width=half_width, size=size)


def pixel(size: int, *point: float) -> tuple[int, int]:
    """Return row and column of a world point (m) in a Fetch picture."""
    view = _View(size)
    column, row, _ = view.project(np.array(point)) / view.factor
    return int(row), int(column)


@pytest.mark.parametrize("size", [128, 64])
def test_fetch_goal(fetch: Any, size: int) -> None:
    """The goal is a green ball where the camera sees it, also behind the slab or inside the table."""
    for goal in ((1.48, 0.7, 0.6), (1.22, 0.65, 0.65), (1.4, 0.9, 0.5), (1.45, 0.85, 0.33)):
        red, green, blue = draw(fetch, size, goal=goal)[pixel(size, *goal)].astype(int)
        assert green > red + 50 and green > blue + 40
    assert draw(fetch, size).shape == (size, size, 3)


def test_fetch_slab(fetch: Any) -> None:
    """With a slab the front of its box is redder than without; outside of it nothing changes."""
    without, narrow, wide = (draw(fetch, half_width=half).astype(int) for half in (0.0, 0.03, 0.06))
    front = pixel(128, 1.4, 0.45, 0.6)
    redness = [picture[front][0] - picture[front][1:].mean() for picture in (without, wide)]
    assert redness[1] > redness[0] + 40
    assert abs(wide[front][1] - wide[front][2]) < 25  # red, not the orange of the edges
    assert 0 < np.any(without != narrow, axis=2).sum() < np.any(without != wide, axis=2).sum()
    for outside in ((1.2, 0.5, 0.4), (1.5, 0.45, 0.4), (0.8, 0.7, 0.8)):
        assert np.array_equal(without[pixel(128, *outside)], wide[pixel(128, *outside)])


def test_fetch_colours_and_light(fetch: Any) -> None:
    """The elbow is blue, the table grey and brighter on top than in front, where the lamp shines too."""
    picture = draw(fetch, half_width=0.0).astype(int)
    elbow = picture[pixel(128, *fetch.data.geom("robot0:elbow_flex_link").xpos)]
    assert elbow[2] > elbow[0] + 60
    front, top = picture[pixel(128, 1.3, 0.4, 0.2)], picture[pixel(128, 1.2, 0.5, 0.4)]
    assert np.ptp(front) < 8
    assert np.ptp(top) < 8
    assert 150 < front.mean() < 200 < top.mean() < 240


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_near_hides_far(order: tuple[int, int]) -> None:
    """Of two boxes in one line of sight the near one is seen, whichever comes first, in one call or two."""
    one, two = _View(64), _View(64)
    ahead = one.axes[:, 2]
    boxes = [_box(at - 0.1, at + 0.1) for at in (one.eye + 2.0 * ahead, one.eye + 2.6 * ahead)]
    colours = [np.tile(colour, (12, 1)) for colour in ((200.0, 0.0, 0.0), (0.0, 200.0, 0.0))]
    for i in order:
        two.solid(*boxes[i], colours[i])
    corners, normals = (np.concatenate([boxes[i][part] for i in order]) for part in (0, 1))
    one.solid(corners, normals, np.concatenate([colours[i] for i in order]))
    for view in (one, two):
        red, green, _ = view.array()[32, 32]
        assert red > 80
        assert green == 0


def test_fetch_shapes_are_mujocos(fetch: Any) -> None:
    """MuJoCo's own rays meet the scene at the distances that the z-buffer holds."""
    import mujoco

    view = _View(128)
    scene = _scene(fetch.model)
    view.solid(*scene.posed(fetch.data), scene.colours)
    geom = np.zeros(1, np.int32)
    markers = fetch.model.body("robot0:mocap").id
    agree = []
    for row, column in np.ndindex(20, 20):
        row, column = (view.side * row) // 20 + 5, (view.side * column) // 20 + 5
        sideways = (np.array([column, row]) + 0.5) / view.side - 0.5
        ray = view.axes @ np.append(sideways / FOCAL, 1.0)
        met = mujoco.mj_ray(fetch.model, fetch.data, view.eye, ray, None, 1, markers, geom, None)
        nearness = view.nearness[row * view.side + column]
        agree.append(nearness == 0.0 if met < 0 else abs(met * nearness - 1.0) < 2e-3)
    assert np.mean(agree) > 0.97  # all but some at the very edge of a part


def test_fetch_moves_and_repeats(fetch: Any) -> None:
    """The picture, and in it the gripper's yellow mark, goes with the robot; a same state looks the same."""

    def mark() -> float:
        picture = draw(fetch, half_width=0.0).astype(int)
        yellow = (picture[..., 0] > 200) & (picture[..., 1] > 180) & (picture[..., 2] < 120)
        row, column = pixel(128, *fetch.data.site("robot0:grip").xpos)
        assert yellow[row, column]
        return float(np.nonzero(yellow)[1].mean())

    before, column = draw(fetch), mark()
    assert np.array_equal(before, draw(fetch))
    for _ in range(3):
        fetch.step(np.array([1.0, 0.0, 0.0, 0.0]))
    assert mark() > column + 5
    assert np.any(before != draw(fetch), axis=2).mean() > 0.02
    fetch.reset(seed=0)
    assert np.abs(before.astype(int) - draw(fetch).astype(int)).mean() < 0.1


def test_fetch_refuses_non_finite_values(fetch: Any) -> None:
    """The message has the argument's name and its value."""
    with pytest.raises(UserError, match=r"goal must be finite, got \[ *1.* nan"):
        draw(fetch, goal=(1.0, math.nan, 0.5))
    with pytest.raises(UserError, match="half_width must be finite, got inf"):
        draw(fetch, half_width=math.inf)


@pytest.mark.parametrize("size", [15, 0, -3])
def test_small_sizes_are_refused(size: int) -> None:
    """The message has the size."""
    with pytest.raises(UserError, match=f"size must be at least 16, got {size}"):
        draw_fetch(None, None, goal=(1.3, 0.7, 0.5), centre=1.3, half_width=0.0, size=size)
