"""Gymnasium environments as tasks."""

import functools
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from samba_rl import GymTask, UniformPolicy, UserError, rollout
from samba_rl.tasks.gym.adapters import FromSixTuple, ToSixTuple, make_env
from tests.tasks.own_envs import Drift, Goal, danger, first_row_only, with_numpy


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_policy(task: GymTask) -> UniformPolicy:
    low, high = task.action_bounds()
    return UniformPolicy(tuple(low.tolist()), tuple(high.tolist()))


def test_measured_costs_are_the_environments() -> None:
    task = GymTask("OwnDrift-v0")
    assert (task.name, task.horizon, len(task.states), len(task.actions)) == ("OwnDrift-v0", 20, 2, 1)
    world = task.world(workers=0)
    traces = rollout(
        world, lambda observation, generator: torch.full((len(observation), 1), 0.5), 3, generator=seeded()
    )
    world.close()
    position = traces.x[:, 1:, 0]
    assert torch.allclose(traces.cost, position.abs() * traces.active)
    assert torch.allclose(traces.safety[..., 0], (position.abs() - 1).clamp(min=0) * traces.active)
    assert torch.equal(traces.violation[..., 0], (position.abs() > 1) & traces.active)
    # The environment ends the episode beyond 3; nothing is stepped after that.
    assert bool(traces.terminated.all()) and int(traces.active.sum(1).max()) < 8
    with pytest.raises(UserError, match="its cost is measured, not known as a function"):
        task.cost(traces.x[:, 0], traces.u[:, 0])
    with pytest.raises(UserError, match="its safety cost is measured"):
        task.safety(traces.x[:, 0])
    with pytest.raises(UserError, match="has no equations of motion"):
        task.step(traces.x[:, 0], traces.u[:, 0])


def test_functions_take_the_place_of_measurements() -> None:
    def cost(x: Tensor, u: Tensor) -> Tensor:
        return 100 + x[..., 0] + 10 * u[..., 0]

    task = GymTask("OwnPlain-v0", safety=danger, cost=cost, horizon=6)
    world = task.world(workers=0)
    traces = rollout(world, random_policy(task), 4, generator=seeded())
    world.close()
    reached, u = traces.x[:, 1:], traces.u
    assert torch.allclose(traces.cost, cost(reached, u))
    assert torch.allclose(traces.safety[..., 0], danger(reached, u))
    assert task.safety(reached[:, 0]).shape == (4, 1)
    leaving = GymTask("OwnPlain-v0", safety=danger, cost=cost, horizon=6, cost_of="departure")
    traces = rollout(leaving.world(workers=0), random_policy(task), 4, generator=seeded())
    assert torch.allclose(traces.cost, cost(traces.x[:, :-1], traces.u))


def test_violations() -> None:
    """Violations are measured, else any positive safety cost, or computed by a function."""
    push = torch.full((1, 1), 0.5)

    def violations(task: GymTask) -> tuple[list[bool], list[float]]:
        traces = rollout(task.world(workers=0), lambda observation, generator: push, 1, 5, generator=seeded())
        return traces.violation[0, :, 0].tolist(), traces.x[0, 1:, 0].tolist()

    unsafe, at = violations(GymTask(lambda: Drift("violation"), horizon=20))
    assert unsafe == [abs(x) > 1.5 for x in at] and True in unsafe and False in unsafe
    unsafe, at = violations(GymTask("OwnDrift-v0"))
    assert unsafe == [abs(x) > 1 for x in at]
    unsafe, at = violations(GymTask("OwnDrift-v0", violation=lambda x, u: x[..., 0] > 2))
    assert unsafe == [x > 2 for x in at] and True in unsafe


def test_six_tuple_environments_and_back() -> None:
    six: Any = Drift("six")
    five = FromSixTuple(six)
    five.reset(seed=1)
    answer = five.step(np.array([0.5]))
    assert len(answer) == 5 and set(answer[4]) == {"cost", "speed"}
    six.reset(seed=1)
    expected = six.step(np.array([0.5]))
    assert answer[4]["cost"] == expected[2] and answer[1] == expected[1]
    back = ToSixTuple(five)
    back.reset(seed=1)
    observation, reward, cost, terminated, truncated, info = back.step(np.array([0.5]))
    assert (reward, cost, terminated, truncated) == expected[1:5]
    assert np.array_equal(observation, expected[0]) and info["cost"] == cost
    # Our own environments work with code that expects six values.
    ours = ToSixTuple(gymnasium.make("SafePendulum-v0"))
    ours.reset(seed=0)
    result: Any = ours.step(np.zeros(1, dtype=np.float32))
    assert len(result) == 6 and result[2] == result[5]["cost"]
    plain = ToSixTuple(Drift("no cost"))
    plain.reset()
    with pytest.raises(UserError, match=r'info has no "cost" to return as the third value \(it has \[\'speed\'\]\)'):
        plain.step(np.array([0.5]))


def test_a_registered_six_tuple_environment_is_a_task() -> None:
    """Gymnasium's own wrappers would fail on it."""
    task = GymTask("OwnSix-v0")
    assert task.horizon == 20
    traces = rollout(task.world(workers=0), random_policy(task), 2, 5, generator=seeded())
    assert torch.allclose(traces.safety[..., 0], (traces.x[:, 1:, 0].abs() - 1).clamp(min=0))


def test_dict_observations_matrix_actions_and_several_constraints() -> None:
    task = GymTask(Goal, horizon=4, constraints=("heat", "noise"))
    assert len(task.states) == 4 and [(a.low, a.high) for a in task.actions] == [(-1, 1), (-2, 2)]
    traces = rollout(task.world(workers=0), random_policy(task), 2, generator=seeded())
    assert traces.safety.shape == (2, 4, 2)
    assert traces.safety[0, 0].tolist() == pytest.approx([0.1, 0.0])
    assert traces.violation[0, 0].tolist() == [True, False]
    assert torch.allclose(traces.x[:, 1, :2], traces.x[:, 0, :2] + traces.u[:, 0], atol=1e-6)
    with pytest.raises(UserError, match=r"has 2 numbers for 1 constraint"):
        rollout(GymTask(Goal, horizon=4).world(workers=0), random_policy(task), 1, generator=seeded())


def test_processes_give_what_one_process_gives() -> None:
    task = GymTask("tests.tasks.own_envs:OwnDrift-v0")
    results = []
    for workers in (0, 2):
        world = task.world(workers)
        results.append(rollout(world, random_policy(task), 5, 6, generator=seeded(3)))
        world.close()
    assert torch.equal(results[0].x, results[1].x) and torch.equal(results[0].cost, results[1].cost)


def test_a_given_environment_runs_one_episode_at_a_time() -> None:
    rig = Drift()
    task = GymTask(rig, horizon=5)
    assert task.name == "Drift"
    world = task.world()
    traces = rollout(world, random_policy(task), 1, generator=seeded())
    assert torch.allclose(traces.x[0, -1], torch.from_numpy(rig.x))
    with pytest.raises(UserError, match="a single environment runs one episode at a time"):
        world.reset(2, seeded())
    assert task.start(3, seeded()).shape == (3, 2)


def test_starts_are_the_environments_and_repeat() -> None:
    task = GymTask("OwnDrift-v0")
    first, again = task.start(50, seeded(1)), task.start(50, seeded(1))
    assert torch.equal(first, again) and first.shape == (50, 2)
    assert float(first[:, 0].abs().max()) <= 0.5 and float(first[:, 0].std()) == pytest.approx(0.29, abs=0.06)
    assert bool((first[:, 1] == 0).all())


def test_an_episode_that_the_environment_cuts_off_is_over_but_not_terminated() -> None:
    task = GymTask(lambda: Drift("cut off"), horizon=12)
    traces = rollout(task.world(workers=0), lambda o, g: torch.full((len(o), 1), 0.5), 3, generator=seeded())
    lengths = traces.active.sum(1)
    assert int(lengths.max()) < 5 and not bool(traces.terminated.any())
    for i, length in enumerate(lengths.tolist()):
        assert float(traces.x[i, length, 0]) > 1 >= float(traces.x[i, length - 1, 0])
        assert torch.equal(traces.x[i, length:], traces.x[i, length].expand(13 - length, 2))


def test_a_done_function_ends_episodes() -> None:
    task = GymTask("OwnDrift-v0", done=lambda x: x[..., 0] > 1)
    traces = rollout(task.world(workers=0), lambda o, g: torch.full((len(o), 1), 0.5), 3, generator=seeded())
    ends = traces.x[torch.arange(3), traces.active.sum(1), 0]
    assert bool((ends > 1).all()) and bool((ends <= 1.5).all()) and bool(traces.terminated.all())


def test_mujoco_environment_without_subclassing() -> None:
    """A safety function is all that a MuJoCo environment needs."""
    pytest.importorskip("mujoco")
    task = GymTask("InvertedPendulum-v5", safety=lambda x, u: (x[..., 1].abs() / 0.2).clamp(max=1), cost=None)
    traces = rollout(task.world(workers=0), random_policy(task), 3, 10, generator=seeded())
    assert task.horizon == 1000 and task.dt == pytest.approx(0.04)
    assert torch.allclose(traces.safety[..., 0], (traces.x[:, 1:, 1].abs() / 0.2).clamp(max=1) * traces.active)
    upright = (traces.x[:, 1:, 1].abs() <= 0.2) & traces.active
    assert torch.equal(traces.cost, -upright.double())  # a reward of one for each step upright


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("discrete", r"its actions are Discrete\(3\), not continuous"),
        ("unbounded", "its actions have no finite bounds"),
        ("integers", "its actions are integers"),
        ("text observation", "cannot be flattened to a fixed number of values"),
    ],
)
def test_environments_that_cannot_be_tasks(fault: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        GymTask(lambda: Drift(fault), horizon=5)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no cost", r'no safety cost: info has no "cost" \(it has \[\'speed\'\]\). Give a function with safety='),
        ("nan", "the observation holds NaN or infinity: observation 1 is nan"),
        ("nan start", "the observation holds NaN or infinity"),
        ("nan reward", "reward is nan; a cost must be a finite number"),
        ("nan cost", r'info\["cost"\] is nan for \'safety\''),
        ("four", "step returned 4 values"),
        ("bare reset", r".*: reset returned a ndarray; expected \(observation, info\)"),
    ],
)
def test_environments_that_misbehave_are_caught(fault: str, message: str) -> None:
    task = GymTask(lambda: Drift(fault), horizon=5)
    with pytest.raises(UserError, match=message):
        rollout(task.world(workers=0), random_policy(task), 1, generator=seeded())


def test_functions_that_do_not_fit_are_caught() -> None:
    x, u = torch.zeros(5, 2), torch.zeros(5, 1)
    with pytest.raises(UserError, match="safety function returned a ndarray; write it with torch operations"):
        GymTask("OwnDrift-v0", safety=with_numpy).safety(x, u)
    with pytest.raises(UserError, match=r"returned shape \[2\] for a batch of 5; expected \[5, 1\]"):
        GymTask("OwnDrift-v0", safety=first_row_only).safety(x, u)
    with pytest.raises(UserError, match=r"cost function returned shape \[5, 1\] for a batch of 5; expected \[5\]"):
        GymTask("OwnDrift-v0", cost=lambda x, u: u).cost(x, u)


def test_unknown_and_endless_environments() -> None:
    with pytest.raises(UserError, match=r"Gymnasium knows no environment 'Pendulun-v1' .*; did you mean 'Pendulum-v1'"):
        GymTask("Pendulun-v1")
    with pytest.raises(UserError, match="the package 'nowhere' cannot be imported"):
        GymTask("nowhere:Env-v0")
    with pytest.raises(UserError, match="OwnMissing-v0: cannot be made: No module named 'no_such_module'"):
        GymTask("OwnMissing-v0")
    with pytest.raises(UserError, match="has no time limit; give the number of steps per episode with horizon="):
        GymTask("OwnEndless-v0")
    with pytest.raises(UserError, match=r"made a int; expected a gymnasium\.Env"):
        make_env(lambda: 3)
    with pytest.raises(UserError, match="horizon = 0 must be"):
        GymTask("OwnDrift-v0", horizon=0)
    assert math.isfinite(GymTask("OwnEndless-v0", horizon=7).dt)


def test_a_start_state_cannot_be_chosen() -> None:
    with pytest.raises(UserError, match="chooses its own start states"):
        GymTask("OwnDrift-v0").world(workers=0).reset(1, seeded(), x=torch.zeros(1, 2))


def test_a_function_without_a_name_leaves_the_name_to_what_it_makes() -> None:
    for source in (lambda: Drift("cut off"), functools.partial(Drift, "cut off")):
        assert GymTask(source, horizon=12).name == "Drift"
