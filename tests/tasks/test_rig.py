"""A rig is known by its quantities and its functions alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from samba_rl import Quantity, RigTask
from samba_rl.errors import UserError


def cost(x: Tensor, u: Tensor) -> Tensor:
    return (x[..., 0] - 1).square() + 0.5 * u[..., 0].square()


def safety(x: Tensor, u: Tensor) -> Tensor:
    return (x[..., 0] - 1).clamp(0, 1)


def rig(**changes: object) -> RigTask:
    about = {"cost": cost, "safety": safety, "horizon": 25, "dt": 0.1, "low": -4, "high": 4, **changes}
    return RigTask(["position", "velocity"], ["force"], **about)  # type: ignore[arg-type]


def test_it_charges_for_steps_as_its_functions_say() -> None:
    x, u, after = torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0]]), torch.tensor([[1.5, 0.0]])
    charges = rig().charge(x, u, after)
    assert (charges.cost.item(), charges.safety.tolist(), charges.violation.tolist()) == (0.25 + 2, [[0.5]], [[True]])
    assert rig(cost_of="departure").charge(x, u, after).cost.item() == 1 + 2
    own = rig(violation=lambda x, u: x[..., 0] > 2)
    assert own.charge(x, u, after).violation.tolist() == [[False]]
    assert rig(done=lambda x: x[:, 0] > 1).done(after, after[:, :0]).tolist() == [True]
    assert rig().done(after, after[:, :0]).tolist() == [False]


def test_quantities_may_have_units_and_bounds_of_their_own() -> None:
    task = RigTask(
        [Quantity("angle", "rad", -3.0, 3.0)], [Quantity("torque", "Nm", -1.0, 2.0), "valve"],
        low=[-1, 0], high=[2, 5], cost=cost, safety=safety, horizon=3, dt=1.0,
    )  # fmt: skip
    assert [one.describe() for one in task.actions] == ["torque -1..2 [Nm]", "valve 0..5"]
    assert task.states[0].unit == "rad" and not task.parallel and not task.pure_start


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"low": None}, "give finite bounds"),
        ({"low": [-1, -1]}, "low has 2 numbers for 1 actions"),
        ({"low": 4}, "low must be below"),
        ({"horizon": 0}, "horizon"),
        ({"constraints": ()}, "safety constraint"),
    ],
)
def test_what_cannot_be_is_explained(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        rig(**changes)


def test_functions_that_do_not_work_on_batches_are_named() -> None:
    x = torch.zeros(4, 2)
    with pytest.raises(UserError, match=r"the safety function returned shape \[2\] for a batch of 4"):
        rig(safety=lambda x, u: x[0]).safety(x)
    with pytest.raises(UserError, match=r"the cost function returned a float"):
        rig(cost=lambda x, u: 1.0).cost(x, torch.zeros(4, 1))


@pytest.mark.parametrize(
    "ask", [lambda t: t.world(), lambda t: t.start(1), lambda t: t.step(torch.zeros(1, 2), torch.zeros(1, 1))]
)
def test_it_cannot_be_run_from_here(ask: object) -> None:
    with pytest.raises(UserError, match=r"runs outside of this program.*train --rig.*ask and tell"):
        ask(rig())  # type: ignore[operator]
