"""The planning policy: it tracks a belief about each system and searches for the best actions at every step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, final, overload

import numpy as np
import torch
from torch import Generator, Tensor, nn

from samba_rl.errors import UserError
from samba_rl.improve.acting import answer, array, batch_of
from samba_rl.planet.latent import Belief, LatentModel, LatentSettings
from samba_rl.planet.networks import PICTURE
from samba_rl.planet.planner import CEMPlanner, PlannerSettings, shifted

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from samba_rl.tasks.task import Task

AT_ONCE = 20_000
"""Maximum number of action sequences evaluated together; more would need more memory without being faster."""


@final
class PlanningPolicy(nn.Module):
    """Plans on a latent model; `begin` returns a policy with a memory for new episodes."""

    middle: Tensor
    reach: Tensor
    safety_weight: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, task: Task, latent: LatentSettings, planner: PlannerSettings, generator: Generator) -> None:
        super().__init__()
        self.planner, self.horizon = planner, task.horizon
        self.noise = 0.0
        """Standard deviation of the noise added to the actions, in half widths of their range."""
        self.model = LatentModel(len(task.observations), len(task.actions), len(task.constraints), latent, generator)
        low, high = (bounds.float() for bounds in task.action_bounds())
        self.register_buffer("middle", (low + high) / 2)
        self.register_buffer("reach", (high - low) / 2)
        lowest, highest = task.action_bounds()
        self.register_buffer("low", lowest, persistent=False)
        self.register_buffer("high", highest, persistent=False)
        self.register_buffer("safety_weight", torch.zeros((), dtype=torch.float64))
        self.camera = camera(task) if latent.observation == "pixels" else None
        """Function that draws images of states [B, nx], for a policy that sees pixels; None for vectors."""
        self.seen = (len(task.observations),) if self.camera is None else (3, PICTURE, PICTURE)
        """Shape of one observation."""

    def raw(self, action: Tensor) -> Tensor:
        """Convert actions [..., nu] to half widths from the centre of their range (float32)."""
        return ((action - self.middle) / self.reach).float()

    def with_noise(self, noise: float) -> PlanningPolicy:
        """Return a copy that adds noise of this standard deviation, in half widths, to its actions."""
        other = copy.deepcopy(self)
        other.noise = noise
        return other

    def begin(self, n: int) -> Planning:
        """Return the policy for n episodes that begin now."""
        return Planning(self, n)

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return actions [B, nu] for observations [B, no], each of them the first of an episode."""
        return self.begin(len(observation))(observation, generator)

    @overload
    def act(self, observation: Tensor) -> Tensor: ...
    @overload
    def act(self, observation: ArrayLike) -> NDArray[np.float64]: ...
    def act(self, observation: Tensor | ArrayLike) -> Tensor | NDArray[np.float64]:
        """Return the action [nu] for one observation, or [B, nu] for a batch, each of them the first of an episode.

        A planner remembers what it has seen: during an episode, call `act` of what `begin` returned.
        """
        return self.begin(len(batch_of(observation, self.seen))).act(observation)

    def __deepcopy__(self, memo: dict[int, object]) -> PlanningPolicy:
        # Both copies look at the same system: a simulator cannot be copied.
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
    """A planning policy during n episodes: its beliefs about the systems, and the rest of its plans."""

    def __init__(self, policy: PlanningPolicy, n: int) -> None:
        self._policy, self._step = policy, 0
        self._h = policy.model.begin(n)
        self._plan = self._h.new_zeros(n, policy.planner.horizon, policy.model.actions)
        self._search = CEMPlanner(policy.planner)

    @torch.no_grad()
    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return actions [n, nu] for the observations [n, no], or images, that followed the last actions."""
        policy = self._policy
        device = self._h.device
        belief = policy.model.see(self._h, observation.to(device))
        # Plan no further than the end of the episode; beyond the horizon (on a rig) the end is unknown.
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

    @overload
    def act(self, observation: Tensor) -> Tensor: ...
    @overload
    def act(self, observation: ArrayLike) -> NDArray[np.float64]: ...
    def act(self, observation: Tensor | ArrayLike) -> Tensor | NDArray[np.float64]:
        """Return the actions that follow the next observation of each episode, within their bounds.

        For one episode the observation may come without its first dimension. The search draws the same random numbers
        at every call, so that the same observations lead to the same actions.
        """
        policy = self._policy
        batch = batch_of(observation, policy.seen)
        if len(batch) != len(self._h):
            raise UserError(f"observations of {len(batch)} episodes; the policy was begun for {len(self._h)}")
        action = self(batch, Generator().manual_seed(self._step)).double()
        given = answer(action, policy.low.to(action), policy.high.to(action), observation, len(policy.seen))
        return given if isinstance(observation, Tensor) else array(given)

    def _judge(self, belief: Belief) -> Callable[[Tensor], Tensor]:
        weight = float(self._policy.safety_weight)
        return lambda actions: self._policy.model.imagine(belief, actions, weight)


def generator_on(device: torch.device, generator: Generator) -> Generator:
    """Return the generator if it is on the device, or else one there that is seeded from it."""
    if generator.device == device:
        return generator
    seed = torch.randint(2**62, (1,), generator=generator, device=generator.device)
    return Generator(device).manual_seed(int(seed))


def camera(task: Task) -> Callable[[Tensor], Tensor]:
    """Return a function that draws states [B, nx] as images [B, 3, 64, 64] (uint8)."""
    if not task.known_dynamics:
        raise UserError(
            f"{task.name}: images cannot be drawn from its state alone, so a model cannot learn from pixels; "
            "leave --model.observation at vector"
        )
    world = task.world()
    first = world.render(task.start(1, Generator().manual_seed(0))[0], None, 0, PICTURE)
    if first.shape != (PICTURE, PICTURE, 3) or first.dtype != np.uint8:
        raise UserError(
            f"{task.name}: an image of size {PICTURE} is {list(first.shape)} ({first.dtype}); it must be "
            f"[{PICTURE}, {PICTURE}, 3] (uint8)"
        )

    def look(x: Tensor) -> Tensor:
        pictures = [world.render(one, None, i, PICTURE) for i, one in enumerate(x.cpu())]
        return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()

    return look
