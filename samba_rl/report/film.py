"""An episode as pictures: replayed frame by frame, saved as a strip or as a moving picture."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from samba_rl.errors import UserError
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, Traces

Frame = NDArray[np.uint8]
"""[height, width, 3]"""
GAP = 12
"""Pixels between two frames of a strip."""
PAUSE = 0.6
"""Seconds for which the end of an episode stays before the next one begins."""
SHOWN = (0.02, 1.0)
"""A frame is shown for at least and at most this many seconds: players cannot go faster, and people not slower."""


def policy_film(task: Task, policy: Policy, episodes: int, seed: int = 0, size: int = 480) -> list[Frame]:
    """A policy on the real system: episodes one after the other, the same for the same seed."""
    import torch

    from samba_rl.tasks.rollout import rollout

    world = task.world(0)
    try:
        traces = rollout(world, policy, episodes, generator=torch.Generator().manual_seed(seed))
    finally:
        world.close()
    return joined([film(task, traces, episode, size) for episode in range(episodes)], task.dt)


def film(task: Task, traces: Traces, episode: int = 0, size: int = 480) -> list[Frame]:
    """Replay one of the trajectories on the real system: a frame for its start and one for each step."""
    from samba_rl.tasks.gym.envs import SafeEnv

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


def joined(episodes: Sequence[list[Frame]], seconds: float) -> list[Frame]:
    """Films whose frames last `seconds`, one after the other, with a pause after each but the last."""
    pause = max(1, round(PAUSE / _shown(seconds)))
    frames = list(episodes[0])
    for episode in episodes[1:]:
        frames += [frames[-1]] * pause + episode
    return frames


def strip(frames: list[Frame], count: int = 5) -> Frame:
    """`count` of the frames side by side, evenly spaced from the first to the last, with white between them."""
    chosen = np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)
    white = np.full((len(frames[0]), GAP, 3), 255, dtype=np.uint8)
    columns = [part for i in chosen for part in (white, frames[i])]
    return np.concatenate(columns[1:], axis=1)


def save_picture(picture: Frame, path: Path) -> None:
    """Write a picture as PNG."""
    from PIL import Image

    with _writing(path):
        Image.fromarray(picture).save(path)


def save_film(frames: list[Frame], path: Path, seconds: float) -> None:
    """Write frames as a film, .mp4 or .gif by the path's suffix, each shown for `seconds` (the system's `dt`)."""
    suffix = path.suffix.lower()
    if suffix not in (".mp4", ".gif"):
        raise UserError(f"cannot write a film as '{path.name}'; its name must end in .mp4 or .gif")
    with _writing(path):
        (_save_mp4 if suffix == ".mp4" else _save_gif)(frames, path, _shown(seconds))


def _shown(seconds: float) -> float:
    return min(max(seconds, SHOWN[0]), SHOWN[1])


def _save_gif(frames: list[Frame], path: Path, seconds: float) -> None:
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=round(1000 * seconds), loop=0)


def _save_mp4(frames: list[Frame], path: Path, seconds: float) -> None:
    try:
        ffmpeg = importlib.import_module("imageio_ffmpeg")
    except ImportError as error:
        raise UserError(
            f"films as .mp4 need the package '{error.name}'; install it with: pip install 'samba-rl[video]'"
        ) from error
    path.open("wb").close()  # Python says better than ffmpeg what is wrong with a path
    height, width = (n + n % 2 for n in frames[0].shape[:2])
    try:
        writer = ffmpeg.write_frames(
            str(path),
            (width, height),
            fps=1 / seconds,
            codec="libx264",
            pix_fmt_out="yuv420p",  # what every player can show; it needs even sizes
            macro_block_size=1,  # or the pictures would be stretched to multiples of it
            quality=None,
            ffmpeg_log_level="error",
            output_params=["-crf", "18", "-movflags", "+faststart"],
        )
        writer.send(None)
        for frame in frames:
            missing = ((0, height - frame.shape[0]), (0, width - frame.shape[1]), (0, 0))
            writer.send(np.ascontiguousarray(np.pad(frame, missing, mode="edge")))
        writer.close()
    except RuntimeError as error:  # there is no ffmpeg program for this machine
        raise UserError(f"cannot write {path}: {error}; write a .gif instead") from error
    if not path.stat().st_size:
        raise UserError(f"cannot write {path}: ffmpeg failed, its reason stands above; write a .gif instead")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Make the folder, and say which file it was if something goes wrong."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
