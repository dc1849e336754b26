"""Policies, which map observations to actions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, final, overload

import torch
from torch import Generator, Tensor, nn

from samba_rl.improve.acting import answer, array, batch_of
from samba_rl.ranges import Count, Hidden, In, Rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from samba_rl.types import Traces

FARTHEST = 1e6
"""Largest observation that networks see, in normalised units."""


@final
@dataclass(frozen=True)
class UniformPolicy:
    """A policy that draws actions uniformly from a box, whatever the observation."""

    low: tuple[float, ...]
    """Lower bounds of the actions [nu]."""
    high: tuple[float, ...]
    """Upper bounds of the actions [nu]."""

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Draw actions [B, nu] for observations [B, no]."""
        unit = torch.rand(
            len(observation), len(self.low), generator=generator, device=observation.device, dtype=observation.dtype
        )
        columns = [lo + (hi - lo) * unit[:, i] for i, (lo, hi) in enumerate(zip(self.low, self.high, strict=True))]
        return torch.stack(columns, dim=1)


@final
class OpenLoopPolicy:
    """A policy whose actions were fixed in advance, step by step, whatever the observation. It serves one rollout."""

    def __init__(self, actions: Tensor) -> None:
        """Take the actions of each episode at each step [B, T, nu]."""
        self._actions = actions
        self._next = 0

    def episode(self, index: int) -> OpenLoopPolicy:
        """Return the policy of one episode, from its first step."""
        return OpenLoopPolicy(self._actions[index : index + 1])

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return the next actions [B, nu]."""
        self._next += 1
        return self._actions[:, self._next - 1].to(observation)


@dataclass(frozen=True)
class PolicySettings:
    """The policy's network and its noise."""

    hidden: Hidden = (32, 32)
    """Units in each hidden layer (tanh)."""
    std: Annotated[float, In("[1e-6, 100]")] = 0.6
    """Initial standard deviation of the actions, in half widths of the action range."""
    std_floor_first: Annotated[float, In("[0, 100]")] = 0.3
    """Lower bound of the standard deviation at the start of a run, when the model is rough and noise finds what it
    lacks, in half widths of the action range. The bound falls geometrically to `std_floor`."""
    std_floor: Annotated[float, In("[0, 100]")] = 0.05
    """Lower bound of the standard deviation at the end of a run, in half widths of the action range. A policy without
    noise stops learning. 0 for both: no bound."""
    mean_bound: Annotated[float, In("[1e-6, 1e6]")] | None = 1.1
    """Bound of the mean action, in half widths from the centre of the action range; a tanh squashes the mean to it. Far
    outside the range, clipping hides the noise and the gradient vanishes. None: unbounded, as in the paper."""
    experts: Annotated[int, In("[1, 100]")] = 1
    """Number of ways of acting. With more than one, a gate chooses one at the start of each episode, by what each is
    expected to cost from there. Needs a learner on a model."""
    apart: Annotated[int, In("[0, 1e9]")] = 60
    """Control iterations for which several experts are improved apart: the first for the cost alone, the last under the
    limits, and any between them under a share of the multipliers. Until then the last one makes the real trials."""
    gate_hidden: Hidden = (64, 64)
    """Units in each hidden layer (tanh) of the gate."""
    gate_rate: Rate = 5e-3
    """Learning rate of the gate (Adam)."""
    gate_passes: Count = 30
    """Steps of the gate's regression in each control iteration."""

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Yield a floor of 0 beside one that is not: the bound could not fall geometrically."""
        if self.std_floor == 0 < self.std_floor_first:
            yield "std_floor", f"above 0 if std_floor_first is ({self.std_floor_first}); or set both to 0"
        if self.std_floor_first == 0 < self.std_floor:
            yield "std_floor_first", f"above 0 if std_floor is ({self.std_floor}); or set both to 0"

    def floor_at(self, progress: float) -> float:
        """Return the lower bound of the standard deviation when this share of the real samples is spent."""
        if self.std_floor == 0:
            return 0.0
        return math.exp((1 - progress) * math.log(self.std_floor_first) + progress * math.log(self.std_floor))


@final
class GaussianPolicy(nn.Module):
    """A policy u ~ N(mean(observation), std²) whose mean is a tanh network and whose std is the same everywhere.

    Its networks work in normalised units: actions in half widths of their range from its centre, observations in
    `scale` from `centre`.
    """

    centre: Tensor
    """Centre of the observations [no]."""
    scale: Tensor
    """Scale of the observations [no]."""
    middle: Tensor
    """Centre of the action range [nu]."""
    reach: Tensor
    """Half width of the action range [nu]."""
    low: Tensor
    """Lower bounds of the actions [nu], as the task has them (float64)."""
    high: Tensor
    """Upper bounds of the actions [nu], as the task has them (float64)."""

    def __init__(
        self,
        low: Sequence[float] | Tensor,
        high: Sequence[float] | Tensor,
        centre: Tensor,
        scale: Tensor,
        settings: PolicySettings,
        generator: Generator,
    ) -> None:
        """Make a fresh policy for actions within `low` and `high` [nu]; `centre` and `scale` [no] normalise inputs."""
        super().__init__()
        self.settings = settings
        lows, highs = torch.as_tensor(low, dtype=torch.float32), torch.as_tensor(high, dtype=torch.float32)
        self.register_buffer("middle", (lows + highs) / 2)
        self.register_buffer("reach", (highs - lows) / 2)
        # Not part of a policy's file: they are the task's.
        self.register_buffer("low", torch.as_tensor(low, dtype=torch.float64), persistent=False)
        self.register_buffer("high", torch.as_tensor(high, dtype=torch.float64), persistent=False)
        self.register_buffer("centre", centre.float())
        self.register_buffer("scale", scale.float())
        sizes = (len(centre), *settings.hidden)
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [linear(size_in, size_out, math.sqrt(2), generator), nn.Tanh()]
        # A small last layer, so that a fresh policy is little more than noise around the centre of the action range.
        layers.append(linear(sizes[-1], len(lows), 0.01, generator))
        self.network = nn.Sequential(*layers)
        self.log_std = nn.Parameter(torch.full((len(lows),), math.log(settings.std)))

    def normalised(self, observation: Tensor) -> Tensor:
        """Return observations [..., no] as the network sees them, in float32; one of 1e60 would lead to NaN."""
        return ((observation - self.centre) / self.scale).float().clamp_(-FARTHEST, FARTHEST)

    def mean_of(self, inputs: Tensor) -> Tensor:
        """Return the mean action [..., nu], in half widths, at normalised observations [..., no]."""
        out: Tensor = self.network(inputs)
        bound = self.settings.mean_bound
        return out if bound is None else bound * (out / bound).tanh()

    @property
    def std(self) -> Tensor:
        """Return the standard deviation of the actions, in half widths [nu]."""
        return self.log_std.exp()

    @property
    def actor(self) -> GaussianPolicy:
        """Return the policy itself: it is all that acts."""
        return self

    def bolder(self) -> list[dict[str, Tensor]]:
        """Return no other policies: there is no choice that could heed the limits less."""
        return []

    def more_careful(self) -> list[dict[str, Tensor]]:
        """Return no other policies: there is no choice that could heed the limits more."""
        return []

    def still(self) -> MeanPolicy:
        """Return the policy without noise."""
        return MeanPolicy(self)

    def learning(self) -> GaussianPolicy:
        """Return the policy itself: it is improved on its own traces."""
        return self

    def limited(self, traces: Traces) -> Traces:
        """Return the traces on which limits are measured: all of them."""
        return traces

    def shares(self, traces: Traces) -> None:
        """Return None: the multipliers weigh on all trajectories alike."""

    @torch.no_grad()
    def floor_std(self, floor: float) -> None:
        """Raise the standard deviation to at least `floor`, in half widths; 0 changes nothing."""
        if floor > 0:
            self.log_std.clamp_(min=math.log(floor))

    def raw(self, action: Tensor) -> Tensor:
        """Return actions [..., nu] in half widths from the centre of their range, in float32."""
        return ((action - self.middle) / self.reach).float()

    @property
    def layers(self) -> tuple[nn.Linear, ...]:
        """Return the network's layers; a tanh follows each of them but the last."""
        return tuple(layer for layer in self.network if isinstance(layer, nn.Linear))

    def log_density(self, inputs: Tensor, raw: Tensor) -> Tensor:
        """Compute log π [...] of actions in half widths [..., nu] at normalised observations [..., no]."""
        z = (raw - self.mean_of(inputs)) * (-self.log_std).exp()
        return -0.5 * z.square().sum(-1) - (self.log_std.sum() + 0.5 * math.log(2 * math.pi) * len(self.log_std))

    @torch.no_grad()
    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        """Draw actions [B, nu] for observations [B, no]."""
        mean = self.mean_of(self.normalised(observation))
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return (self.middle + self.reach * (mean + self.std * noise)).to(observation.dtype)

    @torch.no_grad()
    def mean_action(self, observation: Tensor) -> Tensor:
        """Return the mean actions [B, nu] for observations [B, no], which may lie outside the bounds; see `act`."""
        mean = self.mean_of(self.normalised(observation))
        return (self.middle + self.reach * mean).to(observation.dtype)

    @overload
    def act(self, observation: Tensor, generator: Generator | None = None) -> Tensor: ...
    @overload
    def act(self, observation: ArrayLike, generator: Generator | None = None) -> NDArray[np.float64]: ...
    @torch.no_grad()
    def act(self, observation: Tensor | ArrayLike, generator: Generator | None = None) -> Tensor | NDArray[np.float64]:
        """Return the action [nu] for one observation [no], or actions [B, nu] for [B, no], within their bounds.

        Tensors give a tensor of their type; everything else gives a NumPy array. Without a `generator` the action is
        the mean, computed in float64 as by an exported policy; with one, noise drawn from it is added.
        """
        raw = self.exact_mean(batch_of(observation, tuple(self.centre.shape)).to(self.centre.device))
        if generator is not None:
            noise = torch.randn(raw.shape, generator=generator, device=generator.device, dtype=raw.dtype)
            raw = raw + self.std.double() * noise.to(raw.device)
        action = (self.low + self.high) / 2 + (self.high - self.low) / 2 * raw
        given = answer(action, self.low, self.high, observation, 1)
        return given if isinstance(observation, Tensor) else array(given)

    @torch.no_grad()
    def exact_mean(self, observation: Tensor) -> Tensor:
        """Return the mean action [B, nu], in half widths, for observations [B, no], in float64 throughout."""
        out = (observation.double() - self.centre.double()) / self.scale.double()
        *hidden, last = self.layers
        for layer in hidden:
            out = (out @ layer.weight.double().T + layer.bias.double()).tanh()
        out = out @ last.weight.double().T + last.bias.double()
        bound = self.settings.mean_bound
        return out if bound is None else bound * (out / bound).tanh()


@final
@dataclass(frozen=True)
class MeanPolicy:
    """A Gaussian policy that acts by its mean, without noise."""

    policy: GaussianPolicy

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return the mean actions [B, nu] for observations [B, no]."""
        return self.policy.mean_action(observation)


def linear(size_in: int, size_out: int, gain: float, generator: Generator) -> nn.Linear:
    """Make a layer with random orthogonal weights of this gain and zero bias."""
    layer = nn.Linear(size_in, size_out)
    with torch.no_grad():
        layer.weight.copy_(gain * orthogonal(size_out, size_in, generator))
        layer.bias.zero_()
    return layer


def orthogonal(rows: int, columns: int, generator: Generator) -> Tensor:
    """Draw a random matrix [rows, columns] with orthonormal rows or columns, whichever are fewer."""
    tall = torch.randn(max(rows, columns), min(rows, columns), generator=generator)
    q: Tensor
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sign()
    return q if rows >= columns else q.T


def tanh_(x: Tensor) -> Tensor:
    """Compute tanh(x) in place, on a CPU as 2 σ(2 x) - 1: there PyTorch's sigmoid is six times as fast as its tanh."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1) if x.device.type == "cpu" else x.tanh_()
