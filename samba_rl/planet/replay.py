"""Replay: random parts of real episodes, for training the latent model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Generator, Tensor

from samba_rl.types import Transitions

Eyes = Callable[[Tensor], Tensor]
"""Function from states [N, nx] to the model's input: observations [N, no] or images."""


class Sequences(NamedTuple):
    """Parts of B real episodes, of up to L steps."""

    observation: Tensor
    """Observations before each step and after the last [B, L + 1, no], or images [B, L + 1, 3, 64, 64] (uint8)."""
    action: Tensor
    """Actions in half widths of their range [B, L, nu]."""
    outcome: Tensor
    """Cost and then each safety cost of the steps [B, L, 1 + m]."""
    active: Tensor
    """Whether the step took place [B, L] (bool)."""


@final
class Replay:
    """All steps so far, stored as contiguous runs, each with one more observation than steps."""

    def __init__(self, eyes: Eyes, raw: Callable[[Tensor], Tensor], device: torch.device) -> None:
        """Start empty; `raw` converts actions [N, nu] to half widths of their range."""
        self._eyes, self._raw, self._device = eyes, raw, device
        self._taken = 0
        self._seen: list[Tensor] = []
        self._action: list[Tensor] = []
        self._charged: list[Tensor] = []
        self._starts: list[int] = []
        """Index of the first step of each run."""

    def __len__(self) -> int:
        """Return the number of steps."""
        return self._taken

    @property
    def runs(self) -> int:
        """Return the number of contiguous runs: whole episodes, unless steps are missing."""
        return len(self._starts)

    def extend(self, transitions: Transitions) -> None:
        """Add the new ones among all transitions so far."""
        new = slice(self._taken, len(transitions))
        count = new.stop - new.start
        if count <= 0:
            return
        episode, step = transitions.episode[new], transitions.step[new]
        # Imported data may lack steps; a run ends at the gap.
        follows = (episode[1:] == episode[:-1]) & (step[1:] == step[:-1] + 1)
        begins = torch.cat([torch.zeros(1, dtype=torch.int64), (~follows).nonzero()[:, 0] + 1])
        ends = torch.cat([begins[1:], torch.tensor([count])])
        x, x_next = transitions.x[new], transitions.x_next[new]
        places = zip(begins.tolist(), ends.tolist(), strict=True)
        states = [part for a, b in places for part in (x[a:b], x_next[b - 1 : b])]
        self._seen.append(self._eyes(torch.cat(states)).to(self._device))
        self._action.append(self._raw(transitions.u[new]).to(self._device))
        charged = torch.cat([transitions.cost[new][:, None], transitions.safety[new]], dim=-1)
        self._charged.append(charged.float().to(self._device))
        self._starts += (begins + self._taken).tolist()
        self._taken = len(transitions)

    def draw(self, batch: int, length: int, generator: Generator) -> Sequences:
        """Draw a batch of parts of runs, of at most `length` steps, in the task's units.

        Runs are drawn uniformly, and so are the places in a run where a part of that length can begin.
        """
        seen, action, charged = (self._joined(parts) for parts in (self._seen, self._action, self._charged))
        device = self._device
        starts = torch.tensor(self._starts, device=device)
        sizes = torch.diff(starts, append=torch.tensor([self._taken], device=device))
        length = min(length, int(sizes.max()))
        chosen = torch.randint(len(starts), (batch,), generator=generator, device=device)
        room = (sizes[chosen] - length).clamp(min=0)
        offset = (torch.rand(batch, generator=generator, device=device) * (room + 1)).long().clamp(max=room)
        place = offset[:, None] + torch.arange(length + 1, device=device)
        active = place[:, :-1] < sizes[chosen][:, None]
        steps = starts[chosen][:, None] + place[:, :-1].clamp(max=(sizes[chosen] - 1)[:, None])
        # Every earlier run has one observation more than it has steps.
        looks = (starts[chosen] + chosen)[:, None] + place.clamp(max=sizes[chosen][:, None])
        return Sequences(seen[looks], action[steps], charged[steps], active)

    def _joined(self, parts: list[Tensor]) -> Tensor:
        if len(parts) > 1:
            parts[:] = [torch.cat(parts)]
        return parts[0]
