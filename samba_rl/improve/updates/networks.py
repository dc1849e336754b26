"""What updates share: tanh networks with gradients in closed form, optimisers that can be saved, batches in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Generator, Tensor

from samba_rl.errors import UserError
from samba_rl.improve.policies import tanh_
from samba_rl.types import State


@final
class Networks:
    """K tanh networks of one shape side by side, with their gradients in closed form; for use without autograd."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], *others: Tensor) -> None:
        """Weights [K, ni, no] and biases [K, 1, no] by layer, or those of `nn.Linear`; `others` are parameters too."""
        parameters = [*others, *(parameter for layer in layers for parameter in layer)]
        sizes = [parameter.numel() for parameter in parameters]
        self.gradient = torch.zeros(sum(sizes), device=parameters[0].device)
        """Of all parameters, one vector, so that its norm is one operation; their own gradients are views of it."""
        views = [part.view_as(p) for part, p in zip(torch.split(self.gradient, sizes), parameters, strict=True)]
        for parameter, view in zip(parameters, views, strict=True):
            parameter.grad = view
        self.others = views[: len(others)]
        rest = views[len(others) :]
        self._weights, self._biases = _stacked([w for w, _ in layers], [b for _, b in layers])
        self._weight_gradients, self._bias_gradients = _stacked(rest[::2], rest[1::2])
        self._activations: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs [K, N, no] at inputs [K, N, ni]."""
        self._activations = [inputs]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            self._activations.append(tanh_(torch.baddbmm(bias, self._activations[-1], weight)))
        return torch.baddbmm(self._biases[-1], self._activations[-1], self._weights[-1])

    def backward(self, slope: Tensor) -> None:
        """Set the gradient, from the loss's derivative by the outputs [K, N, no] of the last call; once for each."""
        for i in reversed(range(len(self._weights))):
            before = self._activations.pop()
            self._weight_gradients[i].copy_(before.mT @ slope)
            torch.sum(slope, 1, keepdim=True, out=self._bias_gradients[i])
            if i:
                slope = slope @ self._weights[i].mT
                # In place: on a CPU new memory would cost more than the multiplication by 1 - tanh².
                torch.ops.aten.tanh_backward.grad_input(slope, before, grad_input=slope)

    def limit(self, norm: float) -> None:
        """Shorten the gradient to this norm."""
        self.gradient *= (norm / (self.gradient.norm() + 1e-6)).clamp(max=1)


def optimiser_state(optimiser: torch.optim.Adam) -> State:
    """The rate, and what is remembered of each parameter."""
    (group,) = optimiser.param_groups
    moments = [{name: value.clone() for name, value in optimiser.state.get(p, {}).items()} for p in group["params"]]
    return {"rate": group["lr"], "moments": moments}


def restore_optimiser(optimiser: torch.optim.Adam, state: State) -> None:
    """Go on as the optimiser that gave this state would have."""
    (group,) = optimiser.param_groups
    group["lr"] = float(state["rate"])
    for parameter, moments in zip(group["params"], state["moments"], strict=True):
        optimiser.state.pop(parameter, None)
        if moments:
            kept = {"step": (), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            if {name: tuple(value.shape) for name, value in moments.items()} != kept:
                raise UserError(f"an optimiser's state does not fit a parameter of shape {list(parameter.shape)}")
            optimiser.state[parameter] = {name: value.to(parameter, copy=True) for name, value in moments.items()}


def _stacked(weights: list[Tensor], biases: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Views [K, ni, no] and [K, 1, no], also of one `nn.Linear`'s [no, ni] and [no]."""
    weights = [weight.T[None] if weight.dim() == 2 else weight for weight in weights]
    return weights, [bias.view(len(weight), 1, -1) for weight, bias in zip(weights, biases, strict=True)]


def cut(tensors: list[Tensor], sizes: list[int], dim: int) -> Iterator[tuple[Tensor, ...]]:
    """Tensors of the same length along a dimension, part by part."""
    return zip(*(torch.split(tensor, sizes, dim) for tensor in tensors), strict=True)


def part_sizes(count: int, wanted: int) -> list[int]:
    """`count` steps in equal parts of about the wanted size."""
    parts = max(1, round(count / wanted))
    return [(part + 1) * count // parts - part * count // parts for part in range(parts)]


def shuffled(tensors: list[Tensor], dim: int, order: Tensor | None) -> list[Tensor]:
    """Tensors in another order along a dimension; None: as they are."""
    return tensors if order is None else [each.index_select(dim, order) for each in tensors]


def random_order(count: int, parts: int, generator: Generator, device: torch.device) -> Tensor | None:
    """An order for one pass; with a single part none is needed."""
    return None if parts == 1 else torch.randperm(count, generator=generator, device=device)
