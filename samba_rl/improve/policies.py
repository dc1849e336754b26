"""Policies: maps from observations to actions."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Generator, Tensor, nn

from samba_rl.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
@dataclass(frozen=True)
class UniformPolicy:
    """Actions drawn uniformly from a box, whatever the observation."""

    low: tuple[float, ...]
    """[nu]"""
    high: tuple[float, ...]
    """[nu]"""

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Actions [B, nu] for observations [B, no]."""
        unit = torch.rand(
            len(observation), len(self.low), generator=generator, device=observation.device, dtype=observation.dtype
        )
        columns = [lo + (hi - lo) * unit[:, i] for i, (lo, hi) in enumerate(zip(self.low, self.high, strict=True))]
        return torch.stack(columns, dim=1)


@final
class OpenLoopPolicy:
    """Actions that were fixed beforehand, step by step, whatever the observation. Good for one rollout."""

    def __init__(self, actions: Tensor) -> None:
        """`actions` [B, T, nu]: what episode b does at step t."""
        self._actions = actions
        self._next = 0

    def episode(self, index: int) -> OpenLoopPolicy:
        """The actions of one of the episodes, from the beginning."""
        return OpenLoopPolicy(self._actions[index : index + 1])

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """The next actions [B, nu]."""
        self._next += 1
        return self._actions[:, self._next - 1].to(observation)


@dataclass(frozen=True)
class PolicySettings:
    """The policy's network and its noise."""

    hidden: tuple[int, ...] = (32, 32)
    """Units of each hidden layer (tanh)."""
    std: float = 0.6
    """Standard deviation of the actions at first, in half widths of the action range."""
    std_floor_first: float = 0.3
    """It never falls below this at the start of a run, while the model is rough and noise finds what to learn."""
    std_floor: float = 0.05
    """Nor below this by the end: a policy without noise no longer learns."""
    mean_bound: float | None = 1.1
    """The mean is squashed to within this many half widths of the centre of the action range. Outside the range
    clipping hides the noise and gradients say nothing. None: unbounded, as in the paper."""

    def __post_init__(self) -> None:
        for name in ("std", "std_floor_first", "std_floor"):
            if getattr(self, name) <= 0:
                raise UserError(f"policy.{name} = {getattr(self, name)}; it must be positive")

    def floor_at(self, progress: float) -> float:
        """The floor of the standard deviation when this share of the real samples is spent."""
        return math.exp((1 - progress) * math.log(self.std_floor_first) + progress * math.log(self.std_floor))


@final
class GaussianPolicy(nn.Module):
    """u ~ N(mean(observation), std²), the mean a tanh network, the standard deviation the same everywhere.

    Inside, actions are measured in half widths of their range from its centre, observations in `scale` from `centre`.
    """

    centre: Tensor
    scale: Tensor
    middle: Tensor
    reach: Tensor

    def __init__(
        self,
        low: Sequence[float],
        high: Sequence[float],
        centre: Tensor,
        scale: Tensor,
        settings: PolicySettings,
        generator: Generator,
    ) -> None:
        """`low` and `high` are the actions' bounds; `centre` and `scale` [no] normalise observations."""
        super().__init__()
        self.settings = settings
        lows, highs = torch.tensor(low, dtype=torch.float32), torch.tensor(high, dtype=torch.float32)
        self.register_buffer("middle", (lows + highs) / 2)
        self.register_buffer("reach", (highs - lows) / 2)
        self.register_buffer("centre", centre.float())
        self.register_buffer("scale", scale.float())
        sizes = (len(centre), *settings.hidden)
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [linear(size_in, size_out, math.sqrt(2), generator), nn.Tanh()]
        # A small last layer: at first the policy is nearly its noise alone, centred in the action range.
        layers.append(linear(sizes[-1], len(lows), 0.01, generator))
        self.network = nn.Sequential(*layers)
        self.log_std = nn.Parameter(torch.full((len(lows),), math.log(settings.std)))

    def normalised(self, observation: Tensor) -> Tensor:
        """Observations [..., no] as the networks see them, in float32."""
        return ((observation - self.centre) / self.scale).float()

    def mean_of(self, inputs: Tensor) -> Tensor:
        """The mean [..., nu], in half widths, of normalised observations [..., no]."""
        out: Tensor = self.network(inputs)
        bound = self.settings.mean_bound
        return out if bound is None else bound * (out / bound).tanh()

    @property
    def std(self) -> Tensor:
        """The standard deviation of the actions, in half widths [nu]."""
        return self.log_std.exp()

    @torch.no_grad()
    def floor_std(self, floor: float) -> None:
        """Lift the standard deviation to a floor, in half widths."""
        self.log_std.clamp_(min=math.log(floor))

    def raw(self, action: Tensor) -> Tensor:
        """Actions [..., nu] in half widths from the centre, in float32."""
        return ((action - self.middle) / self.reach).float()

    def log_density(self, inputs: Tensor, raw: Tensor) -> Tensor:
        """log π [...] of actions in half widths [..., nu] at normalised observations [..., no]."""
        z = (raw - self.mean_of(inputs)) * (-self.log_std).exp()
        return -0.5 * z.square().sum(-1) - (self.log_std.sum() + 0.5 * math.log(2 * math.pi) * len(self.log_std))

    @torch.no_grad()
    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        """Actions [B, nu] for observations [B, no], drawn with the generator."""
        mean = self.mean_of(self.normalised(observation))
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return (self.middle + self.reach * (mean + self.std * noise)).to(observation.dtype)

    @torch.no_grad()
    def mean_action(self, observation: Tensor) -> Tensor:
        """The mean actions [B, nu] for observations [B, no]: how a policy acts once it has learned."""
        mean = self.mean_of(self.normalised(observation))
        return (self.middle + self.reach * mean).to(observation.dtype)


@final
@dataclass(frozen=True)
class MeanPolicy:
    """A Gaussian policy without its noise."""

    policy: GaussianPolicy

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """The mean actions [B, nu] for observations [B, no]."""
        return self.policy.mean_action(observation)


def linear(size_in: int, size_out: int, gain: float, generator: Generator) -> nn.Linear:
    """A layer with orthogonal weights of that gain and no bias at first, from the generator alone."""
    layer = nn.Linear(size_in, size_out)
    with torch.no_grad():
        layer.weight.copy_(gain * orthogonal(size_out, size_in, generator))
        layer.bias.zero_()
    return layer


def orthogonal(rows: int, columns: int, generator: Generator) -> Tensor:
    """A random [rows, columns] matrix with orthonormal rows or columns, whichever are fewer."""
    tall = torch.randn(max(rows, columns), min(rows, columns), generator=generator)
    q: Tensor
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sign()
    return q if rows >= columns else q.T


def tanh_(x: Tensor) -> Tensor:
    """tanh(x) in place, on a CPU as 2 σ(2 x) - 1: PyTorch's sigmoid takes a sixth of the time of its tanh there."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1) if x.device.type == "cpu" else x.tanh_()
