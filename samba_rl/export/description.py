"""A policy as plain arrays: what every exported file contains."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, final

import numpy as np
import torch

from samba_rl import __version__
from samba_rl.data.coverage import POINTS, Coverage
from samba_rl.errors import UserError
from samba_rl.improve.experts import MixturePolicy
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.runs.folder import POLICY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from samba_rl.runs import Run
    from samba_rl.tasks.task import Quantity

Floats: TypeAlias = "NDArray[np.float64]"


class Layer(NamedTuple):
    """A linear layer of a network."""

    weight: Floats
    """Weights [out, in]."""
    bias: Floats
    """Biases [out]."""


class Monitor(NamedTuple):
    """How far an observation lies from the data: see `Coverage`."""

    points: Floats
    """Representative observations [k, no]."""
    scale: Floats
    """Unit of each component [no]."""
    radius: float
    """Distance that counts as 1."""


class Output(NamedTuple):
    """What a policy file gives for a batch of observations."""

    action: Floats
    """Actions [B, nu]."""
    monitor: Floats | None
    """Distances from the data [B]; None if the file has no monitor."""
    expert: NDArray[np.int64] | None = None
    """Expert that acts in the episode of each observation [B]; None if the file has a single one."""


class Acts(Protocol):
    """What reading a policy file gives."""

    def __call__(self, observations: Floats, first: Floats | None = None) -> Output:
        """Return actions and monitor for observations [B, no], in episodes that began with `first` [B, no].

        Without `first`, each observation is the first of an episode.
        """


@final
@dataclass(frozen=True, eq=False)
class Description:
    """A policy as plain arrays (float64): calling it is the definition that every format follows."""

    observations: tuple[str, ...]
    """Names of the components of an observation."""
    actions: tuple[str, ...]
    """Names of the components of an action."""
    centre: Floats
    """Centre of the observations [no]."""
    scale: Floats
    """Scale of the observations [no]."""
    low: Floats
    """Lower bounds of the actions [nu]."""
    high: Floats
    """Upper bounds of the actions [nu]."""
    squash: float | None
    """Bound of the mean in half widths of the action range, which a tanh squashes it to; None: no squash."""
    layers: tuple[Layer, ...]
    """Layers of the network; a tanh follows each of them but the last. With a gate, the first one sees the observation
    and then a column for each expert, 1 for the one that acts and 0 for the others."""
    std: Floats
    """Standard deviation of the noise that the policy learned with, in half widths of the action range [nu]."""
    dt: float
    """Time between two actions, in seconds."""
    monitor: Monitor | None
    """How far an observation lies from the data."""
    provenance: Mapping[str, object]
    """Origin of the policy: system, learner, seed, samples, limits, version."""
    gate: tuple[Layer, ...] = ()
    """Layers of the network that rates each expert by the first observation of an episode; the one that it rates
    highest acts in all of the episode. Empty: a single expert."""

    @property
    def experts(self) -> int:
        """Number of experts."""
        return len(self.gate[-1].bias) if self.gate else 1

    def __call__(self, observations: Floats, first: Floats | None = None) -> Output:
        """Return actions and monitor, as `Acts` does."""
        x = (observations - self.centre) / self.scale
        chosen = None
        if self.gate:
            chosen = self.ratings(observations if first is None else first).argmax(1)
            x = np.concatenate([x, np.eye(self.experts)[chosen]], axis=1)
        mean = _network(self.layers, x)
        if self.squash is not None:
            mean = self.squash * np.tanh(mean / self.squash)
        action = (self.low + self.high) / 2 + (self.high - self.low) / 2 * mean
        return Output(np.clip(action, self.low, self.high), self._distances(observations), chosen)

    def ratings(self, first: Floats) -> Floats:
        """Return log-probabilities of the experts, up to a constant [B, K], at first observations [B, no]."""
        return _network(self.gate, (first - self.centre) / self.scale)

    def _distances(self, observations: Floats) -> Floats | None:
        if self.monitor is None:
            return None
        points, scale, radius = self.monitor
        as_tensor = torch.from_numpy
        nearest = Coverage(as_tensor(points), as_tensor(scale), radius).distance(as_tensor(observations))
        return np.asarray(nearest.numpy(), dtype=np.float64)


def describe(run: Run, *, points: int = POINTS) -> Description:
    """Describe the policy of a run, with a monitor of so many representative `points` of its data."""
    policy, task, steps = run.policy, run.task, run.data.transitions
    if not isinstance(policy, GaussianPolicy | MixturePolicy):
        raise UserError(
            f"the policy of {run.learner} cannot be exported: it is a planner, which searches on its latent model at "
            "every step and remembers the episode, not a network from observation to action. Call it from Python with "
            "run.policy.begin(1).act(observation), or train a learner with a policy network, such as samba"
        )
    actor, gate = policy.actor, policy.gate.layers() if isinstance(policy, MixturePolicy) else ()
    seen = slice(0, len(task.observations))  # what follows are the columns of the experts
    coverage = Coverage.of(task.observe(steps.x), steps.episode, points=points, constant=actor.scale[seen])
    return Description(
        observations=_names(task.observations),
        actions=_names(task.actions),
        centre=_array(actor.centre[seen]),
        scale=_array(actor.scale[seen]),
        low=_array(actor.low),
        high=_array(actor.high),
        squash=policy.settings.mean_bound,
        layers=tuple(Layer(_array(layer.weight), _array(layer.bias)) for layer in actor.layers),
        std=_array(policy.std),
        dt=task.dt,
        monitor=Monitor(_array(coverage.points), _array(coverage.scale), coverage.radius),
        provenance=_provenance(run),
        gate=tuple(Layer(_array(weight), _array(bias)) for weight, bias in gate),
    )


def _network(layers: tuple[Layer, ...], x: Floats) -> Floats:
    """Return what a network with a tanh after each layer but the last gives for inputs [B, in]."""
    for weight, bias in layers[:-1]:
        x = np.tanh(x @ weight.T + bias)
    return x @ layers[-1].weight.T + layers[-1].bias


def _names(quantities: tuple[Quantity, ...]) -> tuple[str, ...]:
    return tuple(one.name for one in quantities)


def _array(tensor: torch.Tensor) -> Floats:
    return np.array(tensor.detach().double().cpu().numpy())


def _provenance(run: Run) -> dict[str, object]:
    quantities = (*run.task.observations, *run.task.actions)
    found: dict[str, object] = {
        "system": run.task.name,
        "learner": run.learner,
        "seed": run.seed,
        "real_samples": run.summary.get("real_samples"),
        "limits": [f"{one.in_words()} at most {one.limit:g}" for one in run.constraints],
        "limit_kept": run.summary.get("limit_kept"),
        "units": {one.name: one.unit for one in quantities if one.unit},
        "samba_rl": __version__,
    }
    if run.folder is not None:
        found["sha256"] = hashlib.sha256((run.folder / POLICY).read_bytes()).hexdigest()
    return found
