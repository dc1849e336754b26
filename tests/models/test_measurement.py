"""Measurement noise, told apart from noise that moves the system."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Generator

from samba_rl import GymTask, UniformPolicy, rollout
from samba_rl.models.gp import GPDynamics
from samba_rl.models.measurement import ImaginedNoise, measurement_share
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelWorld
from samba_rl.types import Traces


class Drive(gymnasium.Env[Any, Any]):
    """A point that moves as fast as it is told, with noise of its motion and of its measurement."""

    def __init__(self, motion: float, measurement: float) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), dtype=np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), dtype=np.float64)
        self._motion, self._measurement = motion, measurement

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.x += 0.3 * float(action[0]) + self._motion * self.np_random.normal()
        return self._seen(), -abs(self.x), False, False, {"cost": 0.0}

    def _seen(self) -> Any:
        return np.array([self.x + self._measurement * self.np_random.normal()])


RANDOM = UniformPolicy((-1.0,), (1.0,))


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def real(motion: float, measurement: float, episodes: int = 12, **how: Any) -> tuple[GymTask, Traces]:
    task = GymTask(lambda: Drive(motion, measurement), horizon=25, **how)
    return task, rollout(task.world(workers=0), RANDOM, episodes, generator=seeded())


def fitted(motion: float, measurement: float, **how: Any) -> GPDynamics:
    task, traces = real(motion, measurement, **how)
    model = GPDynamics(task, GPSettings(noise="split"))
    model.fit(traces.transitions())
    return model


def test_the_share_follows_from_successive_errors() -> None:
    generator = seeded()
    ε = torch.randn(4001, 1, generator=generator, dtype=torch.float64)
    q = torch.randn(4000, 1, generator=generator, dtype=torch.float64)
    episode = torch.zeros(4000, dtype=torch.int64)
    errors = torch.cat([q, ε[1:] - ε[:-1], ε[1:] - ε[:-1] + 2**0.5 * q, torch.zeros_like(q)], dim=1)
    share = measurement_share(errors, episode)
    assert share.tolist() == pytest.approx([0.0, 1.0, 0.5, 0.0], abs=0.05) and share[0] == share[3] == 0
    # Errors of different episodes say nothing about each other, nor do fewer errors than steps.
    assert not bool(measurement_share(errors, torch.arange(4000)).any())
    assert not bool(measurement_share(errors[:9], episode).any())


def test_noise_is_split_by_hand() -> None:
    noise, share = torch.tensor([4.0, 2.0, 9.0]), torch.tensor([0.25, 1.0, 0.5])
    split = ImaginedNoise.of(noise, share, 2)
    assert split.motion.tolist() == [3.0, 0.0, 0.0] and split.measured is not None
    assert split.measured.tolist() == [0.5, 1.0]
    whole = ImaginedNoise.of(noise, None, 2)
    assert whole.motion.tolist() == [4.0, 2.0, 0.0] and whole.measured is None


@pytest.mark.parametrize(("motion", "measurement"), [(0.1, 0.0), (0.0, 0.1), (0.1, 0.1)])
def test_both_kinds_of_noise_are_found(motion: float, measurement: float) -> None:
    noise = fitted(motion, measurement, episodes=24).imagined_noise
    assert noise.measured is not None
    assert float(noise.motion[0].sqrt()) == pytest.approx(motion, abs=0.045)
    assert float(noise.measured[0].sqrt()) == pytest.approx(measurement, abs=0.045)


def test_measurement_noise_does_not_add_up_along_an_imagined_episode() -> None:
    model = fitted(0.0, 0.1)
    x = torch.zeros(400, 1, dtype=torch.float64)

    def spread(noise: str) -> list[float]:
        again = GPDynamics(model.task, GPSettings(noise=noise))  # type: ignore[arg-type]
        assert again.load_state_dict(
            {**model.state_dict(), "share": model.state_dict()["share"] if noise == "split" else None},
            real(0.0, 0.1)[1].transitions(),
        )
        world = ModelWorld(again, draw="marginals")
        at = world.reset(400, seeded(), x=x)
        found = []
        for _ in range(20):
            at = world.step(at, torch.zeros(400, 1, dtype=torch.float64)).x
            found.append(float(at.std()))
        return found

    split, process = spread("split"), spread("process")
    # The start and each later position are measured with a deviation of 0.1, which is 0.14 together, and little
    # more at the last; not 0.1 √(2 · 20) = 0.63.
    assert split[0] == pytest.approx(0.14, abs=0.03) and split[-1] < 0.25
    assert process[-1] == pytest.approx(0.63, rel=0.3)


def test_a_history_holds_what_was_measured() -> None:
    model = fitted(0.0, 0.1, history=2)
    x = torch.zeros(50, 3, dtype=torch.float64)
    world = ModelWorld(model)
    first = world.step(world.reset(50, seeded(), x=x), torch.ones(50, 1, dtype=torch.float64)).x
    second = world.step(first, torch.ones(50, 1, dtype=torch.float64)).x
    assert torch.equal(second[:, 1], first[:, 0]) and bool((second[:, 2] == 1).all())


def test_without_noise_nothing_is_measured_wrongly() -> None:
    model = fitted(0.0, 0.1)
    world = ModelWorld(model, noise=False, draw="functions")
    x = torch.zeros(5, 1, dtype=torch.float64)
    u = torch.ones(5, 1, dtype=torch.float64)
    world.reset(5, seeded(), x=x)
    assert torch.equal(world.step(x, u).x, world.step(x, u).x)
