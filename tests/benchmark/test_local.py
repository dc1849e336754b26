"""Cells in processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from samba_rl.benchmark.cells import read_result
from samba_rl.benchmark.grid import Backend, Grid, GridRun
from samba_rl.benchmark.local import LocalBackend
from samba_rl.benchmark.running import _when_free, run_cell
from samba_rl.errors import UserError
from samba_rl.runs import Run
from samba_rl.runs.lock import InUse
from tests.benchmark.results import PENDULUM
from tests.threads import one_thread


@pytest.fixture(autouse=True, scope="module")
def single() -> Iterator[None]:
    """Use one thread, as a cell's process does; with more, sums are taken in another order."""
    with one_thread():
        yield


def finish(run: GridRun, backend: Backend) -> list[str]:
    return [state.why for state in run.run(backend)]


def test_processes_give_the_same_results_as_this_one(tmp_path: Path) -> None:
    cells = Grid(("ppo", "cpo"), (PENDULUM,), 1, preset="smoke").cells()
    assert finish(GridRun(cells, tmp_path / "results"), LocalBackend(2, tmp_path / "runs", steps=100)) == []
    for cell in cells:
        there = read_result(tmp_path / "results" / f"{cell.name}.json")
        here = run_cell(cell, tmp_path / "here" / cell.name, steps=100)
        assert (there.with_noise, there.curve) == (here.with_noise, here.curve)
        assert (tmp_path / "runs" / cell.name / "summary.json").exists()


def test_a_killed_process_is_reported_and_its_cell_resumed(tmp_path: Path) -> None:
    (cell,) = Grid(("samba",), (PENDULUM,), 1, preset="smoke").cells()
    backend = LocalBackend(1, tmp_path / "runs", steps=100)
    run, seen = GridRun([cell], tmp_path / "results"), []

    def tell(run: GridRun) -> None:
        state = run.states[cell]
        if state.why:
            seen.append(state.why)
        journal = tmp_path / "runs" / cell.name / "real.journal"
        if not seen and journal.exists() and backend._running:
            os.kill(backend._running[0].process.pid or 0, signal.SIGKILL)

    assert run.run(backend, tell) == []
    assert seen[0] == "its process ended without a result (SIGKILL)" and run.states[cell].attempts == 2
    whole = run_cell(cell, tmp_path / "whole", steps=100)
    assert read_result(tmp_path / "results" / f"{cell.name}.json").with_noise == whole.with_noise


BENCHMARK = """
import sys
from pathlib import Path
from samba_rl.benchmark.cells import Cell
from samba_rl.benchmark.local import LocalBackend
if __name__ == "__main__":
    backend = LocalBackend(1, Path(sys.argv[1]))
    backend.start(Cell("safe-pendulum", "samba", 0))
    print(backend._running[0].process.pid, flush=True)
    backend.poll(600)
"""


def test_a_cell_ends_with_the_benchmark_that_started_it(tmp_path: Path) -> None:
    """Without waiting for its next message, which may take minutes."""
    (tmp_path / "start.py").write_text(BENCHMARK)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "start.py"), str(tmp_path)],
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert parent.stdout is not None
    cell = int(parent.stdout.readline())
    deadline = time.monotonic() + 60
    while not any(tmp_path.glob("*/real.journal")):
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{cell}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cell_waits_for_a_folder_that_is_still_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def resumed() -> Run:
        tries.append(1)
        if len(tries) < 3:
            raise InUse("x is in use")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _when_free(resumed)
    assert len(tries) == 3
    monkeypatch.setattr("samba_rl.benchmark.running.LOCK_SECONDS", 0.0)
    tries.clear()
    with pytest.raises(InUse):
        _when_free(resumed)


def test_an_error_in_a_cell_is_reported(tmp_path: Path) -> None:
    (cell,) = Grid(("samba",), (PENDULUM,), 1, preset="smoke").cells()
    (tmp_path / "runs").write_text("a file where the folder should be")
    (why,) = finish(GridRun([cell], tmp_path / "results"), LocalBackend(1, tmp_path / "runs", steps=100))
    assert "runs" in why and "Error" in why


def test_zero_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="jobs = 0; at least 1 is needed"):
        LocalBackend(0, tmp_path)
