import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from samba_rl import SafeCartPoleDoublePendulum, SafePendulum, UniformPolicy, UserError, rollout
from samba_rl.tasks.task import Task
from samba_rl.tasks.world import Step

RANDOM = UniformPolicy((-2.0,), (2.0,))


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def test_traces_agree_with_the_task() -> None:
    task = SafePendulum()
    traces = rollout(task.world(), RANDOM, 40, generator=seeded(0))
    assert traces.x.shape == (40, 31, 2) and traces.u.shape == (40, 30, 1) and traces.safety.shape == (40, 30, 1)
    for t in range(30):
        on = traces.active[:, t]
        x, u, after = traces.x[on, t], traces.u[on, t], traces.x[on, t + 1]
        assert torch.allclose(task.step(x, u), after)
        assert torch.allclose(traces.cost[on, t], task.cost(x, u))  # the state that the step leaves
        assert torch.allclose(traces.safety[on, t], task.safety(after))  # the state that it reaches
        assert torch.equal(traces.violation[on, t], task.violation(after))
    assert torch.allclose(traces.returns, -traces.cost.sum(1))
    assert torch.allclose(traces.safety_costs, traces.safety.sum(1))


def test_cost_of_the_double_pendulum_is_that_of_the_state_reached() -> None:
    task = SafeCartPoleDoublePendulum()
    traces = rollout(task.world(), UniformPolicy((-20.0,), (20.0,)), 5, 4, generator=seeded(0))
    assert torch.allclose(traces.cost[:, 2], task.cost(traces.x[:, 3], traces.u[:, 2]))


def balance(observation: Tensor, generator: Generator) -> Tensor:
    """Feedback that holds the pendulum upright."""
    angle = torch.atan2(observation[:, 1], observation[:, 0])
    return (-12 * angle - 3 * observation[:, 2])[:, None]


def test_an_episode_ends_once_balanced_and_stays_there() -> None:
    task = SafePendulum()
    traces = rollout(task.world(), balance, 400, generator=seeded(1))
    assert 0 < int(traces.terminated.sum()) < 400
    lengths = traces.active.sum(1)
    for i in traces.terminated.nonzero()[:, 0].tolist():
        end = int(lengths[i])
        assert bool((traces.cost[i, end - 5 : end] <= 0.01).all())
        # No earlier five costs in a row were that low.
        good = (traces.cost[i, : end - 1] <= 0.01).tolist()
        assert all(not all(good[k : k + 5]) for k in range(len(good) - 4))
        assert torch.equal(traces.x[i, end:], traces.x[i, end].expand(31 - end, 2))
        assert float(traces.cost[i, end:].sum()) == 0 and float(traces.safety[i, end:].sum()) == 0
    assert bool((lengths[~traces.terminated] == 30).all())
    assert traces.steps == int(lengths.sum())


def test_actions_outside_the_bounds_are_clipped_and_counted() -> None:
    def wild(observation: Tensor, generator: Generator) -> Tensor:
        return torch.where(observation[:, :1] > 0, 50.0, 1.0)

    traces = rollout(SafePendulum().world(), wild, 50, 10, generator=seeded(0))
    assert float(traces.u.abs().max()) == 2
    pushed = (traces.x[:, :-1, 0].cos() > 0) & traces.active
    assert torch.equal(traces.clipped, pushed)


def test_seeds_repeat() -> None:
    world = SafePendulum().world()
    first, again, other = (rollout(world, RANDOM, 5, generator=seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.x, again.x) and torch.equal(first.u, again.u)
    assert not torch.equal(first.x, other.x)


def test_bad_requests() -> None:
    world = SafePendulum().world()
    with pytest.raises(UserError, match="0 episodes of 30 steps"):
        rollout(world, RANDOM, 0, generator=seeded(0))
    with pytest.raises(UserError, match="3 episodes of 0 steps"):
        rollout(world, RANDOM, 3, 0, generator=seeded(0))
    with pytest.raises(UserError, match="'torque', is nan"):
        rollout(world, lambda o, g: torch.full((len(o), 1), math.nan), 3, generator=seeded(0))


class Failing:
    """The pendulum's world, in which episodes 1 and 2 fail at steps 3 and 0."""

    def __init__(self) -> None:
        self.task: Task = SafePendulum()
        self.inner = self.task.world()
        self.count = 0

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        return self.inner.reset(n, generator, slots=slots, x=x)

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        step = self.inner.step(x, u, active)
        failed = torch.tensor([False, self.count == 3, self.count == 0])
        self.count += 1
        return step._replace(failed=failed) if bool(failed.any()) else step

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        return self.inner.render(x, u, slot, size)

    def close(self) -> None:
        pass


def test_a_failed_step_is_not_taken_and_ends_the_episode() -> None:
    whole = rollout(SafePendulum().world(), RANDOM, 3, 8, generator=seeded(0))
    traces = rollout(Failing(), RANDOM, 3, 8, generator=seeded(0))
    assert traces.active.sum(1).tolist() == [8, 3, 0] and not bool(traces.terminated.any())
    for i, steps in enumerate([8, 3, 0]):
        assert torch.equal(traces.x[i, : steps + 1], whole.x[i, : steps + 1])
        assert torch.equal(traces.cost[i, :steps], whole.cost[i, :steps])
        assert torch.equal(traces.x[i, steps:], traces.x[i, steps].expand(9 - steps, 2))
        assert not bool(traces.cost[i, steps:].any()) and not bool(traces.safety[i, steps:].any())
    transitions = traces.transitions()
    assert len(transitions) == 11 and not bool(transitions.terminated.any())


def test_transitions_are_the_steps_that_took_place() -> None:
    traces = rollout(SafePendulum().world(), balance, 60, generator=seeded(1))
    steps = traces.transitions(first_episode=100)
    assert len(steps) == traces.steps and int(steps.terminated.sum()) == int(traces.terminated.sum()) > 0
    k = 0
    for i in range(60):
        length = int(traces.active[i].sum())
        part = slice(k, k + length)
        assert torch.equal(steps.x[part], traces.x[i, :length])
        assert torch.equal(steps.x_next[part], traces.x[i, 1 : length + 1])
        assert torch.equal(steps.u[part], traces.u[i, :length]) and torch.equal(
            steps.cost[part], traces.cost[i, :length]
        )
        assert steps.episode[part].tolist() == [100 + i] * length and steps.step[part].tolist() == list(range(length))
        assert steps.terminated[part].tolist() == [False] * (length - 1) + [bool(traces.terminated[i])]
        k += length


def test_the_pendulums_run_without_gymnasium_and_mujoco() -> None:
    script = """
import sys
sys.modules.update(dict.fromkeys(["gymnasium", "mujoco", "gymnasium_robotics"]))
import torch
from samba_rl.improve.policies import UniformPolicy
from samba_rl.tasks import make_task
from samba_rl.tasks.faults.guard import GuardedWorld
from samba_rl.tasks.rollout import rollout
for name in ("safe-pendulum", "safe-cart-pole-double-pendulum"):
    task = make_task(name, horizon=4)
    low, high = (tuple(bound.tolist()) for bound in task.action_bounds())
    traces = rollout(GuardedWorld(task.world()), UniformPolicy(low, high), 3, generator=torch.Generator())
    print(*traces.x.shape)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert result.stdout.splitlines() == ["3 5 2", "3 5 6"], result.stderr
