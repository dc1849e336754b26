"""The traces of learners without a model: the policy's own real trials."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import final

import torch
from torch import Generator

from samba_rl.agents.experience import Experience
from samba_rl.events import Clock, Notice
from samba_rl.types import Policy, State, Traces, Transitions


@final
class OwnTrials(Experience):
    """The policy's own last real trial, which is learned from once."""

    model: None = None
    candidates: int = 1
    most: float = 1.0
    trajectories: int = 0
    judged: int = 0
    starts: int = 0
    start_iterations: int = 0
    shielded: bool = False
    restarts: bool = False

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._told: Traces | None = None

    def surprise(self, traces: Traces) -> float:
        """Return NaN: nothing was predicted."""
        return math.nan

    def learn(self, traces: Traces | None, data: Transitions, clock: Clock, *, own: bool) -> Iterator[Notice]:
        """Keep the trial if the policy made it: a step on another policy's trial would be wrong."""
        if traces is not None:
            self._told = traces.to(self._device) if own else None
        yield from ()

    def controls(self, planned: int) -> int:
        """Return 0 if there is no trial to learn from."""
        return 0 if self._told is None else planned

    def traces(self, policy: Policy, generator: Generator, *, seeking: bool) -> Traces:
        """Return the last trial."""
        assert self._told is not None
        return self._told

    @property
    def imagine(self) -> None:
        """Return None: there is no model."""

    def spent(self) -> None:
        """Forget the trial."""
        self._told = None

    def state_dict(self) -> State:
        """Return the trial that is still to be learned from."""
        told = self._told
        return {"told": None if told is None else {n: v for n, v in vars(told).items() if v is not None}}

    def load_state_dict(self, state: State, data: Transitions) -> Iterator[Notice]:
        """Restore what `state_dict` returned."""
        self._told = None if state["told"] is None else Traces(**state["told"]).to(self._device)
        yield from ()
