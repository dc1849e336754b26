"""Environments that draw themselves."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from samba_rl import GymTask
from samba_rl.tasks.gym.adapters import Source
from samba_rl.tasks.gym.pictures import drawing
from tests.tasks.own_envs import Drift


class Drawn(Drift):
    """Returns its position as the brightness of a picture."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium's environments have it

    def __init__(self, fault: str = "", render_mode: str | None = None) -> None:
        super().__init__(fault)
        self.render_mode = render_mode

    def render(self) -> Any:
        if self.fault == "no display":
            raise RuntimeError("cannot open display")
        assert self.render_mode == "rgb_array"
        return np.full((20, 30, 3), min(255, int(60 * abs(self.x[0]))), dtype=np.uint8)


def register() -> None:
    if "OwnDrawn-v0" not in gymnasium.registry:
        gymnasium.register("OwnDrawn-v0", f"{__name__}:Drawn", max_episode_steps=6)


register()


@pytest.mark.parametrize("source", ["OwnDrawn-v0", Drawn, lambda: Drawn(), partial(Drawn, "no cost")])
def test_environments_are_made_to_draw(source: Source) -> None:
    task = GymTask(source, horizon=6)
    found = drawing(task)
    assert found is not None and found.name == task.name and found.horizon == 6
    world = found.world(workers=0)
    x = world.reset(1, torch.Generator().manual_seed(0))
    picture = world.render(x[0], None, 0, 480)
    assert picture.shape == (20, 30, 3) and picture[0, 0, 0] == int(60 * abs(x[0, 0]))
    world.close()
    assert task.env is source


@pytest.mark.parametrize("source", [Drift, "OwnDrift-v0", Drawn()])
def test_environments_that_cannot_draw(source: Source) -> None:
    assert drawing(GymTask(source, horizon=6)) is None


def test_a_rig_draws_what_it_was_made_to_draw() -> None:
    task = GymTask(Drawn(render_mode="rgb_array"), horizon=6)
    assert drawing(task) is task
