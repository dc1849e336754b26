"""Choosing inducing inputs, and the statistics of the data that an inducing-point posterior is made from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from samba_rl.errors import UserError
from samba_rl.models.kernel import factorise, kernel, scaled
from samba_rl.models.likelihood import Hyper
from samba_rl.models.marginals import chunk_rows

CANDIDATES = 5000
"""Largest number of points, evenly spread over the data, that inducing inputs are chosen from."""
NEGLIGIBLE = 1e-6
"""An output gets no more inducing inputs once all conditional variances are below this share of its noise."""


@final
@dataclass(frozen=True)
class Statistics:
    """Sums over the data, seen through M inducing inputs; always float64, because B is ill-conditioned."""

    hyper: Hyper
    """Hyper-parameters of the D outputs."""
    z: Tensor
    """Inducing inputs divided by the length scales [D, M, ni]."""
    used: Tensor
    """1 for an inducing input, 0 for padding [D, M]: some outputs need fewer inputs than others."""
    factor: Tensor
    """L [D, M, M]; for padding, the identity times the prior standard deviation."""
    gram: Tensor
    """ΦΦᵀ [D, M, M]."""
    projection: Tensor
    """Φy [D, M]."""
    jitter: float
    """Jitter added to the diagonal of Kmm, relative to the signal."""

    @staticmethod
    def begin(inputs: Tensor, hyper: Hyper, inducing: int) -> Statistics:
        """Choose at most `inducing` of the inputs [n, ni] (float64), and return statistics of no data yet."""
        hyper = hyper.to(inputs)
        candidates = scaled(inputs[spread(len(inputs), CANDIDATES, inputs)], hyper.lengthscales)
        picks, used = choose(candidates, hyper, inducing)
        z = candidates.gather(1, picks[..., None].expand(-1, -1, inputs.shape[1]))
        # Padding has no covariance with anything else, so its features are zero.
        prior = kernel(z, z, hyper.signal) * (used[:, None] * used[:, :, None])
        prior.diagonal(dim1=-2, dim2=-1).copy_(hyper.signal[:, None].expand_as(used))
        factor, jitter = factorise(prior, torch.zeros_like(hyper.noise), hyper.signal)
        return Statistics(hyper, z, used, factor, torch.zeros_like(factor), torch.zeros_like(used), jitter)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the features Φ [D, M, m] of inputs [m, ni]."""
        cross = kernel(self.z, scaled(inputs, self.hyper.lengthscales), self.hyper.signal)
        phi: Tensor = torch.linalg.solve_triangular(self.factor, cross.mul_(self.used[..., None]), upper=False)
        return phi

    def add(self, inputs: Tensor, targets: Tensor) -> Statistics:
        """Return the statistics with m more points [m, ni] and [m, D], in O(mM²), with memory independent of m."""
        gram, projection = self.gram.clone(), self.projection.clone()
        size = chunk_rows(self.used.numel(), inputs)
        for block, values in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
            phi = self.features(block)
            gram.baddbmm_(phi, phi.mT)
            projection += (phi @ values.T[..., None])[..., 0]
        return replace(self, gram=gram, projection=projection)


def choose(z: Tensor, hyper: Hyper, count: int) -> tuple[Tensor, Tensor]:
    """Choose at most `count` of the scaled candidates [D, C, ni] for each output, greedily.

    Each choice has the largest prior variance given those before it (a pivoted Cholesky factorisation; Burt, Rasmussen
    & van der Wilk, 2020). An output stops when what remains is negligible beside its noise, so near-copies are never
    chosen and Kmm stays well conditioned. Return the indices [D, M], with M <= min(count, C), and which of them are
    used [D, M] (1 or 0).
    """
    outputs, candidates, _ = z.shape
    count, every = min(count, candidates), torch.arange(outputs, device=z.device)
    residual = hyper.signal[:, None].repeat(1, candidates)
    floor = torch.maximum(NEGLIGIBLE * hyper.noise, 1e-12 * hyper.signal)
    rows = z.new_zeros(outputs, count, candidates)
    picks, alive = [], []
    for step in range(count):
        best, pick = residual.max(dim=1)
        live = best > floor
        if not bool(live.any()):
            break
        row = kernel(z[every, pick][:, None], z, hyper.signal)
        row -= rows[every, :step, pick][:, None] @ rows[:, :step]
        # An output that is done subtracts nothing, so that its residual stays below the floor.
        rows[:, step] = torch.where(live[:, None], row[:, 0] / best.sqrt()[:, None], 0.0)
        # The residual at the pick is zero by algebra; set it, since rounding could have the point chosen twice.
        residual = (residual - rows[:, step].square()).scatter_(1, pick[:, None], 0.0)
        picks.append(pick)
        alive.append(live)
    if not picks:
        raise UserError("no inducing input can be chosen: the hyper-parameters contain values that are not finite")
    return torch.stack(picks, dim=1), torch.stack(alive, dim=1).to(z.dtype)


def spread(n: int, count: int, like: Tensor) -> Tensor:
    """Return the indices of at most `count` of n points, evenly spread, on the device of `like`."""
    return torch.linspace(0, n - 1, min(n, count), dtype=torch.float64, device=like.device).round().long()
