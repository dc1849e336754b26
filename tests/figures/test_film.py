from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from samba_rl import SafePendulum, UniformPolicy, UserError, rollout
from samba_rl.figures.film import GAP, film, save_film, save_picture, strip


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
