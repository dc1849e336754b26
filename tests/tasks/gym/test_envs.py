import math
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import samba_rl
from samba_rl import IDS, AngleHazard, UserError, make_task
from samba_rl.tasks import TASKS
from samba_rl.tasks.gym.envs import SafeEnv, SafeVectorEnv

NATIVE = ["SafePendulum-v0", "SafeCartPoleDoublePendulum-v0"]


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_own_check_is_green(env_id: str) -> None:
    env = gymnasium.make(env_id, render_mode="rgb_array", size=64)
    with warnings.catch_warnings():
        # These systems do have spaces without bounds and ranges other than ±1.
        warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized).*")
        check_env(env.unwrapped)
    env.close()


def test_registered_horizon_is_the_tasks() -> None:
    for env_id, name in IDS.items():
        assert gymnasium.spec(env_id).max_episode_steps == make_task(name).horizon
    assert set(IDS.values()) == set(TASKS)


@pytest.mark.parametrize("env_id", NATIVE)
def test_single_batch_and_vector_forms_agree(env_id: str) -> None:
    """The same states and actions give the same numbers through all three interfaces."""
    n = 40
    rng = np.random.default_rng(5)
    vector = gymnasium.make_vec(env_id, num_envs=n)
    assert isinstance(vector.unwrapped, SafeVectorEnv)
    vector.reset(seed=3)
    x = torch.from_numpy(vector.unwrapped.state)
    task = vector.unwrapped.task
    singles = [gymnasium.make(env_id) for _ in range(n)]
    for i, env in enumerate(singles):
        env.reset(options={"state": x[i].numpy()})
    bound = task.actions[0].high
    for _ in range(6):
        u = rng.uniform(-1.5 * bound, 1.5 * bound, size=(n, 1)).astype(np.float32)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*lies outside the bounds.*")
            observation, reward, terminated, truncated, infos = vector.step(u)
            answers = [env.step(u[i]) for i, env in enumerate(singles)]
        after = task.step(x, torch.from_numpy(u).double())
        charges = task.charge(x, task.clip(torch.from_numpy(u).double()), after)
        assert observation == pytest.approx(task.observe(after).numpy(), abs=1e-12)
        assert reward == pytest.approx(-charges.cost.numpy(), abs=1e-12)
        assert infos["cost"] == pytest.approx(charges.safety[:, 0].numpy(), abs=1e-12)
        assert infos["violation"].tolist() == charges.violation[:, 0].tolist()
        assert infos["clipped"].tolist() == (np.abs(u[:, 0]) > bound).tolist()
        for i, (obs_i, reward_i, terminated_i, truncated_i, info_i) in enumerate(answers):
            assert obs_i == pytest.approx(observation[i], abs=1e-12)
            assert reward_i == pytest.approx(reward[i], abs=1e-12)
            assert (terminated_i, truncated_i) == (terminated[i], truncated[i])
            assert info_i["cost"] == pytest.approx(infos["cost"][i], abs=1e-12)
            assert info_i["costs"] == {"hazard": pytest.approx(info_i["cost"])}
            assert info_i["violation"] == infos["violation"][i] and info_i["clipped"] == infos["clipped"][i]
        x = after


def test_info_describes_the_state_reached() -> None:
    env = gymnasium.make("SafePendulum-v0")
    env.reset(options={"state": [math.radians(18), 1.0]})
    observation, _, _, _, info = env.step(np.zeros(1, dtype=np.float32))
    angle = math.degrees(math.atan2(observation[1], observation[0]))
    assert 20 < angle < 30
    assert info["violation"] is True and isinstance(info["cost"], float)
    assert info["cost"] == pytest.approx(1 - abs(angle - 25) / 50, abs=1e-12)


def test_truncation_is_separate_from_termination() -> None:
    env = gymnasium.make("SafePendulum-v0")
    env.reset(options={"state": [math.pi, 0.0]})
    ends = [env.step(np.zeros(1, dtype=np.float32))[2:4] for _ in range(30)]
    assert ends == [(False, False)] * 29 + [(False, True)]
    env.reset(options={"state": [0.0, 0.0]})
    ends = [env.step(np.zeros(1, dtype=np.float32))[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(True, False)]
    with pytest.raises(UserError, match="the episode has ended; call reset"):
        env.step(np.zeros(1, dtype=np.float32))


def test_vector_episodes_restart_with_the_next_step() -> None:
    envs = gymnasium.make_vec("SafePendulum-v0", num_envs=3, max_episode_steps=8)
    envs.reset(seed=0, options={"state": np.array([[math.pi, 0.0], [0.0, 0.0], [2.0, 0.0]])})
    still = np.zeros((3, 1), dtype=np.float32)
    ends = []
    for _ in range(9):
        observation, reward, terminated, truncated, infos = envs.step(still)
        ends.append((terminated.tolist(), truncated.tolist()))
        if len(ends) == 6:  # the second one was balanced after 5 steps and has now been restarted
            assert reward[1] == 0 and infos["_cost"].tolist() == [True, False, True] and infos["cost"][1] == 0
            assert observation[1] == pytest.approx(envs.unwrapped.task.observe(restarted(envs))[1].numpy())  # type: ignore[attr-defined]
            assert not np.allclose(observation[1], [1, 0, 0])
    nothing = [False] * 3
    assert ends[4] == ([False, True, False], nothing)
    assert ends[7] == (nothing, [True, False, True])
    assert all(end == (nothing, nothing) for i, end in enumerate(ends) if i not in (4, 7))


def restarted(envs: Any) -> torch.Tensor:
    return torch.from_numpy(envs.unwrapped.state)


def test_vector_matches_gymnasiums_own_vectorisation_over_restarts() -> None:
    """Ends, restarts and masks fall on the same steps as in SyncVectorEnv."""
    n = 4
    native = gymnasium.make_vec("SafeCartPoleDoublePendulum-v0", num_envs=n, substeps=1)
    sync = gymnasium.make_vec("SafeCartPoleDoublePendulum-v0", num_envs=n, substeps=1, vectorization_mode="sync")
    native.reset(seed=1)
    sync.reset(seed=1)
    for _ in range(70):
        u = np.zeros((n, 1), dtype=np.float32)
        a, b = native.step(u), sync.step(u)
        # When all restart at once, Gymnasium's own info is empty; ours has a mask that is all False.
        mask = b[4].get("_cost", np.zeros(n, dtype=np.bool_))
        assert (a[2] == b[2]).all() and (a[3] == b[3]).all() and (a[4]["_cost"] == mask).all()
        assert ((a[1] == 0) == (b[1] == 0)).all()
        assert a[1].dtype == b[1].dtype and a[2].dtype == b[2].dtype and a[0].dtype == b[0].dtype
        assert not mask.any() or a[4].keys() == b[4].keys()


@pytest.mark.parametrize("env_id", NATIVE)
def test_seeds_repeat(env_id: str) -> None:
    def run(seed: int) -> Any:
        envs = gymnasium.make_vec(env_id, num_envs=4)
        first, _ = envs.reset(seed=seed)
        envs.action_space.seed(0)
        rows = [first] + [envs.step(envs.action_space.sample())[0] for _ in range(40)]
        return np.stack(rows)

    assert np.array_equal(run(1), run(1)) and not np.array_equal(run(1), run(2))


def test_returned_arrays_belong_to_the_caller() -> None:
    """Writing into returned arrays does not change the environment."""
    envs = gymnasium.make_vec("SafePendulum-v0", num_envs=2)
    observation, _ = envs.reset(seed=0)
    first = envs.step(np.zeros((2, 1), dtype=np.float32))
    kept = first[0].copy(), envs.unwrapped.state  # type: ignore[attr-defined]
    observation[:] = 99
    for array in (*first[:4], first[4]["cost"]):
        array[...] = 1
    assert np.array_equal(envs.unwrapped.state, kept[1])  # type: ignore[attr-defined]
    again = envs.step(np.zeros((2, 1), dtype=np.float32))[0]
    assert not np.array_equal(again, kept[0]) and again.max() <= 8


def test_actions_outside_the_bounds_are_clipped_counted_and_reported_once() -> None:
    env = gymnasium.make("SafePendulum-v0")
    env.reset(seed=0)
    with pytest.warns(UserWarning, match=r"action \[5\.0\] lies outside the bounds \(torque ±2 \[Nm\]\)"):
        info = env.step(np.array([5.0], dtype=np.float32))[4]
    assert info["clipped"] is True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(np.array([-7.0], dtype=np.float32))
        assert env.step(np.array([1.0], dtype=np.float32))[4]["clipped"] is False
    assert env.unwrapped.clipped_actions == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("env_id", NATIVE)
def test_bad_actions_are_refused(env_id: str) -> None:
    env = SafeEnv(IDS[env_id])
    with pytest.raises(UserError, match=r"no episode is running; call reset\(\) first"):
        env.step(np.zeros(1, dtype=np.float32))
    env.reset(seed=0)
    for bad, message in (
        (np.array([math.nan]), "is nan"),
        (np.array([math.inf]), "is inf"),
        (np.zeros(2), r"actions of shape \[2\]; expected \[1\]"),
        (0.5, r"actions of shape \[\]; expected \[1\]"),
        (["left"], "is not an action"),
    ):
        with pytest.raises(UserError, match=message):
            env.step(bad)  # type: ignore[arg-type]
    envs = SafeVectorEnv(IDS[env_id], num_envs=3)
    with pytest.raises(UserError, match="no episode is running"):
        envs.step(np.zeros((3, 1), dtype=np.float32))
    envs.reset(seed=0)
    with pytest.raises(UserError, match=r"actions of shape \[1, 3\]; expected \[3, 1\]"):
        envs.step(np.zeros((1, 3), dtype=np.float32))
    with pytest.raises(UserError, match=r"action 2, '.*', is nan; 1 of 3"):
        envs.step(np.array([[0.0], [1.0], [math.nan]], dtype=np.float32))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(UserError, match="as max_episode_steps, not horizon"):
        gymnasium.make("SafePendulum-v0", horizon=50)
    with pytest.raises(UserError, match="no setting 'hazzard'; did you mean 'hazard'"):
        gymnasium.make("SafePendulum-v0", hazzard=1)
    with pytest.raises(UserError, match="horizon = 0 must be"):
        gymnasium.make_vec("SafePendulum-v0", num_envs=2, max_episode_steps=0)
    with pytest.raises(UserError, match="num_envs = 0"):
        SafeVectorEnv("safe-pendulum", num_envs=0)
    with pytest.raises(UserError, match="render_mode = 'human'"):
        SafeEnv("safe-pendulum", render_mode="human")
    env = gymnasium.make("SafePendulum-v0")
    with pytest.raises(UserError, match="reset has no option 'stat'; did you mean 'state'"):
        env.reset(options={"stat": [0, 0]})
    for bad in ([0.0], [0.0, math.nan]):
        with pytest.raises(UserError, match=r"option 'state' is .*; expected finite numbers of shape \[2\]"):
            env.reset(options={"state": bad})


def test_settings_reach_the_task() -> None:
    hazard = AngleHazard(low=3.0, high=3.2, margin=0.1)
    env = gymnasium.make("SafePendulum-v0", hazard=hazard)
    env.reset(options={"state": [math.pi - 0.1, 0.0]})
    assert env.step(np.zeros(1, dtype=np.float32))[4]["violation"] is True


@pytest.mark.parametrize("env_id", NATIVE)
def test_pictures(env_id: str) -> None:
    env = gymnasium.make(env_id, render_mode="rgb_array", size=96)
    env.reset(seed=0)
    start: Any = env.render()
    for _ in range(5):
        env.step(env.action_space.high)  # type: ignore[attr-defined]
    later: Any = env.render()
    assert start.shape == (96, 96, 3) and start.dtype == np.uint8 and not np.array_equal(start, later)
    envs = gymnasium.make_vec(env_id, num_envs=3, render_mode="rgb_array", size=48)
    envs.reset(seed=0)
    pictures: Any = envs.render()
    assert [picture.shape for picture in pictures] == [(48, 48, 3)] * 3
    silent = SafeEnv(IDS[env_id])
    silent.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert silent.render() is None


def test_version_is_stated() -> None:
    assert samba_rl.__version__.count(".") == 2
