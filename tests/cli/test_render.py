"""`samba-rl render`."""

from pathlib import Path

import pytest

from samba_rl.cli import main
from tests.cli.commands import DONE, LINE, QUICK, error_of


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


def test_mistakes_get_one_line(smoke_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        ([str(tmp_path / "film.avi")], "its name must end in .mp4 or .gif"),
        ([str(tmp_path / "film.gif"), "--episodes", "0"], "episodes = 0: must be at least 1 and at most 1e7"),
        ([], "FILM"),
    ):
        assert message in error_of(["render", str(smoke_run), *arguments], capsys)
