"""States that hold the last few observations and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Generator

from samba_rl import GymTask, UniformPolicy, UserError, rollout
from samba_rl.models.gp import GPDynamics
from samba_rl.models.world import ModelWorld
from samba_rl.runs import load_run, resume, train
from samba_rl.tasks.gym.history import carried
from samba_rl.types import Traces
from tests.tasks.own_envs import Goal


class Cart(gymnasium.Env[Any, Any]):
    """A mass on a rail that is pushed, of which only the position is seen."""

    def __init__(self, noise: float = 0.0) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), dtype=np.float64)
        self._noise = noise

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x, self.v = self.np_random.normal(size=2)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.v = 0.95 * self.v + 0.3 * action[0] - 0.1 * self.x
        self.x += 0.3 * self.v
        return self._seen(), -(self.x**2), False, False, {"cost": max(0.0, abs(self.x) - 1)}

    def _seen(self) -> Any:
        return np.array([self.x + self._noise * self.np_random.normal()])


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def real(task: GymTask, episodes: int = 4, seed: int = 0) -> Traces:
    low, high = task.action_bounds()
    policy = UniformPolicy(tuple(low.tolist()), tuple(high.tolist()))
    return rollout(task.world(workers=0), policy, episodes, generator=seeded(seed))


def test_columns_of_the_next_state() -> None:
    assert carried(2, 1, 1) == (0, 1)
    # o₀ o₀' o₁ o₁' u₁ | u₀: the newest observation begins from itself, the last one moves back.
    assert carried(2, 1, 2) == (0, 1, 0, 1, 5)
    # o₀ o₁ o₂ u₁ u₁' u₂ u₂' | u₀ u₀'
    assert carried(1, 2, 3) == (0, 0, 1, 7, 8, 3, 4)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_state_holds_the_last_observations_and_actions(k: int) -> None:
    task, plain = GymTask(Cart, horizon=8, history=k), real(GymTask(Cart, horizon=8))
    traces = real(task)
    position, u = plain.x[..., 0], plain.u[..., 0]
    assert torch.equal(traces.u, plain.u)
    for age in range(k):
        seen = torch.cat([position[:, :1].expand(-1, age), position], dim=1)[:, :9]
        assert torch.equal(traces.x[..., age], seen)
    for age in range(1, k):
        given = torch.cat([torch.zeros(4, age), u], dim=1)[:, :9]
        assert torch.equal(traces.x[..., k + age - 1], given)
    assert [one.name for one in task.states[:2]] == ["observation 0", "observation 0, 1 step ago"]
    assert task.states[-1].name == f"action 0, {k - 1} step{'s' * (k > 2)} ago"
    assert (task.states[k].low, task.states[k].high) == (-1, 1) and task.predicted == (0,)


@pytest.mark.parametrize(("env", "k"), [(Cart, 2), (Cart, 3), (Goal, 2), (Goal, 3)])
def test_all_but_the_newest_observation_follows_from_the_state_and_the_action(env: Any, k: int) -> None:
    names = ("heat", "noise") if env is Goal else ("safety",)
    task = GymTask(env, horizon=6, history=k, constraints=names)
    steps = real(task).transitions()
    kept = [i for i in range(len(task.states)) if i not in task.predicted]
    # The environment gets the action in the precision of its action space.
    assert torch.allclose(task.carry(steps.x, steps.u)[:, kept], steps.x_next[:, kept], atol=1e-6)
    newest = list(task.predicted)
    assert torch.equal(task.carry(steps.x, steps.u)[:, newest], steps.x[:, newest])


def test_imagined_states_shift_as_real_ones() -> None:
    task = GymTask(Cart, horizon=8, history=3)
    model = GPDynamics(task)
    model.fit(real(task).transitions())
    assert len(model.target_scale) == 3  # the newest observation, the cost and the safety cost
    imagined = rollout(
        ModelWorld(model, starts=real(task).x[:, 0]), UniformPolicy((-1.0,), (1.0,)), 5, generator=seeded()
    )
    assert torch.equal(imagined.x[:, 1:, 1:3], imagined.x[:, :-1, 0:2])
    assert torch.equal(imagined.x[:, 1:, 3], imagined.u[..., 0])
    assert torch.equal(imagined.x[:, 2:, 4], imagined.u[:, :-1, 0])


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_hidden_velocity_is_predicted_from_the_history(noise: float) -> None:
    errors = []
    for k in (1, 2):
        task = GymTask(lambda: Cart(noise), horizon=20, history=k)
        model = GPDynamics(task)
        model.fit(real(task, 8).transitions())
        fresh = real(task, 20, seed=1).transitions()
        late = fresh.step >= k
        mean = model.predict(task.model_inputs(fresh.x, fresh.u)).mean[:, 0]
        errors.append(float((fresh.x_next - fresh.x)[late, 0].sub(mean[late]).square().mean().sqrt()))
    assert errors[1] < 0.3 * errors[0]


def test_a_run_with_a_history_resumes_and_loads(tmp_path: Path) -> None:
    task = GymTask(Cart, horizon=10, history=2)
    small: dict[str, Any] = {"real_samples": 20, "first": {"samples": 10}, "feasibility_iterations": 0}
    run = train(task, preset="smoke", out=tmp_path / "run", workers=0, **small)
    assert torch.equal(load_run(tmp_path / "run", task).data.transitions.x, run.data.transitions.x)
    assert torch.equal(resume(tmp_path / "run", task).data.transitions.x, run.data.transitions.x)
    with pytest.raises(UserError):
        load_run(tmp_path / "run", GymTask(Cart, horizon=10))


@pytest.mark.parametrize("history", [0, -1, 1.5])
def test_a_history_has_at_least_one_observation(history: Any) -> None:
    with pytest.raises(UserError, match=f"Cart: history = {history} must be a whole number of at least 1 observation"):
        GymTask(Cart, horizon=5, history=history)
