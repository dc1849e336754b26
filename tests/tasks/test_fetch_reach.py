"""Safe Fetch Reach on the real simulator."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from samba_rl import SafeFetchReach, UserError, rollout
from samba_rl.tasks.fetch_reach import START, FetchSimulation, import_robots

pytest.importorskip("gymnasium_robotics")
pytest.importorskip("mujoco")

TASK = SafeFetchReach()


def with_goal(x: float, y: float = 0.7, z: float = 0.6) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([*START, x, y, z])


@pytest.fixture(scope="module")
def fetch() -> Any:
    import_robots()
    return gymnasium.make("FetchReach-v4", reward_type="dense").unwrapped


def drive(fetch: Any, goal: Any, actions: Any) -> list[tuple[Any, float]]:
    """Observation (position, velocity) and reward of plain FetchReach after each action."""
    fetch.reset(seed=0)
    fetch.goal = np.asarray(goal)
    rows = []
    for action in actions:
        observation, reward, *_ = fetch.step(action)
        rows.append((np.concatenate([observation["observation"][:3], observation["observation"][5:8]]), reward))
    return rows


def test_equals_plain_fetch_reach(fetch: Any) -> None:
    """The same goal and actions give the same states and rewards as Gymnasium-Robotics' environment."""
    actions = np.random.default_rng(0).uniform(-1, 1, size=(30, 4)).astype(np.float32)
    goal = np.array([1.45, 0.7, 0.6])
    expected = drive(fetch, goal, actions)
    env = gymnasium.make("SafeFetchReach-v0")
    observation, _ = env.reset(options={"state": with_goal(*goal)})
    assert observation == pytest.approx(with_goal(*goal), abs=1e-8)
    for action, (robot, reward) in zip(actions, expected, strict=True):
        observation, ours, _, _, _ = env.step(action)
        assert observation[:6] == pytest.approx(robot, abs=1e-12)
        assert observation[6:] == pytest.approx(goal)
        assert ours == pytest.approx(reward, abs=1e-12)


def test_episodes_that_share_a_simulator_do_not_disturb_each_other(fetch: Any) -> None:
    rng = np.random.default_rng(1)
    actions = rng.uniform(-1, 1, size=(3, 12, 4)).astype(np.float32)
    goals = [(1.45, 0.7, 0.6), (1.2, 0.8, 0.5), (1.4, 0.65, 0.65)]
    simulation = FetchSimulation()
    for i, goal in enumerate(goals):
        simulation.reset(i, 0, with_goal(*goal))
    rows: list[list[Any]] = [[], [], []]
    for t in range(12):
        for i in (2, 0, 1):
            rows[i].append(simulation.step(i, actions[i, t].astype(np.float64)).x)
    for i, goal in enumerate(goals):
        for ours, (robot, _) in zip(rows[i], drive(fetch, goal, actions[i]), strict=True):
            assert ours == pytest.approx([*robot, *goal], abs=1e-12)
    simulation.close()


def test_processes_give_what_one_process_gives() -> None:
    def wave(observation: Tensor, generator: Generator) -> Tensor:
        return torch.rand(len(observation), 4, generator=generator, dtype=torch.float64) * 2.5 - 1.25

    traces = []
    for workers in (2, 0):
        world = TASK.world(workers)
        traces.append(rollout(world, wave, 5, 6, generator=Generator().manual_seed(2)))
        world.close()
    spread, single = traces
    for name in ("x", "u", "cost", "safety", "violation", "clipped"):
        assert torch.equal(getattr(spread, name), getattr(single, name)), name


def test_vector_environment_runs_in_processes() -> None:
    envs = gymnasium.make_vec("SafeFetchReach-v0", num_envs=3, workers=2, max_episode_steps=2)
    observation, _ = envs.reset(seed=0)
    goals = observation[:, 6:]
    single = gymnasium.make("SafeFetchReach-v0")
    u = np.tile(np.array([1.0, 0.0, 0.0, 0.0], dtype=np.float32), (3, 1))
    after, reward, _, _, infos = envs.step(u)
    for i in range(3):
        single.reset(options={"state": with_goal(*goals[i])})
        expected, expected_reward, _, _, info = single.step(u[i])
        assert after[i] == pytest.approx(expected, abs=1e-12) and reward[i] == pytest.approx(expected_reward)
        assert infos["cost"][i] == pytest.approx(info["cost"]) and infos["violation"][i] == info["violation"]
    assert envs.step(u)[3].all()
    restarted, reward, _, _, infos = envs.step(u)
    assert not reward.any() and not infos["_cost"].any()
    assert restarted[:, :3] == pytest.approx(np.tile(START[:3], (3, 1)), abs=1e-6)
    assert not np.allclose(restarted[:, 6:], goals)
    envs.close()


def test_hazard_by_hand() -> None:
    """Goal 10 cm further along x: the slab is centred at 5 cm and reaches 2.5 cm to both sides."""
    x = torch.from_numpy(np.tile(with_goal(START[0] + 0.1), (5, 1)))
    x[:, 0] = START[0] + torch.tensor([0.0, 0.05, 0.0375, 0.0751, 0.0249], dtype=torch.float64)
    assert TASK.safety(x)[:, 0].tolist() == pytest.approx([0, 1, 0.5, 0, 0], abs=1e-6)
    assert TASK.violation(x)[:, 0].tolist() == [False, True, True, False, False]
    x[:, 6] = START[0] - 0.1  # to the other side: the mirror image
    x[:, 0] = START[0] - torch.tensor([0.0, 0.05, 0.0375, 0.0751, 0.0249], dtype=torch.float64)
    assert TASK.safety(x)[:, 0].tolist() == pytest.approx([0, 1, 0.5, 0, 0], abs=1e-6)


def test_a_goal_above_the_start_has_no_hazard() -> None:
    x = torch.from_numpy(with_goal(START[0]))[None]
    x[0, 0] += 1e-6
    assert TASK.safety(x).tolist() == [[0.0]]


def test_cost_is_the_distance_in_space() -> None:
    x = torch.from_numpy(np.array([[0, 0, 0, 9, 9, 9, 0.3, 0.0, 0.4]], dtype=np.float64))
    assert TASK.cost(x, torch.zeros(1, 4)).tolist() == pytest.approx([0.5])


def test_goals() -> None:
    x = TASK.start(50_000, Generator().manual_seed(0))
    offset = (x[:, 6:] - x[:, :3]).abs()
    assert 0.03 <= float(offset[:, 0].min()) < 0.0301
    assert offset.amax(0).tolist() == pytest.approx([0.15] * 3, rel=1e-3)
    assert float(((x[:, 6] - x[:, 0]) > 0).double().mean()) == pytest.approx(0.5, abs=0.01)
    assert torch.equal(x[:, :6], x[:1, :6].expand(50_000, 6))


def test_the_start_agrees_with_the_simulator() -> None:
    """The constant agrees with the simulator, so that imagined episodes start where real ones do."""
    simulation = FetchSimulation()
    assert simulation.reset(0, 0, with_goal(1.45))[:6] == pytest.approx(np.array(START), abs=1e-8)
    simulation.close()


def straight(observation: Tensor, generator: Generator) -> Tensor:
    """Move to the goal at full speed, 3.3 cm per step."""
    move = ((observation[:, 6:9] - observation[:, :3]) / 0.033).clamp(-1, 1)
    return torch.cat([move, torch.zeros(len(move), 1).double()], dim=1)


def test_straight_to_the_goal_reaches_the_reference_scores() -> None:
    """Full speed to the goal: return about -0.25, median safety cost about 0.74."""

    world = TASK.world(2)
    traces = rollout(world, straight, 60, generator=Generator().manual_seed(0))
    world.close()
    assert float(traces.returns.mean()) == pytest.approx(-0.25, abs=0.06)
    assert float(traces.safety_costs.median()) == pytest.approx(0.74, abs=0.2)


def test_only_the_goal_can_be_chosen() -> None:
    env = gymnasium.make("SafeFetchReach-v0")
    state = with_goal(1.45)
    state[0] += 0.05
    with pytest.raises(UserError, match=r"every episode starts with the gripper at .* only the goal can be chosen"):
        env.reset(options={"state": state})


def test_bad_actions_are_refused() -> None:
    env = gymnasium.make("SafeFetchReach-v0")
    env.reset(seed=0)
    with pytest.raises(UserError, match="'move y', is nan"):
        env.step(np.array([0, math.nan, 0, 0], dtype=np.float32))


def test_picture_follows_the_robot() -> None:
    env = gymnasium.make("SafeFetchReach-v0", render_mode="rgb_array", size=64)
    env.reset(options={"state": with_goal(1.45)})
    before: Any = env.render()
    for _ in range(5):
        env.step(np.array([1, 0, 0, 0], dtype=np.float32))
    after: Any = env.render()
    assert before.shape == (64, 64, 3) and not np.array_equal(before, after)


@pytest.mark.slow
def test_hand_written_controllers_reach_the_reference_scores() -> None:
    """Three controllers on 123 goals: return and quartiles of the safety cost."""

    def still(observation: Tensor, generator: Generator) -> Tensor:
        return torch.zeros(len(observation), 4).double()

    def random(observation: Tensor, generator: Generator) -> Tensor:
        return 2 * torch.rand(len(observation), 4, generator=generator).double() - 1

    world = TASK.world(2)
    measured: dict[str, Any] = {}
    for name, policy in (("straight", straight), ("still", still), ("random", random)):
        traces = rollout(world, policy, 123, generator=Generator().manual_seed(7))
        quartiles = traces.safety_costs[:, 0].quantile(torch.tensor([0.25, 0.5, 0.75]).double())
        measured[name] = (float(traces.returns.mean()), quartiles.tolist())
    world.close()
    assert measured["straight"] == (pytest.approx(-0.25, abs=0.04), pytest.approx([0.58, 0.74, 0.96], abs=0.15))
    assert measured["still"] == (pytest.approx(-4.42, abs=0.3), [0, 0, 0])
    assert measured["random"] == (pytest.approx(-5.55, abs=0.6), pytest.approx([0.13, 1.69, 4.26], abs=0.9))
