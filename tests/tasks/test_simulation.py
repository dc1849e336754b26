"""Simulations in processes: order of results, failures and dead processes."""

import os
import signal

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
        if u[0] == 1.0:
            return Outcome(np.zeros(3), 1.0, (0.25,), (False,))
        if u[0] == 0.5:
            return Outcome(np.zeros(2), 1.0, (0.25, 0.25), (False,))
        return Outcome(
            np.array([slot, float(self.steps[slot])]), 1.0 + slot, (0.25,), (slot == 1,), slot == 2, slot == 3
        )

    def render(self, slot: int, size: int) -> NDArray[np.uint8]:
        return np.full((size, size, 3), slot, dtype=np.uint8)

    def close(self) -> None:
        self.steps.clear()


class Odometer(Counter):
    """Also counts steps across resets."""

    def __init__(self) -> None:
        super().__init__()
        self.total: dict[int, int] = {}

    def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
        outcome = super().step(slot, u)
        self.total[slot] = self.total.get(slot, 0) + 1
        return outcome

    def state(self, slot: int) -> dict[str, NDArray[np.int64]] | None:
        return {"total": np.array(self.total.get(slot, 0))} if slot != 1 else None

    def set_state(self, slot: int, state: dict[str, NDArray[np.int64]]) -> None:
        self.total[slot] = int(state["total"])


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
    # Measured costs are used as they are, not computed again.
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
    # Answers still belong to the right calls afterwards.
    assert world.step(x, actions(4)).x[:, 0].tolist() == [0, 1, 2, 3]
    world.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_every_episode_fails_alone(workers: int) -> None:
    world = SimulatedWorld(TASK, Counter, workers)
    x = world.reset(6, Generator().manual_seed(0))
    u = torch.tensor([[0.0], [2.0], [-2.0], [1.0], [0.5], [0.0]], dtype=torch.float64)
    step, failures = world.try_step(x, u)
    assert list(failures) == [1, 2, 3, 4]
    assert isinstance(failures[1], RuntimeError) and "slot 1 broke" in str(failures[1])
    assert [str(failures[i]) for i in (2, 3, 4)] == [
        "slot 2 was misused",
        "safe-pendulum: step returned a state of shape [3]; expected [2]",
        "safe-pendulum: step returned safety costs of shape [2]; expected [1]",
    ]
    assert all(isinstance(failures[i], UserError) for i in (2, 3, 4))
    assert step.x.tolist() == [[0, 1], [1, 0], [2, 0], [3, 0], [4, 0], [5, 1]]
    assert step.charges.cost.tolist() == [1, 0, 0, 0, 0, 6] and not bool(step.terminated.any())
    step, failures = world.try_step(x, actions(6, 2.0), torch.zeros(6, dtype=torch.bool))
    assert failures == {} and torch.equal(step.x, x)
    world.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_state_kept_across_resets_can_be_restored(workers: int) -> None:
    world = SimulatedWorld(TASK, Odometer, workers)
    assert world.state_dict() == {}
    x = world.reset(5, Generator().manual_seed(0))
    for k in range(3):
        world.step(x, actions(5), torch.arange(5) >= k)
    world.reset(3, Generator().manual_seed(0))
    state = world.state_dict()
    # Simulations that are idle at the moment are included; the second one keeps nothing.
    assert {key: int(value) for key, value in state.items()} == {
        "episodes": 5,
        "0/total": 1,
        "2/total": 3,
        "3/total": 3,
        "4/total": 3,
    }
    world.reset(5, Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match="slot 3 broke"):
        world.step(x, actions(5, 2.0, at=3))
    # A failed simulation is replaced; the other process loses nothing.
    sound = {"episodes": 5, "0/total": 2, "2/total": 4, "4/total": 4} if workers else {}
    assert {key: int(value) for key, value in world.state_dict().items()} == sound
    world.reset(5, Generator().manual_seed(0))
    fresh = {"episodes": 5, "0/total": 0, "2/total": 0, "3/total": 0, "4/total": 0}
    assert {key: int(value) for key, value in world.state_dict().items()} == {**fresh, **sound}
    # In the same simulations, only the kept state is restored.
    world.load_state_dict(state)
    assert world.state_dict() == state
    world.reset(5, Generator().manual_seed(0))
    world.step(x, actions(5))
    assert int(world.state_dict()["4/total"]) == 4
    world.close()


def test_a_state_that_does_not_fit_is_refused() -> None:
    world = SimulatedWorld(TASK, Odometer, 0)
    one = torch.tensor(1)
    for key in ("3/total", "total", "x/total", "0/"):
        with pytest.raises(
            UserError, match=f"of 3 episodes has an unexpected entry '{key}'; pass the dict that state_dict"
        ):
            world.load_state_dict({"episodes": torch.tensor(3), key: one})
    with pytest.raises(UserError, match="of 0 episodes has an unexpected entry '0/total'"):
        world.load_state_dict({"0/total": one})
    with pytest.raises(UserError, match="this simulation keeps no state across resets"):
        SimulatedWorld(TASK, Counter, 0).load_state_dict({"episodes": one, "0/total": one})


def test_measured_values_keep_their_precision() -> None:
    class Exact(Counter):
        def step(self, slot: int, u: NDArray[np.float64]) -> Outcome:
            return Outcome(np.array([0.1, 1e-300]), 0.1, (1 / 3,), (False,))

    world = SimulatedWorld(TASK, Exact, 0)
    step = world.step(world.reset(1, Generator()), actions(1))
    assert float(step.charges.cost[0]) == 0.1 and float(step.charges.safety[0, 0]) == 1 / 3


def test_a_simulation_that_cannot_be_made_says_why() -> None:
    class Missing(Counter):
        def __init__(self) -> None:
            raise UserError("needs the package 'nowhere'")

    for workers in (0, 1):
        world = SimulatedWorld(TASK, Missing, workers)
        world.timeout = 5.0
        for _ in range(1 if workers else 2):
            with pytest.raises(UserError, match="needs the package 'nowhere'"):
                world.reset(2, Generator())
        world.close()


def test_a_dead_process_is_reported() -> None:
    world = SimulatedWorld(TASK, Counter, 2)
    x = world.reset(2, Generator().manual_seed(0))
    with pytest.raises(RuntimeError, match=r"process died \(exit code -9, SIGKILL\)"):
        world.step(x, actions(2, 1.5, at=0))
    with pytest.raises(RuntimeError, match="process died"):
        world.step(x, actions(2))
    world.close()


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(UserError, match="workers = -1"):
        SimulatedWorld(TASK, Counter, -1)
