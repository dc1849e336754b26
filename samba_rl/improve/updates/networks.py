"""Parts that updates share: tanh networks with gradients in closed form, optimiser states, and minibatches."""

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

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], *others: Tensor, only: Tensor | None = None) -> None:
        """Wrap the weights [K, ni, no] and biases [K, 1, no] of each layer, or those of one `nn.Linear` each.

        `others` are parameters outside the layers whose gradients the caller sets. With `only`, indices [k], just these
        of the K networks are evaluated, as if there were no others, whose gradients are zero.
        """
        parameters = [*others, *(parameter for layer in layers for parameter in layer)]
        sizes = [parameter.numel() for parameter in parameters]
        self.gradient = torch.zeros(sum(sizes), device=parameters[0].device)
        """Gradient of all parameters as one vector, whose norm is one operation; their `.grad` are views of it."""
        views = [part.view_as(p) for part, p in zip(torch.split(self.gradient, sizes), parameters, strict=True)]
        for parameter, view in zip(parameters, views, strict=True):
            parameter.grad = view
        self.others = views[: len(others)]
        """Gradients of `others`, as views of `gradient`."""
        rest = views[len(others) :]
        self._weights, self._biases = _stacked([w for w, _ in layers], [b for _, b in layers])
        self._weight_gradients, self._bias_gradients = _stacked(rest[::2], rest[1::2])
        self._only = only
        self._activations: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs [K, N, no] at inputs [K, N, ni] and keep the activations for `backward`."""
        self._activations = [inputs]
        *hidden, last = zip(self._used(self._weights), self._used(self._biases), strict=True)
        for weight, bias in hidden:
            self._activations.append(tanh_(torch.baddbmm(bias, self._activations[-1], weight)))
        return torch.baddbmm(last[1], self._activations[-1], last[0])

    def backward(self, slope: Tensor) -> None:
        """Set the gradient from the derivative of the loss by the last outputs [K, N, no]; call it once per forward."""
        weights = self._used(self._weights)
        for i in reversed(range(len(weights))):
            before = self._activations.pop()
            self._set(self._weight_gradients[i], before.mT @ slope)
            self._set(self._bias_gradients[i], slope.sum(1, keepdim=True))
            if i:
                slope = slope @ weights[i].mT
                # In place: on a CPU, allocating memory costs more than multiplying by 1 - tanh².
                torch.ops.aten.tanh_backward.grad_input(slope, before, grad_input=slope)

    def _used(self, parameters: list[Tensor]) -> list[Tensor]:
        return parameters if self._only is None else [each[self._only] for each in parameters]

    def _set(self, gradient: Tensor, value: Tensor) -> None:
        if self._only is None:
            gradient.copy_(value)
        else:
            gradient[self._only] = value

    def limit(self, norm: float) -> None:
        """Shorten the gradient to this norm if it is longer."""
        self.gradient *= (norm / (self.gradient.norm() + 1e-6)).clamp(max=1)


def optimiser_state(optimiser: torch.optim.Adam) -> State:
    """Return copies of the learning rate and of Adam's moments for each parameter."""
    (group,) = optimiser.param_groups
    moments = [{name: value.clone() for name, value in optimiser.state.get(p, {}).items()} for p in group["params"]]
    return {"rate": group["lr"], "moments": moments}


def restore_optimiser(optimiser: torch.optim.Adam, state: State) -> None:
    """Restore what `optimiser_state` returned."""
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
    """Return views [K, ni, no] and [K, 1, no], of `nn.Linear`'s [no, ni] and [no] too."""
    weights = [weight.T[None] if weight.dim() == 2 else weight for weight in weights]
    return weights, [bias.view(len(weight), 1, -1) for weight, bias in zip(weights, biases, strict=True)]


def cut(tensors: list[Tensor], sizes: list[int], dim: int) -> Iterator[tuple[Tensor, ...]]:
    """Iterate over minibatches of these sizes: slices of all tensors along a dimension."""
    return zip(*(torch.split(tensor, sizes, dim) for tensor in tensors), strict=True)


def part_sizes(count: int, wanted: int) -> list[int]:
    """Divide `count` steps into minibatches of nearly equal sizes, about the wanted one."""
    parts = max(1, round(count / wanted))
    return [(part + 1) * count // parts - part * count // parts for part in range(parts)]


def shuffled(tensors: list[Tensor], dim: int, order: Tensor | None) -> list[Tensor]:
    """Reorder tensors along a dimension; None leaves them as they are."""
    return tensors if order is None else [each.index_select(dim, order) for each in tensors]


def random_order(count: int, parts: int, generator: Generator, device: torch.device) -> Tensor | None:
    """Draw the order of one pass; None for a single minibatch, which needs no order."""
    return None if parts == 1 else torch.randperm(count, generator=generator, device=device)
