"""Cells on a Ray cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from samba_rl.benchmark.cells import read_results
from samba_rl.benchmark.running import run_cell
from tests.threads import one_thread


@pytest.mark.filterwarnings("ignore")
def test_cells_on_a_real_ray(tmp_path: Path) -> None:
    """Run Ray in a process of its own, because it leaves threads and settings behind."""
    pytest.importorskip("ray")
    program = f"""
import ray
from pathlib import Path
from samba_rl.benchmark.cluster import RayBackend
from samba_rl.benchmark.grid import Grid, GridRun, Progressed
ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False)
run = GridRun(Grid(("ppo", "trpo"), ("safe-pendulum",), 1, preset="smoke").cells(), Path({str(tmp_path)!r}))
backend = RayBackend("auto", steps=100)
assert backend.slots == 2
assert [RayBackend("auto", "cuda", per_gpu=count).slots for count in (1, 2, 8)] == [1, 2, 2]  # there are two cores
assert RayBackend("auto", "cuda", per_gpu=8)._resources == {{"num_cpus": 1, "num_gpus": 1 / 8}}
heard, poll = [], backend.poll
def listen(timeout):
    messages = poll(timeout)
    heard.extend(messages)
    return messages
backend.poll = listen
failed = run.run(backend)
assert not failed, failed
# Cells this short may end before the first poll, but their progress arrives nevertheless.
for cell in run.states:
    shares = [message.share for message in heard if isinstance(message, Progressed) and message.cell == cell]
    assert len(shares) > 1 and 0 < shares[0] < 1 == shares[-1] and shares == sorted(shares), shares
"""
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{time.monotonic() - begin:.0f} s: {done.stderr[-3000:]}"
    (tmp_path / "here").mkdir()
    with one_thread():
        for result in read_results(tmp_path):
            here = run_cell(result.cell, tmp_path / "here" / result.cell.name, steps=100)
            assert here.with_noise == result.with_noise
