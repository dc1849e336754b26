"""Policies of several experts during episodes, each of which keeps the expert that was chosen at its start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final, overload

import torch
from torch import Generator, Tensor, nn

from samba_rl.errors import UserError
from samba_rl.improve.acting import answer, array, batch_of
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.types import Policy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


@final
@dataclass(frozen=True)
class Chooser:
    """Experts, and a way to choose one for each episode."""

    actor: Policy
    """The experts, with or without noise: a policy whose observations end with one column for each of them."""
    choose: Callable[[Tensor, Generator], Tensor]
    """Function of first observations [B, no] and a generator that returns an expert for each [B] (int64)."""
    exact: GaussianPolicy
    """The experts, for actions in float64."""
    logits: Callable[[Tensor], Tensor]
    """Function of first observations [B, no] that returns the logarithms of the experts' probabilities, up to a
    constant [B, K] (float64)."""
    experts: int
    """Number of experts."""
    camera: None = None

    def begin(self, n: int) -> Acting:  # noqa: ARG002 - the first observations tell how many episodes there are
        """Return the policy for n episodes that start now."""
        return Acting(self)

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return actions [B, nu] for observations [B, no], each of them the first of an episode."""
        return self.begin(len(observation))(observation, generator)


@final
class Acting:
    """A policy of several experts during some episodes."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self._columns: Tensor | None = None

    def __call__(self, observation: Tensor, generator: Generator) -> Tensor:
        """Return actions [B, nu] for observations [B, no]; at the first step, choose the experts."""
        if self._columns is None:
            self._keep(self._chooser.choose(observation, generator), observation)
        return self._chooser.actor(self.noted(observation), generator)

    @overload
    def act(self, observation: Tensor, generator: Generator | None = None) -> Tensor: ...
    @overload
    def act(self, observation: ArrayLike, generator: Generator | None = None) -> NDArray[np.float64]: ...
    @torch.no_grad()
    def act(self, observation: Tensor | ArrayLike, generator: Generator | None = None) -> Tensor | NDArray[np.float64]:
        """Return the action [nu] for one observation [no], or [B, nu] for [B, no], within their bounds.

        The first call chooses the experts. Without a `generator` it chooses the likeliest, which act by their means,
        computed in float64 as by an exported policy; with one, both the expert and the noise are drawn from it.
        """
        experts = self._chooser.exact
        seen = batch_of(observation, (len(experts.centre) - self._chooser.experts,)).to(experts.centre.device)
        if self._columns is None:
            self._keep(self._drawn(self._chooser.logits(seen), generator), seen)
        noted = self.noted(seen)
        given = answer(experts.act(noted, generator), experts.low, experts.high, observation, 1)
        return given if isinstance(observation, Tensor) else array(given)

    def noted(self, observation: Tensor) -> Tensor:
        """Return observations [B, no] with a column for each expert, 1 for the chosen one [B, no + K]."""
        assert self._columns is not None, "the first call chooses the experts"
        if len(observation) != len(self._columns):
            raise UserError(
                f"{len(observation)} observations were given during {len(self._columns)} episodes; call begin first"
            )
        return torch.cat([observation, self._columns], dim=-1)

    def _keep(self, chosen: Tensor, observation: Tensor) -> None:
        """Keep the experts that were chosen [B], as columns of the type of the observations [B, no]."""
        self._columns = nn.functional.one_hot(chosen, self._chooser.experts).to(observation)

    @staticmethod
    def _drawn(logits: Tensor, generator: Generator | None) -> Tensor:
        """Return an expert for each row of logits [B, K]; without a generator, the likeliest."""
        if generator is None:
            return logits.argmax(-1)
        chances = logits.softmax(-1).to(generator.device)
        return torch.multinomial(chances, 1, generator=generator)[:, 0].to(logits.device)
