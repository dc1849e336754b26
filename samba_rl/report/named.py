"""The paper's figures by name: what each needs, drawing it, and writing it to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from samba_rl.errors import UserError
from samba_rl.report.film import Frame
from samba_rl.report.information import SAMPLES, information
from samba_rl.report.predictions import predictions
from samba_rl.report.records import ResultRecord
from samba_rl.report.results import HOW, curves, tail, trade_off
from samba_rl.report.style import FONT_SIZE, new_figure
from samba_rl.tasks import TASKS, make_task
from samba_rl.tasks.fetch_reach import START

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
SUFFIXES = (".png", ".pdf")
BY_SYSTEM: dict[str, Callable[..., Figure]] = {"information": information, "predictions": predictions}
"""Drawn of one system: anew, from nothing but a seed."""
OF_RESULTS = {"curves": curves, "trade-off": trade_off, "tail": tail}
"""Drawn of finished cells of the benchmark."""
NAMES = ("information", "predictions", "curves", "trade-off", "tail", "systems")
EPISODES: dict[str, tuple[list[float], list[list[float]]]] = {
    "safe-pendulum": ([-0.9, 0.0], [[2.0]] * 3),
    "safe-cart-pole-double-pendulum": ([0.3, 0.0, 0.0, 0.0, -0.45, 0.5], [[-15.0]]),
    "safe-fetch-reach": ([*START, START[0] + 0.14, 0.66, 0.5], [[0.4, -0.6, -0.3, 0.0]] * 3),
}
"""Where an episode of each system begins, and what is done in it before its picture is taken."""


def draw(
    name: str,
    results: Sequence[ResultRecord] | None = None,
    task: str | None = None,
    samples: Sequence[int] | None = None,
    seed: int = 0,
) -> Figure:
    """The figure of that name, of one system (None: the pendulum, or all of which there are results).

    `samples` are the sizes of the models, where there are models; left out, they are the paper's.
    """
    check_name(name)
    if task is not None:
        make_task(task)  # says which there are if it is none of them
    if name == "systems":
        return systems()
    if name in BY_SYSTEM:
        return BY_SYSTEM[name](make_task(task or next(iter(SAMPLES))), samples, seed=seed)
    if results is None:
        raise UserError(f"the figure '{name}' is drawn from the results of a benchmark; {HOW}")
    return OF_RESULTS[name](results, task)


def check_name(name: str) -> None:
    """Whether there is such a figure."""
    if name not in NAMES:
        raise UserError(f"no figure is called '{name}'; there are: {', '.join(NAMES)}")


def check_path(path: Path) -> None:
    """Whether a figure can be written under that name."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"cannot write a figure as '{path}'; its name must end in {' or '.join(SUFFIXES)}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG or PDF, by the suffix; the same figure gives the same file."""
    check_path(path)
    pdf = path.suffix.lower() == ".pdf"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DPI, metadata={"CreationDate": None} if pdf else None)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


# The systems ----------------------------------------------------------------------------------------------------------


def system_pictures(size: int = 420, names: Sequence[str] = tuple(EPISODES)) -> list[Frame]:
    """What the paper's systems look like in the middle of an episode: pictures [size, size, 3]."""
    return [_picture(name, *EPISODES[name], size) for name in names]


def _picture(task: str, state: list[float], actions: list[list[float]], size: int) -> Frame:
    """What a system looks like after those actions."""
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
    """The systems side by side, with their unsafe and hazard regions."""
    figure = new_figure(2.85, "The systems: unsafe region red, hazard orange")
    (row,) = figure.subplots(1, len(names), squeeze=False)
    for axes, name, frame in zip(row, names, system_pictures(size, names), strict=True):
        axes.imshow(frame, interpolation="antialiased")
        axes.set_axis_off()
        axes.set_title(make_task(name).title.replace("Cart-Pole ", "Cart-Pole\n"), fontsize=FONT_SIZE)
    return figure
