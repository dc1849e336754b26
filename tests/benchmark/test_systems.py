"""The systems of the generality suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from samba_rl import GymTask, UniformPolicy, UserError, rollout
from samba_rl.benchmark.systems import SYSTEMS, Course, Noisy, Repeat, make_system, names
from samba_rl.tasks.gym.adapters import make_env
from samba_rl.types import Traces


def real(task: GymTask, episodes: int = 3) -> Traces:
    low, high = task.action_bounds()
    policy = UniformPolicy(tuple(low.tolist()), tuple(high.tolist()))
    return rollout(task.world(workers=0), policy, episodes, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_system_runs_and_measures_its_cost(name: str) -> None:
    task, noisy = make_system(name), make_system(f"{name}-noisy")
    assert (task.name, noisy.name) == (name, f"{name}-noisy") and "cost" in task.measured
    traces, blurred = real(task), real(noisy)
    assert traces.finite and bool((traces.safety >= 0).all())
    assert float(traces.returns.mean()) < SYSTEMS[name].solved  # random actions do not solve it
    # The system is the same; what is measured of it is not.
    assert torch.equal(traces.cost, blurred.cost)
    deviations = torch.tensor(SYSTEMS[name].noise, dtype=torch.float64)
    error = (blurred.x - traces.x)[:, :-1][traces.active]
    assert bool((error[:, deviations == 0] == 0).all())
    ratio = error.std(0)[deviations > 0] / deviations[deviations > 0]
    assert bool(((ratio > 0.5) & (ratio < 1.6)).all())


@pytest.mark.parametrize("name", [name for name, system in SYSTEMS.items() if system.done is not None])
def test_imagined_episodes_end_where_real_ones_do(name: str) -> None:
    task = make_system(name)
    traces = real(task, 20)
    ends = traces.x[torch.arange(20), traces.active.sum(1)]
    none = torch.zeros(20, 0)
    assert bool((task.done(ends, none) == traces.terminated).all()) and bool(traces.terminated.any())
    assert not bool(task.done(traces.x[:, 0], none).any())


def test_an_action_is_held_and_rewards_and_costs_add_up() -> None:
    once, thrice = make_env(Course), Repeat(make_env(Course), 3)
    for env in (once, thrice):
        env.reset(seed=3)
    action = np.array([1.0, 0.1])
    for _ in range(3):
        singles: list[Any] = [once.step(action) for _ in range(3)]
        x, reward, _, _, info = thrice.step(action)
        assert np.array_equal(x, singles[-1][0]) and reward == pytest.approx(sum(float(one[1]) for one in singles))
        assert info["cost"] == sum(one[4]["cost"] for one in singles)
    assert info["cost"] > 0  # by now the robot is inside the hazard


def test_noise_is_repeated_by_its_seed() -> None:
    def seen(seed: int) -> Any:
        env = Noisy(make_env(Course), (0.1, 0.1, 0.0, 0.0))
        return np.stack([env.reset(seed=seed)[0], env.step(np.zeros(2))[0]])

    assert np.array_equal(seen(1), seen(1)) and not np.array_equal(seen(1), seen(2))
    assert np.array_equal(seen(1)[:, 2:], np.zeros((2, 2)))


def test_names() -> None:
    assert names(noise=True)[0] == "pendulum-noisy" and names(noise=False) == tuple(SYSTEMS)
    with pytest.raises(UserError, match="the suite has no system 'coarse'; did you mean 'course'"):
        make_system("coarse")
