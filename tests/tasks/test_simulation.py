"""Simulations in processes: order, failures, death."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator

from samba_rl import SafePendulum, UserError
from samba_rl.tasks.simulation import Outcome, SimulatedWorld

TASK = SafePendulum()


class Counter:
    """Counts steps by slot: the state is (slot, steps)."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}

    def reset(self, slot: int, seed: int, x: NDArray[np.float64] | None) -> NDArray[np.float64]:
        self.steps[slot] = 0
        return np.array([slot, 0.0]) if x is None else x

    def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
        if u[0] == 2.0:
            raise RuntimeError(f"slot {slot} broke")
        if u[0] == -2.0:
            raise UserError(f"slot {slot} was misused")
        if u[0] == 1.5:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps[slot] += 1
        return Outcome(
            np.array([slot, float(self.steps[slot])]), 1.0 + slot, (0.25,), (slot == 1,), slot == 2, slot == 3
        )

    def render(self, slot: int, size: int) -> NDArray[np.uint8]:
        return np.full((size, size, 3), slot, dtype=np.uint8)

    def close(self) -> None:
        self.steps.clear()


def actions(n: int, value: float = 0.0, at: int | None = None) -> torch.Tensor:
    u = torch.zeros(n, 1, dtype=torch.float64)
    u[slice(None) if at is None else at] = value
    return u


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_results_come_in_the_order_of_the_episodes(workers: int) -> None:
    world = SimulatedWorld(TASK, Counter, workers)
    x = world.reset(5, Generator().manual_seed(0))
    assert x.tolist() == [[i, 0] for i in range(5)]
    step = world.step(x, actions(5))
    assert step.x.tolist() == [[i, 1] for i in range(5)]
    # What was measured is taken as it is, not computed anew.
    assert step.charges.cost.tolist() == [1, 2, 3, 4, 5]
    assert step.charges.safety.tolist() == [[0.25]] * 5
    assert step.charges.violation[:, 0].tolist() == [False, True, False, False, False]
    assert step.terminated.tolist() == [False, False, True, False, False]
    assert step.truncated.tolist() == [False, False, False, True, False]
    active = torch.tensor([True, False, True, False, True])
    step = world.step(step.x, actions(5), active)
    assert step.x[:, 1].tolist() == [2, 1, 2, 1, 2]
    assert step.charges.cost.tolist() == [1, 0, 3, 0, 5]
    assert world.reset(2, Generator(), slots=torch.tensor([3, 1])).tolist() == [[3, 0], [1, 0]]
    assert world.step(step.x, actions(5)).x[:, 1].tolist() == [3, 1, 3, 1, 3]
    assert world.render(step.x[4], None, 4, 8)[0, 0, 0] == 4
    nothing = world.step(step.x, actions(5), torch.zeros(5, dtype=torch.bool))
    assert torch.equal(nothing.x, step.x) and not nothing.charges.cost.any()
    world.close()


def test_a_failure_names_the_cause_and_the_others_go_on() -> None:
    world = SimulatedWorld(TASK, Counter, 2)
    x = world.reset(4, Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match="slot 1 broke"):
        world.step(x, actions(4, 2.0, at=1))
    with pytest.raises(UserError, match="slot 2 was misused"):
        world.step(x, actions(4, -2.0, at=2))
    # Answers and questions still belong together after that.
    assert world.step(x, actions(4)).x[:, 0].tolist() == [0, 1, 2, 3]
    world.close()


def test_a_dead_process_is_reported_with_the_way_out() -> None:
    world = SimulatedWorld(TASK, Counter, 2)
    x = world.reset(2, Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match=r"process died \(exit code -9\).*workers=0"):
        world.step(x, actions(2, 1.5, at=0))
    with pytest.raises(RuntimeError, match="process died"):
        world.step(x, actions(2))
    world.close()


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(UserError, match="workers = -1"):
        SimulatedWorld(TASK, Counter, -1)


def test_a_script_without_a_main_guard_is_told_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch
            from samba_rl import SafeFetchReach
            SafeFetchReach().world(2).reset(2, torch.Generator())
            """
        )
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert result.returncode != 0
    assert 'if __name__ == "__main__":' in result.stderr.splitlines()[-1]
