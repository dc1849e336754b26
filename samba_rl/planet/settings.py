"""Settings of PlaNet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, final

from samba_rl.agents.settings import Settings
from samba_rl.agents.unused import Reasons, unused_at_first
from samba_rl.improve.constraints import Constraint
from samba_rl.improve.objectives import Safety
from samba_rl.learners import LatentModel, Learner, TraceSource
from samba_rl.planet.latent import LatentSettings
from samba_rl.planet.planner import PlannerSettings
from samba_rl.tasks.task import Task

if TYPE_CHECKING:
    from samba_rl.planet.agent import PlanetAgent


@final
@dataclass(frozen=True, kw_only=True)
class PlanetSettings(Settings):
    """Settings of learners that plan on a latent model."""

    source: ClassVar[type[TraceSource]] = LatentModel
    latent: LatentSettings = field(default_factory=LatentSettings)
    planner: PlannerSettings = field(default_factory=PlannerSettings)

    def make_agent(self, task: Task, learner: Learner, *, seed: int, device: str) -> PlanetAgent:
        """Make the agent that learns the task."""
        from samba_rl.planet.agent import PlanetAgent

        return PlanetAgent(task, learner, self, seed=seed, device=device)

    def constraints(self, learner: Learner, names: tuple[str, ...]) -> tuple[Constraint, ...]:  # noqa: ARG002
        """Return no limits: a planner has none."""
        return ()

    def unused(self, learner: Learner) -> Reasons:
        """Return the settings that have no effect with this learner, and why."""
        found = unused_at_first(self.first)
        if self.latent.observation == "vector":
            found["latent.channels"] = "latent.observation is 'vector', which takes no convolutions"
        if Safety() not in learner.objectives:
            found["latent.safety_weight"] = "the learner minimises the cost alone, without the safety cost"
        return found

    @property
    def alpha(self) -> float:
        """Return the level α at which CVaR is reported."""
        return 0.9

    @property
    def updates(self) -> tuple[int, int]:
        """Return the gradient steps after each trial, and after the last one."""
        return self.latent.updates, self.latent.updates
