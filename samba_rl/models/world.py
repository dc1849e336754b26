"""A learned model as a `World`: imagined episodes, sampled step by step or as whole functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.models.exact import ExactPosterior
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import kernel, scaled
from samba_rl.models.zeta import entropy, zeta_bootstrap
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Step, Task
from samba_rl.types import Policy, Traces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ZetaName = Literal["loo", "bootstrap", "entropy"]
Zeta = Literal["loo"] | Callable[[Tensor], Tensor] | None
"""ζ of the queries [B, ni] -> [B]; "loo" comes out of the same pass as the prediction."""


@final
class ModelWorld:
    """Imagined episodes of a task.

    With `draw="marginals"` every step is an independent sample of the predictive distribution. With `draw="functions"`
    every episode sees one function drawn from the posterior, the same whenever it comes back (pathwise conditioning).
    """

    def __init__(
        self,
        model: GPDynamics,
        *,
        draw: Literal["marginals", "functions"] = "marginals",
        zeta: Zeta = None,
        noise: bool = True,
        features: int = 1024,
        starts: Tensor | None = None,
    ) -> None:
        """`noise` adds the model's noise to every step; `features` is the number of random features of a function.

        Episodes begin in one of the states `starts` [k, nx], drawn with replacement; None: where the task starts.
        """
        self._model = model
        self._draw = draw
        self._zeta = zeta
        self._noise = noise
        self._features = features
        self._starts = starts
        self._generator: Generator | None = None
        self._functions: Functions | None = None

    @property
    def task(self) -> Task:
        """The system that is imagined."""
        return self._model.task

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n imagined episodes: see `World.reset`."""
        if slots is not None:
            raise UserError("imagined episodes start all at once; a single one cannot be restarted")
        self._generator = generator
        if self._draw == "functions":
            self._functions = Functions.draw(self._model, n, self._features, generator)
        if x is not None:
            return x
        if self._starts is None:
            return self.task.start(n, generator, dtype=self._model.dtype)
        chosen = torch.randint(len(self._starts), (n,), generator=generator, device=self._starts.device)
        return self._starts[chosen].to(self._model.dtype)

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Imagine one step of every episode."""
        assert self._generator is not None
        queries = self.task.model_inputs(x, u)
        loo = self._zeta == "loo"
        zeta: Tensor | None
        if self._functions is None:
            mean, variance, zeta = self._model.predict(queries, loo)
            if self._noise:
                variance = variance + self._model.noise
            change = mean + variance.sqrt() * self._normal(mean)
        else:
            change = self._functions(queries)
            if self._noise:
                change = change + self._model.noise.sqrt() * self._normal(change)
            zeta = self._model.predict(queries, True).zeta if loo else None
        if callable(self._zeta):
            zeta = self._zeta(queries)
        x_next = self._advance(x, change)
        never = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return Step(x_next, self.task.charge(x, u, x_next), never, never, zeta)

    def _normal(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._generator, device=like.device, dtype=like.dtype)

    def _advance(self, x: Tensor, change: Tensor) -> Tensor:
        """The state after the change of its predicted columns, inside the ranges that the task states."""
        columns = list(x.unbind(-1))
        for i, column in enumerate(self.task.predicted):
            quantity = self.task.states[column]
            columns[column] = columns[column] + change[:, i].to(x.dtype)
            if math.isfinite(quantity.low) or math.isfinite(quantity.high):
                columns[column] = columns[column].clamp(quantity.low, quantity.high)
        return torch.stack(columns, dim=-1)

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """An imagined state has no picture of its own."""
        raise UserError("an imagined episode is not drawn; draw the real system's with task.world()")

    def close(self) -> None:
        """Nothing to let go of."""


@final
class Functions:
    """B functions drawn from the posterior of an exact GP, one for each episode.

    Matheron's rule: a draw from the prior (random Fourier features), corrected by what the data say of it,
    f(x) = f₀(x) + k(x, X) A (y - f₀(X) - ε).
    """

    def __init__(self, model: GPDynamics, posterior: ExactPosterior, frequencies: Tensor, phases: Tensor) -> None:
        self._model, self._posterior = model, posterior
        self._frequencies, self._phases = frequencies, phases
        self._weights = self._correction = frequencies.new_empty(0)

    @staticmethod
    def draw(model: GPDynamics, n: int, features: int, generator: Generator) -> Functions:
        """Draw n functions."""
        if not isinstance(model.posterior, ExactPosterior):
            raise UserError(
                f"whole functions are drawn from an exact GP with independent outputs; this model is "
                f"{type(model.posterior).__name__}. Use draw='marginals'"
            )
        posterior = model.posterior
        outputs, points, inputs = posterior.z.shape

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, device=posterior.z.device, dtype=posterior.z.dtype)

        phases = posterior.z.new_empty(outputs, features).uniform_(0, 2 * math.pi, generator=generator)
        functions = Functions(model, posterior, normal(outputs, features, inputs), phases)
        functions._weights = normal(outputs, features, n)
        noise = posterior.hyper.noise.sqrt()[:, None, None] * normal(outputs, points, n)
        prior = functions._basis(posterior.z) @ functions._weights
        functions._correction = posterior.solve(posterior.targets.T[..., None] - prior - noise)
        return functions

    def _basis(self, z: Tensor) -> Tensor:
        """Features [D, N, M] of scaled inputs [D, N, ni]."""
        size = (2 * self._posterior.hyper.signal / self._phases.shape[1]).sqrt()
        return (z @ self._frequencies.mT + self._phases[:, None]).cos_() * size[:, None, None]

    def __call__(self, queries: Tensor) -> Tensor:
        """The change of state [B, D] that function b gives for query b of [B, ni]."""
        z = scaled(self._model.normalised(queries).to(self._posterior.z), self._posterior.hyper.lengthscales)
        prior = (self._basis(z) * self._weights.mT).sum(-1)
        k = kernel(z, self._posterior.z, self._posterior.hyper.signal)
        values = prior + k.mul_(self._correction.mT).sum(-1)
        return self._model.denormalised(values.T.to(self._model.dtype))


@final
@dataclass(frozen=True)
class ModelSource:
    """A Gaussian-process model of the system."""

    model: GPDynamics
    zeta: ZetaName | None = None
    """What is measured of each imagined step."""
    draw: Literal["marginals", "functions"] = "marginals"
    starts: Tensor | None = None
    """Start states to draw from [k, nx]; None: the task's own."""

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """n imagined trajectories."""
        world = ModelWorld(self.model, zeta=self._zeta(), draw=self.draw, starts=self.starts)
        return rollout(world, policy, n, generator=generator)

    def _zeta(self) -> Literal["loo"] | Callable[[Tensor], Tensor] | None:
        if self.zeta == "bootstrap":
            return partial(zeta_bootstrap, self.model)
        if self.zeta == "entropy":
            return partial(entropy, self.model)
        return self.zeta
