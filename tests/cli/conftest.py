"""Fixtures for the tests of the commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_rl.cli import main
from tests.cli.commands import DONE
from tests.threads import one_thread


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a smoke run from the command line. Not to be changed."""
    out = tmp_path_factory.mktemp("cli") / "run"
    with one_thread():
        assert main(["train", "safe-pendulum", "--preset", "smoke", "--seed", "2", "--out", str(out)]) in DONE
    return out
