"""Pictures of states over time."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from samba_rl.tasks.render.drawing import ACTION, HAZARD, INK, UNSAFE_FILL
from samba_rl.tasks.render.plain import BOTTOM, FOOT, HEIGHT, LEFT, RIGHT, TOP, WIDTH, draw_episode
from samba_rl.tasks.rollout import rollout
from samba_rl.types import Traces
from tests.line import Line


def episode(action: float, steps: int = 8) -> Traces:
    """From about -2 with a constant action."""
    world = Line().world()
    return rollout(
        world, lambda o, g: torch.full((len(o), 1), action), 2, steps, generator=torch.Generator().manual_seed(0)
    )


def panel(frame: NDArray[np.uint8], row: int) -> NDArray[np.uint8]:
    """The area of a panel in which its curve runs."""
    return frame[HEIGHT * row + TOP : HEIGHT * (row + 1) - BOTTOM, LEFT : WIDTH - RIGHT]


def where(frame: NDArray[np.uint8], colour: tuple[int, int, int]) -> NDArray[np.bool_]:
    return np.array([[tuple(pixel) == colour for pixel in row] for row in frame.tolist()])


def test_a_frame_for_the_start_and_each_step_with_a_panel_for_each_quantity() -> None:
    frames = draw_episode(Line(), episode(0.5), 1)
    assert len(frames) == 9 and {frame.shape for frame in frames} == {(3 * HEIGHT + FOOT, WIDTH, 3)}


def test_curves_grow_and_show_the_values() -> None:
    frames = draw_episode(Line(), episode(0.5), 0)
    width = WIDTH - LEFT - RIGHT
    for t in (1, 4, 8):
        drawn = np.nonzero(np.atleast_1d(where(panel(frames[t], 0), INK).any(0)))[0]
        assert abs(drawn.max() - width * t / 8) < 4
    # x rises with a constant speed: the curve is a straight line from the lower left to the upper right.
    rows, columns = where(panel(frames[8], 0), INK).nonzero()
    height = HEIGHT - TOP - BOTTOM
    expected = height * (1 - (0.08 + columns / width) / 1.16)
    assert np.abs(rows - expected).max() < 3
    assert where(panel(frames[8], 1), ACTION).any() and where(panel(frames[8], 2), HAZARD).any()


def test_unsafe_steps_are_red() -> None:
    traces = episode(1.0)
    unsafe = traces.violation[0, :, 0].tolist()
    assert True in unsafe and False in unsafe
    last = np.atleast_1d(where(panel(draw_episode(Line(), traces, 0)[-1], 0), UNSAFE_FILL).any(0))
    width = (WIDTH - LEFT - RIGHT) / len(unsafe)
    assert [bool(last[int((t + 0.5) * width)]) for t in range(len(unsafe))] == unsafe


def test_an_episode_that_ends_early_ends_early() -> None:
    traces = episode(0.5)
    active = traces.active.clone()
    active[0, 3:] = False
    assert len(draw_episode(Line(), replace(traces, active=active), 0)) == 4
