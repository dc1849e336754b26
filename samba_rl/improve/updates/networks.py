"""Parts that updates share: tanh networks with gradients in closed form, and optimisers with their states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import torch
from torch import Tensor, nn

from samba_rl.capture import kernels
from samba_rl.errors import UserError
from samba_rl.improve.policies import tanh_
from samba_rl.types import State

PARTS = 64
"""Parts of a sum over many steps that an accelerator forms at once."""


@final
class Networks:
    """K tanh networks of one shape side by side, with their gradients in closed form; for use without autograd."""

    only: Tensor | None = None
    """Indices [k] of the networks that are evaluated, as if there were no others; the gradients of those stay as they
    are. None: all of them."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], *others: Tensor) -> None:
        """Wrap the weights [K, ni, no] and biases [K, 1, no] of each layer, or those of one `nn.Linear` each.

        `others` are parameters outside the layers whose gradients the caller sets.
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
        self._activations: list[Tensor] = []
        self._all = torch.arange(len(self._weights[0]), device=self.gradient.device)
        widths = (self._weights[0].shape[1], *(weight.shape[2] for weight in self._weights))
        fused = kernels("samba_rl.improve.updates.fused", self.gradient.device, *widths)
        pairs = zip(self._weight_gradients, self._bias_gradients, strict=True)
        places = [int(each.storage_offset()) for pair in pairs for each in pair]
        self.fused = None if fused is None else fused.Shapes(self._weights, self._biases, places, len(self.gradient))
        """The networks in one GPU kernel; None where that cannot be."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs [K, N, no] at inputs [K, N, ni] and keep the activations for `backward`."""
        self._activations = [inputs]
        if self.fused is not None:
            outputs: Tensor = self.fused.outputs(inputs, self.used)
            return outputs
        *hidden, last = zip(self._used(self._weights), self._used(self._biases), strict=True)
        for weight, bias in hidden:
            self._activations.append(tanh_(torch.baddbmm(bias, self._activations[-1], weight)))
        return torch.baddbmm(last[1], self._activations[-1], last[0])

    def backward(self, slope: Tensor) -> None:
        """Set the gradient from the derivative of the loss by the last outputs [K, N, no]; call it once per forward.

        Networks that are `fused` have their losses in the same kernel instead.
        """
        weights = self._used(self._weights)
        for i in reversed(range(len(weights))):
            before = self._activations.pop()
            self._set(self._weight_gradients[i], _summed(before, slope))
            self._set(self._bias_gradients[i], slope.sum(1, keepdim=True))
            if i:
                slope = slope @ weights[i].mT
                # In place: on a CPU, allocating memory costs more than multiplying by 1 - tanh².
                torch.ops.aten.tanh_backward.grad_input(slope, before, grad_input=slope)

    @property
    def used(self) -> Tensor:
        """Return the indices [k] of the networks that are evaluated."""
        return self._all if self.only is None else self.only

    def _used(self, parameters: list[Tensor]) -> list[Tensor]:
        return parameters if self.only is None else [each[self.only] for each in parameters]

    def _set(self, gradient: Tensor, value: Tensor) -> None:
        if self.only is None:
            gradient.copy_(value)
        else:
            gradient[self.only] = value

    def limit(self, norm: float) -> None:
        """Shorten the gradient to this norm if it is longer."""
        self.gradient *= (norm / (self.gradient.norm() + 1e-6)).clamp(max=1)


def _summed(before: Tensor, slope: Tensor) -> Tensor:
    """Sum the products of inputs [K, N, ni] and slopes [K, N, no] over the N steps: [K, ni, no]."""
    count, steps, _ = before.shape
    if before.device.type == "cpu" or steps % PARTS:
        return before.mT @ slope
    a, b = (each.reshape(count * PARTS, steps // PARTS, -1) for each in (before, slope))
    return (a.mT @ b).view(count, PARTS, a.shape[-1], b.shape[-1]).sum(1)


def adam(parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Adam:
    """Make the optimiser of parameters; on a GPU its state and rate stay where they are, so steps can be recorded."""
    own = list(parameters)
    if own[0].device.type == "cpu":
        return torch.optim.Adam(own, lr=rate, fused=True)
    lr = torch.full((), rate, device=own[0].device)
    optimiser = torch.optim.Adam(own, lr=lr, fused=True, capturable=True)
    optimiser.param_groups[0]["rate"] = rate  # what `lr` holds, without waiting for the device
    for parameter in own:
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
        optimiser.state[parameter] = {"step": step, **moments}
    return optimiser


def rate_of(optimiser: torch.optim.Adam) -> float:
    """Return the learning rate."""
    (group,) = optimiser.param_groups
    return float(group["rate"] if "rate" in group else group["lr"])


def set_rate(optimiser: torch.optim.Adam, rate: float) -> None:
    """Set the learning rate."""
    (group,) = optimiser.param_groups
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
        group["rate"] = rate
    else:
        group["lr"] = rate


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors by name; on a GPU all of them at once."""
    own = list(tensors.values())
    alike = len({(each.device.type, each.dtype) for each in own}) == 1
    if not alike or own[0].device.type == "cpu":
        return {name: value.clone() for name, value in tensors.items()}
    return dict(zip(tensors, torch._foreach_mul(own, 1.0), strict=True))


def optimiser_state(optimiser: torch.optim.Adam) -> State:
    """Return copies of the learning rate and of Adam's moments for each parameter."""
    (group,) = optimiser.param_groups
    each = [optimiser.state.get(parameter, {}) for parameter in group["params"]]
    kept = copies({f"{i} {name}": value for i, state in enumerate(each) for name, value in state.items()})
    moments = [{name: kept[f"{i} {name}"] for name in state} for i, state in enumerate(each)]
    return {"rate": rate_of(optimiser), "moments": moments}


def restore_optimiser(optimiser: torch.optim.Adam, state: State) -> None:
    """Restore what `optimiser_state` returned."""
    (group,) = optimiser.param_groups
    set_rate(optimiser, float(state["rate"]))
    for parameter, moments in zip(group["params"], state["moments"], strict=True):
        kept = {"step": (), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
        if moments and {name: tuple(value.shape) for name, value in moments.items()} != kept:
            raise UserError(f"an optimiser's state does not fit a parameter of shape {list(parameter.shape)}")
        if parameter.device.type == "cpu":
            optimiser.state.pop(parameter, None)
            if moments:
                optimiser.state[parameter] = {name: value.to(parameter, copy=True) for name, value in moments.items()}
            continue
        for name, value in optimiser.state[parameter].items():
            value.copy_(moments[name]) if moments else value.zero_()


def _stacked(weights: list[Tensor], biases: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return views [K, ni, no] and [K, 1, no], of `nn.Linear`'s [no, ni] and [no] too."""
    weights = [(weight.T[None] if weight.dim() == 2 else weight).detach() for weight in weights]
    return weights, [bias.detach().view(len(weight), 1, -1) for weight, bias in zip(weights, biases, strict=True)]
