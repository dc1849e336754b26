"""The Fisher matrix of a policy as a linear map, and conjugate gradients that solve systems with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from samba_rl.improve.policies import GaussianPolicy


@final
class FisherProduct:
    """The linear map v [P] -> (F + damping I) v; F is the Hessian of the mean divergence from the present policy.

    For a Gaussian with the same σ everywhere, F is the mean of Jᵀ diag(1/σ²) J, where J is the Jacobian of the mean,
    and 2 I for log σ. J v and Jᵀ v are in closed form, so every tanh is computed once and autograd records nothing.
    """

    @torch.no_grad()
    def __init__(self, policy: GaussianPolicy, inputs: Tensor, damping: float) -> None:
        """Average over inputs [N, no]."""
        self._damping = damping
        self._sizes = {name: parameter.shape for name, parameter in policy.named_parameters()}
        layers = {f"network.{i}": layer for i, layer in policy.network.named_children() if isinstance(layer, nn.Linear)}
        self._names = list(layers)
        self._weights = [layer.weight.detach().clone() for layer in layers.values()]
        self._before = [inputs]
        """Inputs of each layer [N, ni]."""
        self._slopes: list[Tensor] = []
        """Derivative of the tanh before each layer but the first [N, ni]."""
        for layer in list(layers.values())[:-1]:
            out = layer(self._before[-1]).tanh_()
            self._before.append(out)
            self._slopes.append(1 - out.square())
        last = list(layers.values())[-1]
        self._scale = (-2 * policy.log_std).exp() / len(inputs)
        """Weight of each output of the last layer: [nu], or [N, nu] where the mean is squashed."""
        if policy.settings.mean_bound is not None:
            squashed = (last(self._before[-1]) / policy.settings.mean_bound).tanh()
            self._scale = self._scale * (1 - squashed.square()).square()

    @torch.no_grad()
    def __call__(self, vector: Tensor) -> Tensor:
        """Compute (F + damping I) v for v [P], in float64."""
        shapes = self._sizes.values()
        parts = torch.split(vector.to(self._scale.dtype), [shape.numel() for shape in shapes])
        along = {name: part.view(shape) for (name, shape), part in zip(self._sizes.items(), parts, strict=True)}
        products = {"log_std": 2 * along["log_std"]}
        # J v, layer by layer.
        change = torch.empty(0)
        for i, (name, before) in enumerate(zip(self._names, self._before, strict=True)):
            new = torch.addmm(along[f"{name}.bias"], before, along[f"{name}.weight"].T)
            if i:
                new.addmm_(change.mul_(self._slopes[i - 1]), self._weights[i].T)
            change = new
        # Jᵀ of the weighted change, back through the layers.
        change *= self._scale
        for i in reversed(range(len(self._names))):
            products[f"{self._names[i]}.weight"] = change.T @ self._before[i]
            products[f"{self._names[i]}.bias"] = change.sum(0)
            if i:
                change = (change @ self._weights[i]).mul_(self._slopes[i - 1])
        return torch.cat([products[name].flatten() for name in self._sizes]).double() + self._damping * vector.double()


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, iterations: int, tolerance: float = 1e-10
) -> Tensor:
    """Solve product(x) = b for x [P] approximately, in float64; return NaN if a product is not finite.

    The iteration ends early once the squared residual is below `tolerance` times that of x = 0.
    """
    b = b.double()
    x, residual = torch.zeros_like(b), b.clone()
    search, square = residual.clone(), float(b @ b)
    enough = tolerance * square
    for _ in range(iterations):
        if square <= enough:
            break
        image = product(search)
        curvature = float(search @ image)
        if not math.isfinite(curvature):
            return torch.full_like(b, math.nan)
        if curvature <= 0:  # only by rounding, once there is nothing left to gain
            break
        x += square / curvature * search
        residual -= square / curvature * image
        square, last = float(residual @ residual), square
        search = residual + square / last * search
    return x


def spread(inputs: Tensor, most: int | None) -> Tensor:
    """Return at most `most` of inputs [N, no], evenly spread; all of them for None."""
    if most is None or len(inputs) <= most:
        return inputs
    return inputs[torch.arange(most, device=inputs.device) * len(inputs) // most]
