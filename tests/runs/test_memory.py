"""Memory stays within bounds: with thousands of real transitions, and over hundreds of iterations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GIB = 2**30

BEGIN = """
import json, resource, sys
import torch
from samba_rl import UniformPolicy, make_task, rollout
from samba_rl.data import DataSet
from samba_rl.agents.agent import schema_of
from samba_rl.events import TrialReport
from samba_rl.runs import train
from tests.line import Line

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
"""

LARGE = """
task = make_task("safe-cart-pole-double-pendulum")
policy = UniformPolicy((-20.0,), (20.0,))
traces = rollout(task.world(), policy, 170, generator=torch.Generator().manual_seed(0))
data = DataSet.empty(schema_of(task)).append(traces)
run = train(
    task, seed=0, out=sys.argv[1], data=data, real_samples=30, episodes=1, first={"samples": 0},
    imagination={"trajectories": int(sys.argv[3]), "iterations": 1, "last_iterations": 1, "candidates": 1},
    feasibility_iterations=1, model={"fit": {"iterations": 2, "points": 500}, "sparse_above": int(sys.argv[2])},
    update={"minibatch": 90_000},
)
print(json.dumps({"points": len(run.model), "kind": run.model.report.kind, "peak": peak()}))
"""

LONG = """
sizes = []
def log(event):
    if isinstance(event, TrialReport):
        sizes.append(resident())
# With inducing points a model of 400 transitions takes no more memory than one of 40.
train(Line(horizon=2), preset="smoke", real_samples=404, first={"samples": 4}, out=sys.argv[1], log=log,
      checkpoint_every=0.0, model={"sparse_above": 3, "inducing": 3, "fit": {"points": 20, "iterations": 10}})
print(json.dumps({"sizes": sizes}))
"""


def measured(script: str, *arguments: object) -> dict[str, Any]:
    """Run a script in a process; return the JSON on its last line."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sparse_above", "trajectories"),
    # An exact model of this size takes half an hour for 90,000 steps, and the memory that it needs for itself.
    [("sparse", 3000, 3000), ("exact", 10_000, 100)],
)
def test_5000_transitions_and_90000_imagined_steps_take_less_than_4_gib(
    kind: str, sparse_above: int, trajectories: int, tmp_path: Path
) -> None:
    found = measured(LARGE, tmp_path / "run", sparse_above, trajectories)
    assert found["points"] >= 5000 and found["kind"] == kind
    print(f"{kind}: {found['peak'] / GIB:.2f} GiB")
    assert found["peak"] < 4 * GIB


@pytest.mark.slow
def test_memory_does_not_grow_over_200_iterations(tmp_path: Path) -> None:
    sizes = measured(LONG, tmp_path / "run")["sizes"]
    assert len(sizes) == 201
    growth = (sizes[-1] - sizes[50]) / 150
    print(
        f"{sizes[50] / 1e6:.1f} MB after 50 iterations, {sizes[-1] / 1e6:.1f} MB after 200: {growth / 1e3:.1f} kB each"
    )
    assert sizes[-1] - sizes[50] < 3e6
