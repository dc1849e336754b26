"""`samba-rl render`."""

from pathlib import Path

import pytest
from PIL import Image

from samba_rl.cli import main
from samba_rl.tasks.render.plain import WIDTH
from tests.cli.commands import DONE, LINE, QUICK, error_of

PARTS = """
def danger(x, u):
    return (x[..., 0].abs() - 1).clamp(0, 1)
"""
MINE = """
from parts import danger

from samba_rl import GymTask
from tests.tasks.own_envs import Drift


def task(env=Drift):
    return GymTask(env, name="drift", cost=lambda x, u: x[..., 0].abs(), safety=danger, horizon=10)


def rig():
    return task(Drift())
"""


@pytest.mark.parametrize(("name", "start"), [("film.gif", b"GIF89a"), ("film.mp4", b"\x00\x00\x00")])
def test_render_films_the_policy(smoke_run: Path, tmp_path: Path, name: str, start: bytes) -> None:
    if name.endswith("mp4"):
        pytest.importorskip("imageio_ffmpeg")
    assert main(["render", str(smoke_run), str(tmp_path / "new" / name), "--episodes", "1", "--seed", "4"]) == 0
    assert (tmp_path / "new" / name).read_bytes().startswith(start)


def test_a_system_of_ones_own_is_filmed(tmp_path: Path) -> None:
    assert main(["train", LINE, "--preset", "smoke", "--out", str(tmp_path / "run"), *QUICK]) in DONE
    film = str(tmp_path / "film.gif")
    assert main(["render", str(tmp_path / "run"), film, "--task", LINE, "--episodes", "2", "--stochastic"]) == 0


def test_a_gymnasium_environment_is_filmed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "mine.py").write_text(MINE)
    mine, run, film = f"{tmp_path / 'mine.py'}:task", str(tmp_path / "run"), str(tmp_path / "film.gif")
    short = ["--preset", "smoke", "--real-samples", "30", "--first.samples", "20", "--workers", "0", *QUICK]
    assert main(["train", mine, "--learner", "ppilco", "--out", run, *short]) == 0
    assert main(["render", run, film, "--task", mine, "--episodes", "1"]) == 0
    assert "drift does not draw itself here" in capsys.readouterr().out
    with Image.open(film) as moving:
        assert moving.size[0] == WIDTH and getattr(moving, "n_frames", 1) > 5
    rig = f"{tmp_path / 'mine.py'}:rig"
    assert "runs one episode at a time; say how many" in error_of(["render", run, film, "--task", rig], capsys)
    assert main(["render", run, film, "--task", rig, "--episodes", "1"]) == 0


def test_mistakes_get_one_line(smoke_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(tmp_path / "film.avi")], "its name must end in .mp4 or .gif"),
        ([str(tmp_path / "film.gif"), "--episodes", "0"], "episodes = 0: must be at least 1 and at most 1e7"),
        ([], "FILM"),
    ):
        assert message in error_of(["render", str(smoke_run), *arguments], capsys)
