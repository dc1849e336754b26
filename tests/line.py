"""A system that anything can learn in seconds: a point on a line that should come to rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Generator, Tensor

from samba_rl.agents.agent import AnyAgent, Learned
from samba_rl.agents.first import FirstSettings
from samba_rl.agents.settings import ImaginationSettings, ModelBasedSettings, ModelFreeSettings, Settings
from samba_rl.algorithm import train
from samba_rl.events import Event
from samba_rl.improve.advantages import AdvantageSettings
from samba_rl.improve.policies import PolicySettings
from samba_rl.improve.step import WeightSettings
from samba_rl.improve.updates.proximal import ProximalSettings
from samba_rl.improve.updates.trust_region import TrustRegionSettings
from samba_rl.learners import Learner
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.settings import GPSettings
from samba_rl.planet.latent import LatentSettings
from samba_rl.planet.planner import PlannerSettings
from samba_rl.planet.settings import PlanetSettings
from samba_rl.presets import make_settings
from samba_rl.runs.trials import Trials
from samba_rl.tasks.task import Quantity, Task
from samba_rl.tasks.world import EquationsWorld, World

if TYPE_CHECKING:
    from numpy.typing import NDArray

START = (-3.0, -1.5)


@final
@dataclass(frozen=True, kw_only=True)
class Line(Task):
    """x' = x + u with |u| ≤ 1 and the cost (x - goal)²; the safety cost rises from 0 at x = 0.5 to 1 at x = 1."""

    name: str = "line"
    title: str = "Line"
    states: tuple[Quantity, ...] = (Quantity("x", "m"),)
    observations: tuple[Quantity, ...] = (Quantity("x", "m"),)
    actions: tuple[Quantity, ...] = (Quantity("u", "m", -1.0, 1.0),)
    constraints: tuple[str, ...] = ("edge",)
    predicted: tuple[int, ...] = (0,)
    horizon: int = 10
    dt: float = 1.0
    goal: float = 0.0
    """At 1 it lies where it is unsafe: cost and safety pull against each other."""

    def start(self, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
        device = "cpu" if generator is None else generator.device
        return torch.empty(n, 1, device=device, dtype=dtype).uniform_(*START, generator=generator)

    def observe(self, x: Tensor) -> Tensor:
        return x

    def model_inputs(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat([x, u], dim=-1)

    def _cost(self, x: Tensor, u: Tensor) -> Tensor:
        return (x[..., 0] - self.goal).square()

    def safety(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        return ((x - 0.5) / 0.5).clamp(0, 1)

    def _violation(self, x: Tensor, u: Tensor | None, safety: Tensor) -> Tensor:
        return safety >= 1

    def done(self, x: Tensor, recent: Tensor) -> Tensor:
        return torch.zeros(len(x), dtype=torch.bool, device=x.device)

    def hazard_in_words(self) -> str:
        return "x: unsafe > 1, hazard > 0.5"

    def _step(self, x: Tensor, u: Tensor) -> Tensor:
        return x + u

    def world(self, workers: int | None = None) -> World:
        return EquationsWorld(self, self.draw)

    def draw(self, x: Tensor, u: Tensor | None, size: int) -> NDArray[np.uint8]:
        picture = np.full((size, size, 3), 255, dtype=np.uint8)
        place = int((float(x[0]) + 4) / 8 * size)
        picture[size // 2, max(0, min(size - 1, place))] = 0
        return picture


def spend(agent: AnyAgent, world: World | None = None, seed: int = 0) -> Learned:
    """Train the agent on its system, or on another world; its log gets the events."""
    trials = Trials(agent.task.world() if world is None else world, agent.settings.real)
    for event in train(agent, trials, Generator().manual_seed(seed)):
        if agent.log is not None and isinstance(event, Event):
            agent.log(event)
    return agent.policy


def make_line() -> Line:
    """As a user's file has it."""
    return Line()


def quick_settings(learner: str | Learner = "samba") -> Settings:
    """Enough to learn the line, in a second or two."""
    settings = make_settings("line", learner)
    if isinstance(settings, PlanetSettings):
        return replace(
            settings,
            real_samples=400,
            episodes=4,
            first=FirstSettings(samples=100, how="uniform"),
            latent=LatentSettings(
                deterministic=24, stochastic=4, hidden=24, updates=40, first_updates=100, batch=20, rate=5e-3,
            ),
            planner=PlannerSettings(candidates=60, elites=8, iterations=4, horizon=5),
        )  # fmt: skip
    if isinstance(settings, ModelFreeSettings):
        return replace(
            settings,
            real_samples=16_000,
            episodes=40,
            first=FirstSettings(samples=20, how="uniform"),
            policy=PolicySettings(hidden=(16,), std_floor_first=0.05),
            advantage=AdvantageSettings(hidden=(16,)),
            update=ProximalSettings(minibatch=400, policy_rate=1e-2, critic_rate=1e-2),
            trust_region=TrustRegionSettings(kl=0.05),
        )
    assert isinstance(settings, ModelBasedSettings)
    return replace(
        settings,
        real_samples=60,
        episodes=1,
        feasibility_iterations=1,
        first=FirstSettings(samples=20, how="uniform"),
        shield="off",
        imagination=ImaginationSettings(10, 40, 100, candidates=2, judged=100, starts=0, most=1.0),
        policy=PolicySettings(hidden=(16,)),
        advantage=AdvantageSettings(hidden=(16,)),
        weights=WeightSettings(explore=0),
        update=ProximalSettings(epochs=8, policy_rate=1e-2, critic_rate=1e-2),
        model=GPSettings(fit=FitSettings(iterations=20)),
    )
