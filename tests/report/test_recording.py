"""Films of every kind of system."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from samba_rl import GymTask, SafePendulum, UniformPolicy
from samba_rl.report.recording import Filmed, filmed
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from tests.line import Line
from tests.tasks.gym.test_pictures import Drawn
from tests.tasks.own_envs import Drift


def film_of(task: Task, episodes: int = 3, shown: int = 2, **more: Any) -> Filmed:
    low, high = task.action_bounds()
    policy = UniformPolicy(tuple(low.tolist()), tuple(high.tolist()))
    return filmed(task, policy, episodes, shown, generator=Generator().manual_seed(1), **more)


def brightness(film: list[Any]) -> list[int]:
    return [int(frame[0, 0, 0]) for frame in film]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_an_environment_that_draws_itself_is_filmed_while_it_runs(workers: int) -> None:
    task = GymTask(Drawn, horizon=5)
    found = film_of(task, workers=workers)
    assert found.own and len(found.films) == 2 and found.traces.x.shape[:2] == (3, 6) and found.seconds > 0
    for one, film in enumerate(found.films):
        states = found.traces.x[one, : int(found.traces.active[one].sum()) + 1, 0]
        assert brightness(film) == [min(255, int(60 * abs(x))) for x in states.tolist()]


def test_filming_does_not_change_the_episodes() -> None:
    task = GymTask(Drawn, horizon=5)
    low, high = task.action_bounds()
    world = task.world(0)
    plain = rollout(
        world, UniformPolicy(tuple(low.tolist()), tuple(high.tolist())), 3, generator=Generator().manual_seed(1)
    )
    assert torch.equal(plain.x, film_of(task).traces.x)


def test_a_rig_is_filmed_one_episode_after_the_other() -> None:
    found = film_of(GymTask(Drawn(render_mode="rgb_array"), horizon=5), episodes=3, shown=2)
    assert found.own and found.traces.x.shape[0] == 3 and [len(film) for film in found.films] == [6, 6]
    assert brightness(found.films[1]) == [min(255, int(60 * abs(x))) for x in found.traces.x[1, :, 0].tolist()]


@pytest.mark.parametrize("source", [Drift, lambda: Drawn("no display")])
def test_of_others_the_states_are_drawn(source: Any) -> None:
    found = film_of(GymTask(source, horizon=5))
    assert not found.own and [len(film) for film in found.films] == [6, 6]
    assert found.traces.x.shape[:2] == (3, 6)


class _NoPicture(Line):  # type: ignore[misc]
    def draw(self, x: Any, u: Any, size: int) -> Any:
        raise NotImplementedError


def test_known_systems_are_replayed() -> None:
    pendulum = film_of(SafePendulum(horizon=4), size=48)
    assert pendulum.own and np.array_equal(pendulum.films[0][0], SafePendulum().draw(pendulum.traces.x[0, 0], None, 48))
    assert not film_of(_NoPicture(horizon=4)).own
