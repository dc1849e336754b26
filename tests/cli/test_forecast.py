"""`samba-rl forecast`: the fan chart of a run."""

from pathlib import Path

import pytest

from samba_rl.cli import main
from tests.cli.commands import error_of

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("extra", [[], ["--trial", "1"], ["--real", "2", "--deterministic"]])
def test_a_run_is_drawn(extra: list[str], smoke_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "fan.png"
    assert main(["forecast", str(smoke_run), "-o", str(out), "--trajectories", "50", *extra]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--trial", "99"], "the run has the trials 0 to"),
        (["--trial", "0", "--real", "1"], "give one of the two"),
        (["--trajectories", "1"], "trajectories = 1: must be at least 2"),
        (["-o", "fan.gif"], "must end in .png, .pdf or .svg"),
        (["--components", "speed"], "has no state component 'speed'"),
    ],
)
def test_mistakes_are_explained(
    extra: list[str],
    message: str,
    smoke_run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert message in error_of(["forecast", str(smoke_run), *extra], capsys)
