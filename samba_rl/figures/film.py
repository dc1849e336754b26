"""An episode as pictures: replayed frame by frame, saved as a strip or as a moving picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from samba_rl.tasks.task import Task
from samba_rl.types import Traces, UserError

Frame = NDArray[np.uint8]
"""[size, size, 3]"""
GAP = 12
"""Pixels between two frames of a strip."""


def film(task: Task, traces: Traces, episode: int = 0, size: int = 480) -> list[Frame]:
    """Replay one of the trajectories on the real system: a frame for its start and one for each step."""
    from samba_rl.tasks.envs import SafeEnv

    env = SafeEnv(task, render_mode="rgb_array", size=size)
    try:
        env.reset(options={"state": traces.x[episode, 0].cpu().numpy()})
        frames = [_frame(env.render())]
        for t in range(int(traces.active[episode].sum())):
            env.step(traces.u[episode, t].cpu().numpy())
            frames.append(_frame(env.render()))
    finally:
        env.close()
    return frames


def _frame(picture: Frame | None) -> Frame:
    assert picture is not None
    return picture


def strip(frames: list[Frame], count: int = 5) -> Frame:
    """`count` of the frames side by side, evenly spaced from the first to the last, with white between them."""
    chosen = np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)
    white = np.full((len(frames[0]), GAP, 3), 255, dtype=np.uint8)
    columns = [part for i in chosen for part in (white, frames[i])]
    return np.concatenate(columns[1:], axis=1)


def save_picture(picture: Frame, path: Path) -> None:
    """Write a picture as PNG."""
    from PIL import Image

    _prepare(path)
    Image.fromarray(picture).save(path)


def save_film(frames: list[Frame], path: Path, seconds: float) -> None:
    """Write frames as an animated GIF, each shown for `seconds`."""
    from PIL import Image

    _prepare(path)
    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=max(20, round(1000 * seconds)), loop=0)


def _prepare(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
