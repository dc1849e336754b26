"""Runs and checkpoints that several tests look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_rl.events import ImprovementReport, TrialReport
from samba_rl.runs import Run, train
from tests.line import Line
from tests.runs.checkpoints import write
from tests.runs.interrupted import SEED, reports, stopped
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


@pytest.fixture(scope="session")
def whole() -> Run:
    with one_thread():
        return train(Line(), preset="smoke", seed=SEED)


@pytest.fixture(scope="session")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in the middle of an improvement, with two checkpoints. Not to be changed."""
    folder = tmp_path_factory.mktemp("half") / "run"
    with one_thread():
        stopped(folder, lambda events: reports(events, TrialReport) >= 3 and reports(events, ImprovementReport) >= 5,
                checkpoint_every=0.0)  # fmt: skip
    return folder


@pytest.fixture
def copy(half: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(half, tmp_path / "copy"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run with two checkpoints, of the states 1 and 2."""
    write(tmp_path, 1, 2)
    return tmp_path
