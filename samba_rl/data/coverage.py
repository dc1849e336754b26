"""Coverage: how far an observation lies from the real data, relative to the distances between the data themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from samba_rl.errors import UserError

POINTS = 200
"""Representative points that are kept of the data, unless another number is given."""
MOST_DATA = 20_000
"""Observations among which representatives are searched; of more data, as many evenly spread ones."""
EDGE = 0.99
"""Share of the steps of an episode that is left out whose distance is at most 1."""
_LEAST = 1e-6
"""Lower bound of the radius, in scaled units: data that are all alike have no distances."""
_AT_ONCE = 1 << 22
"""Distances that are computed together."""


@final
@dataclass(frozen=True, eq=False)
class Coverage:
    """A few representative observations, and the distance from them up to which others count as seen.

    The distance of an observation is that to the nearest representative, each component in standard deviations of the
    data, divided by `radius`. 1 is the edge of what was seen: of an episode like those in the data, but left out of
    them, one step in a hundred lies farther away.
    """

    points: Tensor
    """Representative observations [k, no]."""
    scale: Tensor
    """Unit of each component [no]: its standard deviation in the data."""
    radius: float
    """Distance that counts as 1, in units of `scale`."""

    @staticmethod
    def of(observations: Tensor, episode: Tensor, *, points: int = POINTS, constant: Tensor | None = None) -> Coverage:
        """Choose representatives of observations [N, no] of the episodes [N].

        Each representative in turn is the observation that lies farthest from those before, so that none of the data is
        far from all of them. `constant` [no] is the unit of components that never change (None: 1).
        """
        if points < 2 or len(observations) < 2:
            raise UserError(
                f"{points} representative points of {len(observations)} observations; give at least 2 of each"
            )
        rows = torch.linspace(0, len(observations) - 1, min(MOST_DATA, len(observations))).round().long()
        seen, numbers = observations[rows].double().cpu(), episode[rows].cpu()
        spread = seen.std(0, correction=0)
        other = torch.ones_like(spread) if constant is None else constant.double().cpu()
        scale = torch.where(spread > 1e-9, spread, other)
        scaled = seen / scale
        chosen = _spread_out(scaled, points)
        return Coverage(seen[chosen], scale, _radius(scaled, numbers, chosen))

    def distance(self, observations: Tensor) -> Tensor:
        """Return the distances [...] of observations [..., no]; 1 is the edge of what was seen."""
        flat = observations.reshape(-1, len(self.scale)).double().cpu() / self.scale
        nearest = [part.min(1).values for part in _distances(flat, self.points / self.scale)]
        return torch.cat(nearest).reshape(observations.shape[:-1]) / self.radius


def _distances(queries: Tensor, points: Tensor) -> list[Tensor]:
    """Return the distances between queries [N, no] and points [k, no], in parts [n, k]."""
    # Not by the matrix product: it loses the digits of small distances.
    return [
        torch.cdist(part, points, compute_mode="donot_use_mm_for_euclid_dist")
        for part in torch.split(queries, max(1, _AT_ONCE // len(points)))
    ]


def _spread_out(scaled: Tensor, count: int) -> Tensor:
    """Return the indices of at most `count` of the observations [N, no], each the farthest from those before it."""
    chosen = [int((scaled - scaled.mean(0)).square().sum(1).argmin())]
    nearest = torch.full((len(scaled),), torch.inf, dtype=scaled.dtype)
    while len(chosen) < count:
        nearest = torch.minimum(nearest, (scaled - scaled[chosen[-1]]).square().sum(1))
        if not bool((nearest > 0).any()):
            break
        chosen.append(int(nearest.argmax()))
    return torch.tensor(chosen)


def _radius(scaled: Tensor, episode: Tensor, chosen: Tensor) -> float:
    """Return the distance within which a share `EDGE` of the observations has a representative of another episode.

    Within an episode a step's neighbours are its own past and future, which a fresh episode does not have. With a
    single episode only the step itself is left out.
    """
    single = bool((episode == episode[0]).all())
    groups = torch.arange(len(scaled)) if single else episode
    nearest, points, owners, start = [], scaled[chosen], groups[chosen], 0
    for part in _distances(scaled, points):
        own = groups[start : start + len(part), None] == owners
        nearest.append(part.masked_fill(own, torch.inf).min(1).values)
        start += len(part)
    distances = torch.cat(nearest)
    found = distances[distances.isfinite()]
    return max(float(found.quantile(EDGE)), _LEAST) if len(found) else _LEAST
