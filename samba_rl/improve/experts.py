"""Several ways of acting in one policy: experts, and a gate that chooses one of them at the start of each episode.

What a way of acting costs from a start can jump from one start to the next, where no single Gaussian can follow: leap
across a narrow obstacle, stop before a wide one. The experts share one network, which sees the chosen expert as
further inputs (one column each, 1 for the chosen one), so whatever improves a Gaussian policy improves them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, final, overload

import torch
from torch import Generator, Tensor, nn

from samba_rl.improve.chooser import Acting, Chooser
from samba_rl.improve.policies import GaussianPolicy, PolicySettings, linear
from samba_rl.types import Policy, Traces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

DISCOUNTS = (0.71, 0.5, 0.35, 0.25, 0.18, 0.125, 0.0625)
"""Factors of the gate's prices in bolder variants of a policy."""
SURCHARGES = (1.41, 2.0, 4.0, 8.0)
"""Factors of the gate's prices in more careful variants of a policy."""
BY_CHANCE = 0.2
"""Share of the trajectories to learn from in which chance chooses an expert once the experts are no longer apart."""
FIRST_PRICE = 4.0
"""First price of each limit: high, so that the gate begins with what is safe."""
GAIN = 1.4
"""Gain of the gate's hidden layers: about that of a tanh network whose signal neither grows nor fades."""
NEVER = -1000.0
"""Logit of an expert that never acts, in files, which have no infinity: its probability is 0 in float64 too."""


@final
class ExpertGate(nn.Module):
    """Predicts what each expert will cost from a start, and chooses by the Lagrangian: cost + λ · excess."""

    weights: Tensor
    """Weight of each column of the predictions in the Lagrangian [m + 1]: first of the cost, then of each limit."""
    prices: Tensor
    """Weight of each limit, in its targets, against the typical difference in cost between two experts [m]."""
    mean: Tensor
    """Mean of each column [m + 1]."""
    std: Tensor
    """Standard deviation of each column [m + 1]."""
    age: Tensor
    """Number of updates of the policy so far []."""

    def __init__(
        self, observations: int, experts: int, limits: int, settings: PolicySettings, generator: Generator
    ) -> None:
        """Make a gate that has learned nothing and heeds so many `limits`."""
        super().__init__()
        self.experts, self._apart = experts, settings.apart
        sizes = (observations, *settings.gate_hidden)
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [linear(size_in, size_out, GAIN, generator), nn.Tanh()]
        layers.append(linear(sizes[-1], experts * (limits + 1), 0.1, generator))
        self.network = nn.Sequential(*layers)
        self.register_buffer("weights", torch.zeros(limits + 1))
        self.register_buffer("prices", torch.full((limits,), FIRST_PRICE))
        self.register_buffer("mean", torch.zeros(limits + 1))
        self.register_buffer("std", torch.ones(limits + 1))
        self.register_buffer("age", torch.zeros(()))

    @property
    def apart(self) -> bool:
        """Return whether the experts are still improved apart, and the last one, which heeds the limits, acts alone."""
        return float(self.age) < self._apart

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return the predicted columns [B, K, m + 1], in standard deviations, at normalised observations [B, no]."""
        out: Tensor = self.network(inputs)
        return out.reshape(len(inputs), self.experts, -1)

    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        """Predict the cost and the excess over each limit [B, K, m + 1] at normalised observations [B, no]."""
        return self.mean + self.std * self.outputs(inputs)

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """Return the logarithms of the experts' probabilities, up to a constant [B, K], at observations [B, no]."""
        if self.apart:
            last = torch.arange(self.experts, device=inputs.device) == self.experts - 1
            return torch.where(last, 0.0, -torch.inf).expand(len(inputs), -1)
        return -(self.outputs(inputs) * (self.weights * self.std)).sum(-1)

    @torch.no_grad()
    def layers(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return the weights [out, in] and biases [out], in float64, of a network whose outputs are the logits [K].

        A tanh follows each layer but the last, into which the weights of the columns are multiplied.
        """
        *hidden, last = linears = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        if self.apart:
            weight = linears[0].weight.new_zeros((self.experts, linears[0].in_features), dtype=torch.float64)
            bias = torch.full_like(weight[:, 0], NEVER)
            bias[-1] = 0.0
            return ((weight, bias),)
        price = -(self.weights.double() * self.std.double())
        weight = last.weight.double().reshape(self.experts, len(price), -1).mul(price[:, None]).sum(1)
        bias = last.bias.double().reshape(self.experts, len(price)) @ price
        return (*((layer.weight.double(), layer.bias.double()) for layer in hidden), (weight, bias))


@final
class MixturePolicy(nn.Module):
    """K experts and the gate that chooses one of them for each episode; `begin` makes the policy of new episodes."""

    camera: None = None

    def __init__(
        self,
        low: Sequence[float] | Tensor,
        high: Sequence[float] | Tensor,
        centre: Tensor,
        scale: Tensor,
        settings: PolicySettings,
        generator: Generator,
        limits: int,
    ) -> None:
        """Make a fresh policy like a Gaussian one, with a gate that heeds so many `limits`."""
        super().__init__()
        self.settings = settings
        experts = settings.experts
        both = torch.cat([centre.float(), torch.zeros(experts)]), torch.cat([scale.float(), torch.ones(experts)])
        self.actor = GaussianPolicy(low, high, *both, settings, generator)
        self.gate = ExpertGate(len(centre), experts, limits, settings, generator)

    @property
    def centre(self) -> Tensor:
        """Return the centre of what the experts see: observations, then one column for each expert [no + K]."""
        return self.actor.centre

    @property
    def std(self) -> Tensor:
        """Return the standard deviation of the actions, in half widths [nu]."""
        return self.actor.std

    def begin(self, n: int) -> Acting:
        """Return the policy for n episodes that start now: the gate chooses an expert for each."""
        return self._chooser(self.actor, self._choose).begin(n)

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        """Draw actions [B, nu] for observations [B, no], each of them the first of an episode."""
        return self.begin(len(observation))(observation, generator)

    @overload
    def act(self, observation: Tensor, generator: Generator | None = None) -> Tensor: ...
    @overload
    def act(self, observation: ArrayLike, generator: Generator | None = None) -> NDArray[np.float64]: ...
    def act(self, observation: Tensor | ArrayLike, generator: Generator | None = None) -> Tensor | NDArray[np.float64]:
        """Return the action [nu] for one observation [no], or [B, nu] for [B, no], each the first of an episode.

        The expert stays the same for an episode: during one, call `act` of what `begin` returned.
        """
        return self.begin(1).act(observation, generator)

    @torch.no_grad()
    def exact_logits(self, observation: Tensor) -> Tensor:
        """Return the gate's logits [B, K] for first observations [B, no], in float64 throughout."""
        seen = slice(0, observation.shape[-1])
        out = (observation.double() - self.centre[seen].double()) / self.actor.scale[seen].double()
        *hidden, (weight, bias) = self.gate.layers()
        for its_weight, its_bias in hidden:
            out = (out @ its_weight.T + its_bias).tanh()
        return out @ weight.T + bias

    def bolder(self) -> list[dict[str, Tensor]]:
        """Return the parameters of policies whose gate weighs the limits less.

        Prices that have risen while a policy was improved are often higher than the limits ask for.
        """
        return self._repriced(DISCOUNTS)

    def more_careful(self) -> list[dict[str, Tensor]]:
        """Return the parameters of policies whose gate weighs the limits more, and so chooses the safer expert."""
        return self._repriced(SURCHARGES)

    def _repriced(self, factors: tuple[float, ...]) -> list[dict[str, Tensor]]:
        """Return the policy's parameters with other prices; none while there is no choice to price."""
        states = []
        for factor in () if self.gate.apart else factors:
            state = {name: value.clone() for name, value in self.state_dict().items()}
            state["gate.prices"] *= factor
            state["gate.weights"][1:] *= factor
            states.append(state)
        return states

    def still(self) -> Chooser:
        """Return the policy without noise: the likeliest expert acts by its mean."""
        return self._chooser(self.actor.still(), self._likeliest)

    def learning(self) -> Chooser:
        """Return the policy whose traces to learn from: in some of them, chance chooses an expert."""
        return self._chooser(self.actor, self._explore)

    def by_chance(self, n: int) -> Tensor:
        """Return in which of n trajectories of `learning` chance chose [n] (bool): in all while the experts are apart.

        It goes on in a few of them, so that no expert forgets how to act where the gate does not choose it yet.
        """
        free = n if self.gate.apart else round(BY_CHANCE * n)
        return torch.arange(n, device=self.centre.device) >= n - free

    def limited(self, traces: Traces) -> Traces:
        """Return the traces on which limits are measured: the gate's, or while there are none, the last expert's."""
        kept = ~self.by_chance(len(traces.cost))
        if self.gate.apart:
            kept = self.chosen(traces) == self.gate.experts - 1
        return traces.where(kept) if bool(kept.any()) else traces

    def shares(self, traces: Traces) -> Tensor:
        """Return the share of each multiplier that weighs on a trajectory [B].

        While the experts are apart it rises evenly from 0 for the first one, which heeds the cost alone, to 1. Then it
        is 1: an expert that the gate does not choose yet must become safer to be chosen.
        """
        chosen = self.chosen(traces)
        return chosen / (self.gate.experts - 1) if self.gate.apart else torch.ones_like(chosen, dtype=torch.float32)

    def chosen(self, traces: Traces) -> Tensor:
        """Return the expert of each trajectory of this policy [B]."""
        return traces.observation[:, 0, -self.gate.experts :].argmax(-1)

    def first_inputs(self, observation: Tensor) -> Tensor:
        """Return observations [B, no] as the gate sees them."""
        seen = slice(0, observation.shape[-1])
        return ((observation - self.centre[seen]) / self.actor.scale[seen]).float()

    def _chooser(self, actor: Policy, choose: Callable[[Tensor, Generator], Tensor]) -> Chooser:
        return Chooser(actor, choose, self.actor, self.exact_logits, self.gate.experts)

    def _choose(self, observation: Tensor, generator: Generator) -> Tensor:
        chances = self.gate.logits(self.first_inputs(observation)).softmax(-1)
        return torch.multinomial(chances, 1, generator=generator)[:, 0]

    def _likeliest(self, observation: Tensor, generator: Generator) -> Tensor:  # noqa: ARG002 - no noise
        return self.gate.logits(self.first_inputs(observation)).argmax(-1)

    def _explore(self, observation: Tensor, generator: Generator) -> Tensor:
        n = len(observation)
        any_of_them = torch.randint(self.gate.experts, (n,), generator=generator, device=observation.device)
        return torch.where(self.by_chance(n), any_of_them, self._choose(observation, generator))


NetworkPolicy: TypeAlias = "GaussianPolicy | MixturePolicy"
"""Policies that are improved by policy gradients."""


def fresh_policy(
    low: Tensor,
    high: Tensor,
    centre: Tensor,
    scale: Tensor,
    settings: PolicySettings,
    generator: Generator,
    limits: int,
) -> NetworkPolicy:
    """Make the policy that the settings ask for, for actions within `low` and `high` [nu].

    The gate of several experts heeds so many `limits`.
    """
    if settings.experts == 1:
        return GaussianPolicy(low, high, centre, scale, settings, generator)
    return MixturePolicy(low, high, centre, scale, settings, generator, limits)
