"""Networks with gradients in closed form against autograd, optimiser states, and minibatches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from samba_rl.errors import UserError
from samba_rl.improve.advantages import Critics
from samba_rl.improve.updates.networks import (
    Networks,
    optimiser_state,
    restore_optimiser,
)
from tests.traces import seeded

# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [(), (5,), (7, 4)], ids=str)
def test_the_gradient_of_several_networks_against_autograd(hidden: tuple[int, ...]) -> None:
    critics = Critics(3, 2, hidden, seeded(0))
    inputs, slope = torch.randn(3, 11, 2, generator=seeded(1)), torch.randn(3, 11, generator=seeded(2))
    (critics(inputs) * slope).sum().backward()
    expected = [parameter.grad.clone() for parameter in critics.parameters() if parameter.grad is not None]
    networks = Networks(list(zip(critics.weights, critics.biases, strict=True)))
    with torch.no_grad():
        assert torch.allclose(networks.forward(inputs)[..., 0], critics(inputs), atol=1e-5)
        networks.backward(slope[..., None])
    for parameter, due in zip(critics.parameters(), expected, strict=True):
        assert parameter.grad is not None and torch.allclose(parameter.grad, due, rtol=1e-3, atol=1e-4)


def test_linear_layers_serve_as_one_network() -> None:
    layers = [nn.Linear(3, 4), nn.Linear(4, 2)]
    inputs, slope = torch.randn(9, 3, generator=seeded(1)), torch.randn(9, 2, generator=seeded(2))
    outputs: Tensor = layers[1](layers[0](inputs).tanh())
    (outputs * slope).sum().backward()  # type: ignore[no-untyped-call]
    expected = [
        parameter.grad.clone() for layer in layers for parameter in layer.parameters() if parameter.grad is not None
    ]
    networks = Networks([(layer.weight, layer.bias) for layer in layers])
    with torch.no_grad():
        assert torch.allclose(networks.forward(inputs[None])[0], outputs, atol=1e-5)
        networks.backward(slope[None])
    found = [parameter.grad for layer in layers for parameter in layer.parameters()]
    assert all(
        a is not None and torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(found, expected, strict=True)
    )


def test_the_gradient_is_one_vector_that_the_parameters_share() -> None:
    layer, other = nn.Linear(2, 1), nn.Parameter(torch.zeros(3))
    networks = Networks([(layer.weight, layer.bias)], other)
    with torch.no_grad():
        networks.forward(torch.tensor([[[1.0, 2.0]]]))
        networks.backward(torch.tensor([[[3.0]]]))
        networks.others[0].copy_(torch.tensor([0.0, 4.0, 0.0]))
    assert networks.gradient.tolist() == [0, 4, 0, 3, 6, 3]
    networks.limit(1e9)
    assert networks.gradient.tolist() == [0, 4, 0, 3, 6, 3]
    networks.limit(0.5)
    assert float(networks.gradient.norm()) == pytest.approx(0.5, rel=1e-4)
    assert other.grad is not None and layer.bias.grad is not None
    assert float(other.grad[1] / layer.bias.grad[0]) == pytest.approx(4 / 3)


# Optimisers -----------------------------------------------------------------------------------------------------------


def trained(steps: int, rate: float = 0.1) -> tuple[nn.Linear, torch.optim.Adam]:
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.zero_()
    optimiser = torch.optim.Adam(layer.parameters(), lr=rate, fused=True)
    for _ in range(steps):
        step(layer, optimiser)
    return layer, optimiser


def step(layer: nn.Linear, optimiser: torch.optim.Adam) -> None:
    optimiser.zero_grad()
    layer(torch.tensor([[1.0, -2.0]])).square().sum().backward()
    optimiser.step()


@pytest.mark.parametrize("steps", [0, 3])
def test_a_restored_optimiser_takes_the_same_steps(steps: int) -> None:
    (layer, optimiser), (other, fresh) = trained(steps), trained(1, rate=0.7)
    restore_optimiser(fresh, optimiser_state(optimiser))
    other.load_state_dict(layer.state_dict())
    for _ in range(2):
        step(layer, optimiser)
        step(other, fresh)
    assert torch.equal(layer.weight, other.weight) and torch.equal(layer.bias, other.bias)


def test_the_state_of_an_optimiser_is_a_copy() -> None:
    layer, optimiser = trained(1)
    state = optimiser_state(optimiser)
    kept = state["moments"][0]["exp_avg"].clone()
    step(layer, optimiser)
    assert torch.equal(state["moments"][0]["exp_avg"], kept)
    restore_optimiser(optimiser, state)
    step(layer, optimiser)
    assert torch.equal(state["moments"][0]["exp_avg"], kept)


def test_moments_of_another_shape_are_refused() -> None:
    state = optimiser_state(trained(1)[1])
    state["moments"][0]["exp_avg"] = torch.zeros(1, 3)
    with pytest.raises(UserError, match=r"state does not fit a parameter of shape \[1, 2\]"):
        restore_optimiser(trained(1)[1], state)
