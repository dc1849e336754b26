"""Films of episodes: replayed frame by frame, and saved as a film or as a strip of pictures."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from samba_rl.data.files import open_own
from samba_rl.errors import UserError
from samba_rl.report.output import writing
from samba_rl.tasks.task import Task
from samba_rl.types import Policy, Traces

Frame = NDArray[np.uint8]
"""Picture [height, width, 3]."""
GAP = 12
"""Space between two frames of a strip [pixels]."""
PAUSE = 0.6
"""Pause between the end of an episode and the next one [s]."""
SHOWN = (0.02, 1.0)
"""Shortest and longest duration of a frame [s]; players cannot show faster films, and slower ones are tedious."""


def policy_film(task: Task, policy: Policy, episodes: int, seed: int = 0, size: int = 480) -> list[Frame]:
    """Film episodes of a policy on the real system, one after the other; the seed determines them."""
    import torch

    from samba_rl.report.recording import filmed

    generator = torch.Generator().manual_seed(seed)
    return joined(filmed(task, policy, episodes, episodes, generator=generator, size=size).films, task.dt)


def film(task: Task, traces: Traces, episode: int = 0, size: int = 480) -> list[Frame]:
    """Film a replay of one trajectory on the real system: a frame for its start and one for each step."""
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
    """Join films whose frames last `seconds` into one, with a pause after each but the last."""
    pause = max(1, round(PAUSE / _shown(seconds)))
    frames = list(episodes[0])
    for episode in episodes[1:]:
        frames += [frames[-1]] * pause + episode
    return frames


def strip(frames: list[Frame], count: int = 5) -> Frame:
    """Return `count` frames side by side, evenly spaced from the first to the last, with white space between them."""
    chosen = np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)
    white = np.full((len(frames[0]), GAP, 3), 255, dtype=np.uint8)
    columns = [part for i in chosen for part in (white, frames[i])]
    return np.concatenate(columns[1:], axis=1)


def save_picture(picture: Frame, path: Path) -> None:
    """Write a picture as PNG."""
    from PIL import Image

    with writing(path):
        Image.fromarray(picture).save(path)


def save_film(frames: list[Frame], path: Path, seconds: float) -> None:
    """Write frames as an .mp4 or .gif film, by the suffix of the path; each is shown for `seconds`."""
    suffix = path.suffix.lower()
    if suffix not in (".mp4", ".gif"):
        raise UserError(f"cannot write a film as '{path.name}'; its name must end in .mp4 or .gif")
    with writing(path):
        (_save_mp4 if suffix == ".mp4" else _save_gif)(frames, path, _shown(seconds))


def _shown(seconds: float) -> float:
    return min(max(seconds, SHOWN[0]), SHOWN[1])


def _save_gif(frames: list[Frame], path: Path, seconds: float) -> None:
    from PIL import Image

    _claim(path)
    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=round(1000 * seconds), loop=0)


def _claim(path: Path) -> None:
    """Create the file, but not through a link: the folder may come from a stranger."""
    os.close(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


def _save_mp4(frames: list[Frame], path: Path, seconds: float) -> None:
    try:
        ffmpeg = importlib.import_module("imageio_ffmpeg")
    except ImportError as error:
        raise UserError(
            f"films as .mp4 need the package '{error.name}'; install it with: pip install 'samba-rl[video]'"
        ) from error
    _claim(path)
    height, width = (n + n % 2 for n in frames[0].shape[:2])
    try:
        writer = ffmpeg.write_frames(
            str(path),
            (width, height),
            fps=1 / seconds,
            codec="libx264",
            pix_fmt_out="yuv420p",  # the format that every player can show; it needs even sizes
            macro_block_size=1,  # larger blocks would stretch the pictures to multiples of their size
            quality=None,
            ffmpeg_log_level="error",
            output_params=["-crf", "18", "-movflags", "+faststart"],
        )
        writer.send(None)
        for frame in frames:
            missing = ((0, height - frame.shape[0]), (0, width - frame.shape[1]), (0, 0))
            writer.send(np.ascontiguousarray(np.pad(frame, missing, mode="edge")))
        writer.close()
    except RuntimeError as error:  # there is no ffmpeg binary for this machine
        raise UserError(f"cannot write {path}: {error}; write a .gif instead") from error
    if not path.stat().st_size:
        raise UserError(f"cannot write {path}: ffmpeg failed with the error above; write a .gif instead")
