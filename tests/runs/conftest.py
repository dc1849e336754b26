"""Runs that several tests look at."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_rl.runs import Run, train
from tests.threads import one_thread


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="session")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A smoke run on Safe Pendulum, in a folder. Not to be changed."""
    with one_thread():
        return train("safe-pendulum", preset="smoke", seed=3, out=tmp_path_factory.mktemp("runs") / "pendulum")


@pytest.fixture
def folder(pendulum: Run, tmp_path: Path) -> Path:
    """A copy of its folder, to be damaged."""
    assert pendulum.folder is not None
    return Path(shutil.copytree(pendulum.folder, tmp_path / "copy"))
