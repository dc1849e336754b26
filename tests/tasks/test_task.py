"""Contracts that every task must satisfy, and its errors for bad input."""

import math

import pytest
import torch

from samba_rl import Quantity, SafeCartPoleDoublePendulum, SafeFetchReach, SafePendulum, Task, UserError, make_task
from samba_rl.tasks import TASKS
from tests.line import Line

ALL = [make_task(name) for name in TASKS]
KNOWN = [task for task in ALL if task.known_dynamics]


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_shapes_dtypes_and_ranges(task: Task, dtype: torch.dtype) -> None:
    n, nx, nu = 50, len(task.states), len(task.actions)
    generator = torch.Generator().manual_seed(1)
    x = task.start(n, generator, dtype=dtype)
    u = 2 * torch.rand(n, nu, generator=generator, dtype=dtype) - 1
    assert x.shape == (n, nx)
    assert task.observe(x).shape == (n, len(task.observations))
    assert task.model_inputs(x, u).shape[0] == n
    assert task.cost(x, u).shape == (n,) and bool((task.cost(x, u) >= 0).all())
    safety = task.safety(x)
    assert safety.shape == (n, len(task.constraints)) and 0 <= float(safety.min()) <= float(safety.max()) <= 1
    assert task.violation(x).shape == safety.shape and task.violation(x).dtype == torch.bool
    assert task.done(x, torch.full((n, task.done_window), math.inf)).tolist() == [False] * n
    for value in (x, task.observe(x), task.cost(x, u), safety):
        assert value.dtype == dtype
    assert set(task.predicted) <= set(range(nx))


@pytest.mark.parametrize("task", KNOWN, ids=lambda task: task.name)
def test_a_batch_is_its_rows(task: Task) -> None:
    """Each row of a batch is computed independently of the others."""
    generator = torch.Generator().manual_seed(2)
    x = task.start(20, generator)
    u = 2 * torch.rand(20, 1, generator=generator, dtype=torch.float64) - 1
    together = task.step(x, u)
    alone = torch.cat([task.step(x[i : i + 1], u[i : i + 1]) for i in range(20)])
    assert torch.allclose(together, alone, rtol=0, atol=1e-13)
    for function in (task.cost, task.safety, task.violation):
        alone = torch.cat([function(together[i : i + 1], u[i : i + 1]) for i in range(20)])
        assert torch.allclose(function(together, u).double(), alone.double(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_functions_leave_their_arguments_alone(task: Task) -> None:
    x, u = task.start(5, torch.Generator().manual_seed(0)), torch.ones(5, len(task.actions), dtype=torch.float64)
    kept = x.clone(), u.clone()
    task.observe(x), task.model_inputs(x, u), task.cost(x, u), task.safety(x, u), task.violation(x, u)
    if task.known_dynamics:
        task.step(x, u)
    assert torch.equal(x, kept[0]) and torch.equal(u, kept[1])


@pytest.mark.parametrize("task", KNOWN, ids=lambda task: task.name)
def test_gradients_flow(task: Task) -> None:
    x = task.start(3, torch.Generator().manual_seed(0)).requires_grad_()
    u = torch.full((3, 1), 0.5, dtype=torch.float64, requires_grad=True)
    after = task.step(x, u)
    (task.cost(after, u).sum() + task.safety(after).sum() + task.observe(after).sum()).backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None and bool(x.grad.isfinite().all()) and float(x.grad.abs().sum()) > 0
    assert u.grad is not None and float(u.grad.abs().sum()) > 0


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_seeds_repeat(task: Task) -> None:
    first, again, other = (task.start(10, torch.Generator().manual_seed(seed)) for seed in (4, 4, 5))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_actions_are_clipped() -> None:
    task = SafePendulum()
    x = task.start(2, torch.Generator().manual_seed(0))
    inside, outside = torch.tensor([[2.0], [-2.0]]).double(), torch.tensor([[70.0], [-2.5]]).double()
    assert torch.equal(task.step(x, inside), task.step(x, outside))
    assert torch.equal(task.cost(x, inside), task.cost(x, outside))
    assert task.admit(inside, 2) is inside


def test_clipping_with_different_bounds() -> None:
    bounds = (Quantity("a", "", -1.0, 1.0), Quantity("b", "", 0.0, 5.0))
    task = SafePendulum(actions=bounds)
    assert task.clip(torch.tensor([[-3.0, -3.0], [0.5, 9.0]])).tolist() == [[-1.0, 0.0], [0.5, 5.0]]


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_action_bounds_are_those_of_the_actions(task: Task) -> None:
    low, high = task.action_bounds()
    assert low.dtype == high.dtype == torch.float64 and low.device.type == high.device.type == "cpu"
    assert low.tolist() == [a.low for a in task.actions] and high.tolist() == [a.high for a in task.actions]
    low.zero_()  # belongs to the caller
    assert task.action_bounds()[0].tolist() == [a.low for a in task.actions]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_actions_that_are_not_finite_are_refused(bad: float) -> None:
    task = SafeCartPoleDoublePendulum()
    x = task.start(3)
    u = torch.zeros(3, 1, dtype=torch.float64)
    u[1, 0] = bad
    with pytest.raises(UserError, match=rf"action 1, 'force', is {bad}; 1 of 3 numbers"):
        task.step(x, u)


def test_wrong_shapes_are_refused() -> None:
    task = SafePendulum()
    x = task.start(3)
    with pytest.raises(UserError, match=r"actions of shape \[3\]; expected \[3, 1\]"):
        task.step(x, torch.zeros(3))
    with pytest.raises(UserError, match=r"actions of shape \[2, 1\]; expected \[3, 1\]"):
        task.step(x, torch.zeros(2, 1))
    with pytest.raises(UserError, match=r"states of shape \[3, 4\]; expected \[B, 2\]"):
        task.step(torch.zeros(3, 4), torch.zeros(3, 1))


def test_fetch_says_that_it_has_no_equations() -> None:
    task = SafeFetchReach()
    with pytest.raises(UserError, match=r"no equations of motion; run it on MuJoCo with task\.world"):
        task.step(task.start(1), torch.zeros(1, 4))


def test_observations_are_scaled_by_their_ranges_where_those_are_finite() -> None:
    task = SafePendulum()
    centre, scale = task.observation_scale(task.start(5, torch.Generator().manual_seed(0)))
    assert centre.tolist() == [0, 0, 0] and scale.tolist() == [1, 1, 8]
    lopsided = SafePendulum(observations=(*task.observations[:2], Quantity("speed", "", -2.0, 10.0)))
    centre, scale = lopsided.observation_scale(task.start(5))
    assert centre.tolist() == [0, 0, 4] and scale.tolist() == [1, 1, 6]


def test_observations_without_ranges_are_scaled_by_the_data() -> None:
    task = Line()
    centre, scale = task.observation_scale(torch.tensor([[1.0], [3.0], [8.0]], dtype=torch.float64))
    assert centre.tolist() == pytest.approx([4.0]) and scale.tolist() == pytest.approx([math.sqrt((9 + 1 + 16) / 3)])
    # A range with only one finite end is not used.
    half = Line(observations=(Quantity("x", "m", 0.0),))
    assert half.observation_scale(torch.tensor([[1.0], [3.0]]))[0].tolist() == [2]


@pytest.mark.parametrize("x", [[[2.5]], [[2.5], [2.5], [2.5]], [[0.1 + 0.2], [0.3]]])
def test_an_observation_that_never_changed_is_only_shifted(x: list[list[float]]) -> None:
    centre, scale = Line().observation_scale(torch.tensor(x, dtype=torch.float64))
    assert centre.tolist() == pytest.approx(x[0]) and scale.tolist() == [1]


def test_ranges_and_data_are_combined_by_column() -> None:
    task = SafeCartPoleDoublePendulum()
    x = task.start(50, torch.Generator().manual_seed(0))
    seen = task.observe(x)
    centre, scale = task.observation_scale(x)
    assert centre[4:].tolist() == [0] * 4 and scale[4:].tolist() == [1] * 4  # sines and cosines
    assert torch.allclose(centre[:4], seen[:, :4].mean(0)) and torch.equal(seen, task.observe(x))
    assert torch.allclose(scale[:4], seen[:, :4].std(0, correction=0))


@pytest.mark.parametrize("horizon", [0, -3, 2.5])
def test_impossible_horizons_are_refused(horizon: int) -> None:
    with pytest.raises(UserError, match=rf"horizon = {horizon} must be a whole number of at least 1"):
        SafePendulum(horizon=horizon)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ((Quantity("torque", "Nm"),), "'torque' has bounds -inf..inf; give finite bounds"),
        ((Quantity("torque", "Nm", 1.0, -1.0),), "'torque' has low 1.0 ≥ high -1.0"),
    ],
)
def test_impossible_bounds_are_refused(actions: tuple[Quantity, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SafePendulum(actions=actions)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="no system is called 'safe-pendlum'; did you mean 'safe-pendulum'"):
        make_task("safe-pendlum")
    with pytest.raises(UserError, match="available: safe-cart-pole-double-pendulum, safe-fetch-reach, safe-pendulum"):
        make_task("zzz")
    with pytest.raises(UserError, match="safe-pendulum has no setting 'horizn'; did you mean 'horizon'"):
        make_task("safe-pendulum", horizn=3)
