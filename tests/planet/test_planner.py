"""The cross-entropy planner against optima that are known."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl.planet.planner import CEMPlanner, PlannerSettings, shifted

GENERATOR = torch.Generator()


def plan(settings: PlannerSettings, judge, systems: int = 1, actions: int = 1, seed: int = 0) -> Tensor:  # type: ignore[no-untyped-def]
    start = torch.zeros(systems, settings.horizon, actions, dtype=torch.float64)
    return CEMPlanner(settings)(judge, start, GENERATOR.manual_seed(seed))


@given(seed=st.integers(0, 1000), systems=st.integers(1, 4), actions=st.integers(1, 2))
@settings(max_examples=25, deadline=None)
def test_it_finds_the_optimum_of_a_quadratic_for_every_system(seed: int, systems: int, actions: int) -> None:
    horizon = 3
    generator = torch.Generator().manual_seed(seed)
    best = 1.8 * torch.rand(systems, 1, horizon, actions, generator=generator, dtype=torch.float64) - 0.9
    root = torch.randn(horizon * actions, horizon * actions, generator=generator, dtype=torch.float64)
    shape = root @ root.T / (horizon * actions) + torch.eye(horizon * actions)

    def judge(drawn: Tensor) -> Tensor:
        off = (drawn - best).flatten(2)
        return torch.einsum("bji,ik,bjk->bj", off, shape, off)

    found = plan(PlannerSettings(500, 50, 15, horizon), judge, systems, actions, seed)
    assert torch.allclose(found, best[:, 0], atol=0.02)


def test_an_optimum_beyond_the_bounds_is_sought_at_the_bounds() -> None:
    found = plan(PlannerSettings(200, 20, 15, 2), lambda drawn: (drawn - 3).square().sum((2, 3)))
    assert torch.allclose(found, torch.ones_like(found), atol=1e-3)


def test_a_linear_system_is_controlled_within_two_percent_of_its_regulator() -> None:
    """A double integrator, 30 steps; against the Riccati recursion, whose actions stay within the bounds."""
    a = torch.tensor([[1.0, 0.1], [0.0, 1.0]], dtype=torch.float64)
    b = torch.tensor([[0.005], [0.1]], dtype=torch.float64)
    q, r, steps = torch.diag(torch.tensor([1.0, 0.1], dtype=torch.float64)), 0.1, 30
    gains, value = [], q
    for _ in range(steps):
        gain = (b.T @ value @ a) / (r + b.T @ value @ b)
        value = q + a.T @ value @ (a - b @ gain)
        gains.append(gain)
    starts = torch.tensor([[0.3, 0.0], [-0.2, 0.3], [0.1, -0.4]], dtype=torch.float64)

    def run(act) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        x, cost, largest = starts, torch.zeros(len(starts), dtype=torch.float64), torch.zeros(())
        for t in range(steps):
            u = act(t, x)
            x = x @ a.T + u @ b.T
            cost = cost + (x @ q * x).sum(1) + r * u[:, 0].square()
            largest = torch.maximum(largest, u.abs().max())
        return cost, largest

    best, largest = run(lambda t, x: -x @ gains[steps - 1 - t].T)
    assert float(largest) < 1  # the optimum is reachable

    search, generator = CEMPlanner(PlannerSettings(horizon=steps)), torch.Generator().manual_seed(0)
    planned = torch.zeros(len(starts), steps, 1, dtype=torch.float64)

    def act(t: int, x: Tensor) -> Tensor:
        nonlocal planned
        left = steps - t

        def judge(drawn: Tensor) -> Tensor:
            at, total = x[:, None].expand(-1, drawn.shape[1], -1), torch.zeros(drawn.shape[:2], dtype=torch.float64)
            for k in range(drawn.shape[2]):
                at = at @ a.T + drawn[:, :, k] @ b.T
                total = total + (at @ q * at).sum(-1) + r * drawn[:, :, k, 0].square()
            return total

        planned = search(judge, planned[:, :left], generator)
        first = planned[:, 0]
        planned = shifted(planned)
        return first

    found, _ = run(act)
    assert bool((found <= 1.02 * best).all()) and bool((found >= best - 1e-9).all())


def test_more_systems_at_once_are_planned_as_one_alone_in_quality() -> None:
    goals = torch.linspace(-0.8, 0.8, 7, dtype=torch.float64)

    def judge(drawn: Tensor) -> Tensor:
        return (drawn - goals[:, None, None, None]).square().sum((2, 3))

    found = plan(PlannerSettings(100, 10, 10, 2), judge, systems=7)
    assert torch.allclose(found, goals[:, None, None].expand_as(found), atol=0.02)


def test_what_cannot_be_judged_is_never_chosen() -> None:
    def judge(drawn: Tensor) -> Tensor:
        first = drawn[:, :, 0, 0]
        return torch.where(first > 0, math.nan, (first - 0.5).square())

    found = plan(PlannerSettings(300, 10, 6, 1), judge)
    assert -0.2 < float(found) <= 0


def test_a_warm_start_moves_on_by_a_step() -> None:
    left = shifted(torch.tensor([[[1.0], [2.0], [3.0]]]))
    assert left.tolist() == [[[2.0], [3.0], [0.0]]]


def test_the_same_generator_gives_the_same_plan() -> None:
    def judge(drawn: Tensor) -> Tensor:
        return drawn.square().sum((2, 3))

    one, again, other = (plan(PlannerSettings(20, 4, 2, 3), judge, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)
