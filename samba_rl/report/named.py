"""The paper's figures by name: drawing them and writing them to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from samba_rl.benchmark.cells import CellResult
from samba_rl.errors import UserError
from samba_rl.report.film import Frame
from samba_rl.report.information import information
from samba_rl.report.models import SAMPLES
from samba_rl.report.output import save_figure
from samba_rl.report.predictions import predictions
from samba_rl.report.results import HOW, curves, tail, trade_off
from samba_rl.report.style import FONT_SIZE, new_figure
from samba_rl.tasks import TASKS, make_task
from samba_rl.tasks.fetch_reach import START
from samba_rl.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
"""Resolution of a written figure [dots per inch]."""
SUFFIXES = (".png", ".pdf", ".svg")
BY_SYSTEM: dict[str, Callable[[Task, Sequence[int] | None, int], Figure]] = {
    "information": information,
    "predictions": predictions,
}
"""Figures of one system, drawn from the numbers of samples and a seed alone."""
OF_RESULTS = {"curves": curves, "trade-off": trade_off, "tail": tail}
"""Figures of benchmark results."""
NAMES = ("information", "predictions", "curves", "trade-off", "tail", "systems")
EPISODES: dict[str, tuple[list[float], list[list[float]]]] = {
    "safe-pendulum": ([-0.9, 0.0], [[2.0]] * 3),
    "safe-cart-pole-double-pendulum": ([0.3, 0.0, 0.0, 0.0, -0.45, 0.5], [[-15.0]]),
    "safe-fetch-reach": ([*START, START[0] + 0.14, 0.66, 0.5], [[0.4, -0.6, -0.3, 0.0]] * 3),
}
"""Initial state and actions of the episode of each system whose end is shown in its picture."""


def draw(
    name: str,
    results: Sequence[CellResult] | None = None,
    task: str | None = None,
    samples: Sequence[int] | None = None,
    seed: int = 0,
) -> Figure:
    """Draw the figure of this name.

    Args:
        name: One of `NAMES`.
        results: Results of a benchmark, for the figures in `OF_RESULTS`.
        task: Name of the system; None: the pendulum, or all systems with results.
        samples: Numbers of samples of the models, for the figures in `BY_SYSTEM`; None: the paper's.
        seed: Seed of the figures in `BY_SYSTEM`.
    """
    check_name(name)
    if task is not None:
        make_task(task)  # raises for an unknown name
    if name == "systems":
        return systems()
    if name in BY_SYSTEM:
        return BY_SYSTEM[name](make_task(task or next(iter(SAMPLES))), samples, seed)
    if results is None:
        raise UserError(f"the figure '{name}' needs the results of a benchmark; {HOW}")
    return OF_RESULTS[name](results, task)


def check_name(name: str) -> None:
    """Raise if there is no figure of this name."""
    if name not in NAMES:
        raise UserError(f"no figure is called '{name}'; there are: {', '.join(NAMES)}")


def check_path(path: Path) -> None:
    """Raise if the suffix of the path is not one of `SUFFIXES`."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(
            f"cannot write a figure as '{path}'; its name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, PDF or SVG, by the suffix of the path."""
    check_path(path)
    save_figure(figure, path, DPI)


# The systems ----------------------------------------------------------------------------------------------------------


def system_pictures(size: int = 420, names: Sequence[str] = tuple(EPISODES)) -> list[Frame]:
    """Return a picture [size, size, 3] of each system in the middle of an episode."""
    return [_picture(name, *EPISODES[name], size) for name in names]


def _picture(task: str, state: list[float], actions: list[list[float]], size: int) -> Frame:
    """Return a picture of a system after these actions."""
    from samba_rl.tasks.gym.envs import SafeEnv

    env = SafeEnv(task, render_mode="rgb_array", size=size)
    try:
        env.reset(options={"state": state})
        for action in actions:
            env.step(np.array(action, dtype=np.float32))
        frame = env.render()
    finally:
        env.close()
    assert frame is not None
    return frame


def systems(size: int = 840, names: Sequence[str] = tuple(TASKS)) -> Figure:
    """Draw the systems side by side, with their unsafe and hazard regions."""
    figure = new_figure(2.85, "The systems, with unsafe regions in red and hazards in orange")
    (row,) = figure.subplots(1, len(names), squeeze=False)
    for axes, name, frame in zip(row, names, system_pictures(size, names), strict=True):
        axes.imshow(frame, interpolation="antialiased")
        axes.set_axis_off()
        axes.set_title(make_task(name).title.replace("Cart-Pole ", "Cart-Pole\n"), fontsize=FONT_SIZE)
    return figure
