"""Simulations that end their process: the run outlives them, says so, and keeps what was measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from samba_rl.data.journal import Journal
from samba_rl.errors import Paused
from samba_rl.improve.policies import UniformPolicy
from samba_rl.runs import resume, train
from samba_rl.tasks.faults.guard import GuardedWorld
from samba_rl.tasks.gym.task import GymTask
from samba_rl.tasks.rollout import rollout
from samba_rl.types import Traces
from tests.runs.deadly import Deadly, Dice
from tests.runs.systems import cost, edge
from tests.threads import one_thread

ROOT = Path(__file__).parents[2]


def system(make: Callable[[], gymnasium.Env[Any, Any]]) -> GymTask:
    return GymTask(make, cost=cost, safety=edge, horizon=10)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


HOW: dict[str, Any] = {
    "preset": "smoke", "seed": 1, "real_samples": 40, "episodes": 1, "first": {"samples": 10, "how": "uniform"},
}  # fmt: skip
ENDS = {
    "exit": "step 3 failed: a simulation process died (exit code 3)",
    "abort": "step 3 failed: a simulation process died (exit code -6, SIGABRT)",
    "segfault": "step 3 failed: a simulation process died (exit code -11, SIGSEGV)",
    "reset": "reset failed: a simulation process died (exit code 5)",
}


@pytest.mark.parametrize(
    "how", ["abort", *(pytest.param(name, marks=pytest.mark.slow) for name in ("exit", "segfault", "reset"))]
)
def test_a_simulation_that_dies_pauses_a_run_with_single_episodes(how: str, tmp_path: Path) -> None:
    folder, ill, well = tmp_path / "run", system(lambda: Deadly(how)), system(lambda: Deadly(""))
    with pytest.raises(Paused) as pause:
        train(ill, "ppo", out=folder, **HOW)
    assert str(pause.value) == f"{ill.name}: {ENDS[how]}. Put the system in order before the run continues"
    kept = Journal.read(folder / "real.journal").find(0, 0)
    assert kept is not None and isinstance(kept.steps, Traces)
    assert kept.steps.steps == (0 if how == "reset" else 3)
    run = resume(folder, well)
    assert len(run.data) == run.summary["real_samples"] == (40 if how == "reset" else 33)


def test_single_episodes_are_the_same_here_and_in_a_process_of_their_own() -> None:
    task, both = system(lambda: Deadly("")), []
    for workers in (0, 1):
        world = GuardedWorld(task.world(workers))
        both.append(rollout(world, UniformPolicy((-1.0,), (1.0,)), 1, generator=torch.Generator().manual_seed(3)).x)
        world.close()
    assert torch.equal(*both)


def test_a_simulation_that_uses_the_random_numbers_of_its_process_can_be_repeated() -> None:
    starts = []
    for _ in range(2):
        world = GuardedWorld(system(Dice).world(1))
        starts.append([float(world.reset(1, torch.Generator().manual_seed(seed))) for seed in (1, 2)])
        world.close()
    assert starts[0] == starts[1] and starts[0][0] != starts[0][1]


def test_a_system_that_cannot_be_sent_to_a_process_runs_here() -> None:
    lock = threading.Lock()

    def make() -> Deadly:
        with lock:
            return Deadly("")

    world = GuardedWorld(system(make).world(1))
    for n in (1, 2):
        assert world.reset(n, torch.Generator().manual_seed(0)).shape == (n, 1)
    world.close()
