"""Films of episodes."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from samba_rl import SafePendulum, UniformPolicy, UserError, rollout
from samba_rl.report.film import GAP, film, joined, save_film, save_picture, strip


def test_film_shows_the_states_of_the_trace(tmp_path: Path) -> None:
    task = SafePendulum()
    traces = rollout(task.world(), UniformPolicy((-2.0,), (2.0,)), 3, 8, generator=torch.Generator().manual_seed(0))
    frames = film(task, traces, episode=2, size=48)
    assert len(frames) == 9
    for t, frame in enumerate(frames):
        assert np.array_equal(frame, task.draw(traces.x[2, t], traces.u[2, t - 1] if t else None, 48))
    row = strip(frames, 5)
    assert row.shape == (48, 5 * 48 + 4 * GAP, 3)
    assert np.array_equal(row[:, :48], frames[0]) and np.array_equal(row[:, -48:], frames[-1])
    save_picture(row, tmp_path / "a" / "row.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a" / "row.png")), row)
    save_film(frames, tmp_path / "film.gif", task.dt)
    with Image.open(tmp_path / "film.gif") as moving:
        assert getattr(moving, "n_frames", 1) >= 8 and moving.info["duration"] == 50


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*/file/x/row\.png"):
        save_picture(np.zeros((4, 4, 3), dtype=np.uint8), tmp_path / "file" / "x" / "row.png")
    (tmp_path / "film.mp4").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*/film\.mp4: Is a directory"):
        save_film(SQUARES, tmp_path / "film.mp4", 0.05)


# Imported as the package does it, because imageio-ffmpeg has no types.
imageio_ffmpeg = importlib.import_module("imageio_ffmpeg")
SQUARES = [np.full((32, 32, 3), grey, dtype=np.uint8) for grey in (20, 120, 220)]


def read_back(path: Path) -> tuple[dict[str, Any], np.ndarray[Any, np.dtype[np.uint8]]]:
    """Return the metadata of a film and its frames [n, height, width, 3]."""
    reader = imageio_ffmpeg.read_frames(str(path))
    about: dict[str, Any] = next(reader)
    frames = [np.frombuffer(frame, dtype=np.uint8) for frame in reader]
    width, height = about["size"]
    return about, np.stack(frames).reshape(-1, height, width, 3)


# imageio-ffmpeg's reader leaves its pipes to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("shape", [(64, 96), (33, 47)])
def test_mp4_has_every_frame_at_the_rate_of_the_system(tmp_path: Path, shape: tuple[int, int]) -> None:
    height, width = shape
    frames = [np.full((height, width, 3), 20 * i, dtype=np.uint8) for i in range(12)]
    save_film(frames, tmp_path / "new" / "film.MP4", 0.04)
    about, found = read_back(tmp_path / "new" / "film.MP4")
    assert about["codec"] == "h264" and about["pix_fmt"].startswith("yuv420p") and about["fps"] == 25
    # Odd sizes are padded by a line, not stretched.
    assert found.shape == (12, height + height % 2, width + width % 2, 3)
    for i, frame in enumerate(found):
        assert np.abs(frame.astype(int) - 20 * i).max() <= 6


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("dt", "rate"), [(0.001, 50), (300.0, 1)])
def test_very_fast_and_very_slow_systems_can_be_watched(tmp_path: Path, dt: float, rate: int) -> None:
    save_film(SQUARES, tmp_path / "film.mp4", dt)
    about, found = read_back(tmp_path / "film.mp4")
    assert about["fps"] == rate and len(found) == 3
    save_film(SQUARES, tmp_path / "film.gif", dt)
    with Image.open(tmp_path / "film.gif") as moving:
        assert moving.info["duration"] == 1000 / rate


def test_there_is_a_pause_between_episodes(tmp_path: Path) -> None:
    dark, bright = [SQUARES[0], SQUARES[1]], [SQUARES[2]]
    frames = joined([dark, bright, dark], 0.2)
    greys = [int(frame[0, 0, 0]) for frame in frames]
    assert greys == [20, 120, 120, 120, 120, 220, 220, 220, 220, 20, 120]
    assert joined([dark], 0.2) == dark
    save_film(frames, tmp_path / "film.gif", 0.2)
    with Image.open(tmp_path / "film.gif") as moving:
        durations = []
        for i in range(getattr(moving, "n_frames", 1)):
            moving.seek(i)
            durations.append(moving.info["duration"])
    assert durations == [200, 800, 800, 200, 200]


@pytest.mark.parametrize("name", ["film.avi", "film", "film.png"])
def test_other_kinds_of_film_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"'{name}'; its name must end in \.mp4 or \.gif"):
        save_film(SQUARES, tmp_path / name, 0.05)


def test_a_missing_video_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ModuleNotFoundError("no", name=name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(UserError, match=r"'imageio_ffmpeg'; install it with: pip install 'samba-rl\[video\]'"):
        save_film(SQUARES, tmp_path / "film.mp4", 0.05)
    assert not (tmp_path / "film.mp4").exists()


def test_the_error_without_ffmpeg_suggests_a_gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **more: Any) -> Any:
        raise RuntimeError("No ffmpeg exe could be found")

    monkeypatch.setattr(imageio_ffmpeg, "write_frames", refuse)
    with pytest.raises(UserError, match=r"film\.mp4: No ffmpeg exe could be found; write a \.gif instead"):
        save_film(SQUARES, tmp_path / "film.mp4", 0.05)
