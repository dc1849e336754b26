"""Imagined episodes: a learned model that stands where the real system stood."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.models.gp import GPDynamics
from samba_rl.models.information import InformationGain
from samba_rl.models.pathwise import Functions
from samba_rl.models.zeta import Zeta
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from samba_rl.tasks.world import Step
from samba_rl.types import Policy, Traces

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray


@final
class ModelWorld:
    """A `World` whose steps are sampled from a model.

    With `draw="marginals"` every step is an independent sample of the predictive distribution. With `draw="functions"`
    every episode follows one function drawn from the posterior, so that it meets the same dynamics whenever it returns
    to a state; `features` is the number of random features of such a function, and `share` that of the episodes in a
    row which follow the same one.

    `zeta` is measured at every step (None: it is not), and `noise` adds the model's noise to every step. Episodes start
    in states drawn with replacement from `starts` [k, nx] (None: where the task starts).
    """

    def __init__(
        self,
        model: GPDynamics,
        *,
        draw: Literal["marginals", "functions"] = "marginals",
        zeta: Zeta | None = None,
        noise: bool = True,
        features: int = 256,
        share: int = 1,
        starts: Tensor | None = None,
    ) -> None:
        self.model, self.zeta = model, zeta
        self._draw = draw
        self._noise = noise
        self._features = features
        self._share = share
        self._starts = starts
        self._generator: Generator | None = None
        self._functions: Functions | None = None
        self._latent: Tensor | None = None

    @property
    def task(self) -> Task:
        """Return the task that is imagined."""
        return self.model.task

    @property
    def drawn(self) -> tuple[Functions | None, Tensor | None]:
        """Return what `reset` drew beside the start: functions, and the states behind what was measured [n, nx]."""
        return self._functions, self._latent

    def go_on(self, functions: Functions | None, latent: Tensor | None, generator: Generator) -> None:
        """Go on with episodes for which another world has `drawn` these."""
        self._functions, self._latent, self._generator = functions, latent, generator
        self._imagined_noise = self.model.imagined_noise

    def reset(self, n: int, generator: Generator, *, slots: Tensor | None = None, x: Tensor | None = None) -> Tensor:
        """Start n imagined episodes: see `World.reset`."""
        if slots is not None:
            raise UserError("imagined episodes all start together; call reset without slots")
        self._generator = generator
        if self._draw == "functions":
            self._functions = Functions.draw(self.model, n, self._features, generator, share=self._share)
        if x is None and self._starts is not None:
            chosen = torch.randint(len(self._starts), (n,), generator=generator, device=self._starts.device)
            x = self._starts[chosen].to(self.model.dtype)
        elif x is None:
            x = self.task.start(n, generator, dtype=self.model.dtype)
        noise, self._latent = self.model.imagined_noise, None
        self._imagined_noise = noise
        if self._noise and noise.measured is not None:
            self._latent = noise.measure(self.task, x, x, self._normal(x))  # what is true, given what was measured
        return x

    def step(self, x: Tensor, u: Tensor, active: Tensor | None = None) -> Step:
        """Imagine one step of every episode, from states x [n, nx] with actions u [n, nu]."""
        before = x if self._latent is None else self._latent
        outputs, zeta = self._sample(self.task.model_inputs(before, u))
        x_next = self._advance(self.task.carry(before, u), outputs)
        if self._latent is not None:
            measure, self._latent = self._imagined_noise.measure, x_next
            x_next = measure(self.task, self.task.carry(x, u), x_next, self._normal(x_next))
        costs = self.model.plausible(outputs[:, len(self.task.predicted) :]) if self.task.measured else None
        never = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        return Step(x_next, self.task.charge(x, u, x_next, costs), never, never, zeta)

    def _sample(self, queries: Tensor) -> tuple[Tensor, Tensor | None]:
        """Sample the model's outputs [n, D] at queries [n, ni]; return them with ζ [n], if that is measured."""
        if self._functions is not None:
            change = self._functions(queries)
            if self._noise:
                change = change + self._imagined_noise.motion.sqrt() * self._normal(change)
            return change, None if self.zeta is None else self.zeta.predict(self.model, queries)[1]
        if self.zeta is None:
            prediction, zeta = self.model.predict(queries), None
        else:
            prediction, zeta = self.zeta.predict(self.model, queries)
        variance = prediction.variance + self._imagined_noise.motion if self._noise else prediction.variance
        return prediction.mean + variance.sqrt() * self._normal(prediction.mean), zeta

    def _normal(self, like: Tensor) -> Tensor:
        assert self._generator is not None, "reset comes before step"
        return torch.randn(like.shape, generator=self._generator, device=like.device, dtype=like.dtype)

    def _advance(self, x: Tensor, change: Tensor) -> Tensor:
        """Add the change to the predicted columns of the state, and keep them inside the task's bounds."""
        columns = list(x.unbind(-1))
        for i, column in enumerate(self.task.predicted):
            quantity = self.task.states[column]
            columns[column] = columns[column] + change[:, i].to(x.dtype)
            if math.isfinite(quantity.low) or math.isfinite(quantity.high):
                columns[column] = columns[column].clamp(quantity.low, quantity.high)
        return torch.stack(columns, dim=-1)

    def render(self, x: Tensor, u: Tensor | None, slot: int, size: int) -> NDArray[np.uint8]:
        """Raise UserError: an imagined state has no picture."""
        raise UserError("an imagined episode cannot be rendered; render the real system with task.world()")

    def close(self) -> None:
        """Do nothing: a model holds no resources."""


@final
@dataclass(frozen=True)
class ModelSource:
    """Gives traces imagined by a model."""

    model: GPDynamics
    """The model that imagines them."""
    zeta: Zeta | None = None
    """Measure of ζ at each imagined step; None: ζ is not measured."""
    draw: Literal["marginals", "functions"] = "marginals"
    """Sample every step independently (marginals), or follow one function drawn per episode (functions)."""
    starts: Tensor | None = None
    """Start states to draw from [k, nx]; None: where the task starts."""
    share: int = 1
    """Number of trajectories in a row that follow the same function."""
    run: Callable[[ModelWorld, Policy, int, Generator], Traces] | None = None
    """Runs a policy for so many episodes in the model's world; None: `rollout`."""

    def __call__(self, policy: Policy, n: int, generator: Generator) -> Traces:
        """Imagine n trajectories under the policy."""
        by_step = None if isinstance(self.zeta, InformationGain) else self.zeta
        world = ModelWorld(self.model, zeta=by_step, draw=self.draw, share=self.share, starts=self.starts)
        run = self.run
        traces = run(world, policy, n, generator) if run else rollout(world, policy, n, generator=generator)
        if not isinstance(self.zeta, InformationGain):
            return traces
        return replace(traces, zeta=along(self.zeta, self.model, traces).to(traces.cost))


def along(zeta: Zeta, model: GPDynamics, traces: Traces) -> Tensor:
    """Return ζ of each step of trajectories [B, T]; 0 after their end."""
    inputs = model.task.model_inputs(traces.x[:, :-1], traces.u)
    if isinstance(zeta, InformationGain):
        return zeta.along(model, inputs) * traces.active
    return zeta.predict(model, inputs.flatten(0, 1))[1].view(traces.active.shape) * traces.active
