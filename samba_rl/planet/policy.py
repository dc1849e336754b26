"""The policy that plans: what it believes of each system, and at every step a search on what a model imagines."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Generator, Tensor, nn

from samba_rl.errors import UserError
from samba_rl.planet.latent import Belief, LatentModel, LatentSettings
from samba_rl.planet.networks import PICTURE
from samba_rl.planet.planner import CEMPlanner, PlannerSettings, shifted

if TYPE_CHECKING:
    from samba_rl.tasks.task import Task

AT_ONCE = 20_000
"""Action sequences that are judged together: more would not be quicker, and take memory."""


@final
class PlanningPolicy(nn.Module):
    """Plans on a latent model; `begin` gives one with a memory, for episodes that begin."""

    middle: Tensor
    reach: Tensor
    safety_weight: Tensor

    def __init__(self, task: Task, latent: LatentSettings, planner: PlannerSettings, generator: Generator) -> None:
        super().__init__()
        self.planner, self.horizon = planner, task.horizon
        self.noise = 0.0
        """Standard deviation of what is added to the actions, in half widths of their range."""
        self.model = LatentModel(len(task.observations), len(task.actions), len(task.constraints), latent, generator)
        low = torch.tensor([action.low for action in task.actions], dtype=torch.float32)
        high = torch.tensor([action.high for action in task.actions], dtype=torch.float32)
        self.register_buffer("middle", (low + high) / 2)
        self.register_buffer("reach", (high - low) / 2)
        self.register_buffer("safety_weight", torch.zeros((), dtype=torch.float64))
        self.camera = camera(task) if latent.observation == "pixels" else None
        """What the policy sees of states [B, nx] instead of the observation, if it is that."""

    def raw(self, action: Tensor) -> Tensor:
        """Actions [..., nu] in half widths from the centre of their range, in float32."""
        return ((action - self.middle) / self.reach).float()

    def with_noise(self, noise: float) -> PlanningPolicy:
        """A copy that adds noise of this standard deviation, in half widths, to its actions."""
        other = copy.deepcopy(self)
        other.noise = noise
        return other

    def begin(self, n: int) -> Planning:
        """For n episodes that begin now."""
        return Planning(self, n)

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        """Actions for observations that stand alone, each the first of an episode."""
        return self.begin(len(observation))(observation, generator)

    def __deepcopy__(self, memo: dict[int, object]) -> PlanningPolicy:
        # The camera looks at the same system, which need not be copied (and may not be: a simulator).
        kept, self.camera = self.camera, None
        try:
            other = copy.copy(self)
            other.__dict__ = copy.deepcopy(self.__dict__, memo)
        finally:
            self.camera = kept
        other.camera = kept
        return other


@final
class Planning:
    """A planning policy in the midst of n episodes: what it believes of each, and what it meant to do next."""

    def __init__(self, policy: PlanningPolicy, n: int) -> None:
        self._policy, self._step = policy, 0
        self._h = policy.model.begin(n)
        self._plan = self._h.new_zeros(n, policy.planner.horizon, policy.model.actions)
        self._search = CEMPlanner(policy.planner)

    @torch.no_grad()
    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Actions [n, nu] for observations [n, no], or pictures, that follow what was done last."""
        policy = self._policy
        device = self._h.device
        belief = policy.model.see(self._h, observation.to(device))
        # No further than the episode goes; a rig may run on for longer.
        left = max(1, policy.horizon - self._step) if self._step < policy.horizon else policy.planner.horizon
        plan = self._plan[:, : min(left, policy.planner.horizon)]
        parts = []
        for part in torch.split(torch.arange(len(plan)), max(1, AT_ONCE // policy.planner.candidates)):
            at = Belief(belief.h[part], belief.s[part])
            parts.append(self._search(self._judge(at), plan[part], generator_on(device, generator)))
        plan = torch.cat(parts)
        action = plan[:, 0]
        if policy.noise:
            noise = torch.randn(action.shape, generator=generator, device=generator.device, dtype=action.dtype)
            action = (action + policy.noise * noise.to(device)).clamp(-1, 1)
        self._h = policy.model(belief, action)
        self._plan = torch.zeros_like(self._plan)
        if policy.planner.warm_start:
            self._plan[:, : plan.shape[1]] = shifted(plan)
        self._step += 1
        dtype = observation.dtype if observation.is_floating_point() else torch.float64
        return (policy.middle + policy.reach * action).to(observation.device, dtype)

    def _judge(self, belief: Belief) -> Callable[[Tensor], Tensor]:
        weight = float(self._policy.safety_weight)
        return lambda actions: self._policy.model.imagine(belief, actions, weight)


def generator_on(device: torch.device, generator: Generator) -> Generator:
    """The generator itself, or one on the device that follows from it."""
    if generator.device == device:
        return generator
    seed = torch.randint(2**62, (1,), generator=generator, device=generator.device)
    return Generator(device).manual_seed(int(seed))


def camera(task: Task) -> Callable[[Tensor], Tensor]:
    """States [B, nx] to pictures [B, 3, 64, 64] (uint8)."""
    if not task.known_dynamics:
        raise UserError(
            f"{task.name}: pictures cannot be drawn from its state alone, so no model can learn from them; "
            "leave --model.observation at vector"
        )
    world = task.world()
    first = world.render(task.start(1, Generator().manual_seed(0))[0], None, 0, PICTURE)
    if first.shape != (PICTURE, PICTURE, 3) or first.dtype != np.uint8:
        raise UserError(
            f"{task.name}: a picture of size {PICTURE} is {list(first.shape)} ({first.dtype}); it must be "
            f"[{PICTURE}, {PICTURE}, 3] (uint8)"
        )

    def look(x: Tensor) -> Tensor:
        pictures = [world.render(one, None, i, PICTURE) for i, one in enumerate(x.cpu())]
        return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()

    return look
