"""Everything that a control iteration changes, as one value: it undoes a failed update and goes into checkpoints."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import final

from torch import Generator, Tensor

from samba_rl.improve.multipliers import Multipliers
from samba_rl.improve.step import Improver
from samba_rl.types import State


@final
@dataclass(frozen=True)
class Snapshot:
    """Policy, critics, optimisers, multipliers and random numbers at one moment, as copies."""

    improver: State
    """Parameters of policy and critics, and the optimisers' state."""
    multipliers: tuple[State, ...]
    """λ of each constraint, with the estimate of its least reachable value."""
    generator: Tensor
    """State of the random number generator."""

    @staticmethod
    def take(improver: Improver, multipliers: Multipliers, generator: Generator) -> Snapshot:
        """Copy the present state."""
        return Snapshot(
            improver=improver.state_dict(),
            multipliers=tuple(multiplier.state_dict() for multiplier in multipliers.each),
            generator=generator.get_state(),
        )

    def restore(self, improver: Improver, multipliers: Multipliers, generator: Generator) -> None:
        """Put everything back to this state."""
        self.restore_learned(improver, multipliers)
        set_random(generator, self.generator)

    def restore_learned(self, improver: Improver, multipliers: Multipliers) -> None:
        """Put everything but the random numbers back to this state."""
        improver.load_state_dict(self.improver)
        for multiplier, state in zip(multipliers.each, self.multipliers, strict=True):
            multiplier.load_state_dict(state)

    def state_dict(self) -> State:
        """Return the snapshot as plain values and tensors, for a checkpoint."""
        return {**vars(self), "multipliers": list(self.multipliers)}

    @staticmethod
    def from_state(state: State) -> Snapshot:
        """Make a snapshot of what `state_dict` returned."""
        return Snapshot(**{**state, "multipliers": tuple(state["multipliers"])})


def set_random(generator: Generator, state: Tensor) -> None:
    """Restore the state of a generator; the state of one on another kind of device gives it a seed instead."""
    if len(state) == len(generator.get_state()):
        generator.set_state(state)
        return
    digest = hashlib.sha256(bytes(state.tolist())).digest()
    generator.manual_seed(int.from_bytes(digest[:7], "little"))
