"""The projection step: its dual against brute force, and steps that meet a constraint or return to it."""

from __future__ import annotations

import copy
import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st

from samba_rl.errors import UserError
from samba_rl.improve.policies import GaussianPolicy
from samba_rl.improve.updates.projection import Case, Dual, ProjectionReport, ProjectionStep, solve_dual
from samba_rl.improve.updates.trust_region import TrustRegionSettings, TrustRegionStep, flat, mean_kl
from tests.improve.updates.steps import (
    KINDS,
    a_policy,
    random_advantage,
    standardised,
    steps,
    surrogate,
    unchanged,
)
from tests.traces import last_layer, seeded, simple_policy

CASES: tuple[Case, ...] = get_args(Case)

# The dual -------------------------------------------------------------------------------------------------------------


def by_brute_force(g: np.ndarray, b: np.ndarray, c: float, delta: float) -> float | None:
    """Return the least gᵀx for F = I, over many points of the feasible set's border; None if the set is empty.

    A linear function has its minimum on the border, in the plane of g and b: on the circle or where the line meets it.
    """
    basis, _ = np.linalg.qr(np.stack([b, g], axis=1))
    gradient, normal, radius = basis.T @ g, float((basis.T @ b)[0]), math.sqrt(2 * delta)
    angle = np.linspace(0, 2 * np.pi, 20_001)
    circle = radius * np.stack([np.cos(angle), np.sin(angle)])
    allowed = circle[:, c + normal * circle[0] <= 0]
    first = -c / normal
    if abs(first) <= radius:
        height = math.sqrt(radius**2 - first**2)
        allowed = np.concatenate([allowed, [[first, first], [-height, height]]], axis=1)
    return float((gradient @ allowed).min()) if allowed.size else None


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Draw F, g, b, c and delta, with g and b of very different length at any angle."""
    size, rng = draw(st.integers(2, 5)), np.random.default_rng(draw(st.integers(0, 10_000)))
    root = rng.normal(size=(size, size + 2))
    fisher = root @ root.T + 0.1 * np.eye(size)
    one, two = rng.normal(size=(2, size))
    b = 10 ** draw(st.floats(-2, 2)) * one
    g = 10 ** draw(st.floats(-2, 2)) * (two + draw(st.floats(-10, 10)) * one)
    delta = 10 ** draw(st.floats(-4, 0))
    # A step can change the constraint by at most a share of 1; exactly there, rounding decides.
    share = draw(st.floats(-1.5, 1.5).filter(lambda share: abs(abs(share) - 1) > 1e-6))
    c = share * math.sqrt(2 * delta * b @ np.linalg.solve(fisher, b))
    return fisher, g, b, c, delta


SEEN: set[Case] = set()


@given(problem=problems())
@settings(max_examples=300, deadline=None)
def check_one(problem: tuple[np.ndarray, np.ndarray, np.ndarray, float, float]) -> None:
    fisher, g, b, c, delta = problem
    by_g, by_b = np.linalg.solve(fisher, g), np.linalg.solve(fisher, b)
    q, r, s = float(g @ by_g), float(g @ by_b), float(b @ by_b)
    dual = solve_dual(q, r, s, c, delta)
    SEEN.add(dual.case)
    x = dual.objective * by_g + dual.constraint * by_b
    reach, unit = math.sqrt(2 * delta * s), math.sqrt(2 * delta * q)
    assert 0.5 * x @ fisher @ x <= delta * (1 + 1e-6)
    # With y = Lᵀx for F = L Lᵀ the matrix becomes I.
    lower = np.linalg.cholesky(fisher)
    best = by_brute_force(np.linalg.solve(lower, g), np.linalg.solve(lower, b), c, delta)
    assert dual.lam >= 0 and dual.nu >= 0
    if dual.case == "recovery":
        assert best is None and c > 0
        assert b @ x == pytest.approx(-reach)  # as far back as the divergence allows
        return
    assert c + b @ x <= 1e-6 * reach
    assert best is not None and g @ x == pytest.approx(best, abs=1e-6 * unit)
    # Weak duality bounds every solution; with these multipliers the bound is reached.
    square = q + 2 * dual.nu * r + dual.nu**2 * s
    bound = -(square / (2 * dual.lam) if dual.lam > 0 else 0) + dual.nu * c - dual.lam * delta
    assert g @ x == pytest.approx(bound, abs=1e-5 * unit)
    assert (dual.case == "unconstrained") == (c <= -reach)
    assert (dual.case == "binding") == (dual.nu > 0)
    if dual.case == "binding":
        assert c + b @ x == pytest.approx(0, abs=1e-6 * reach)


def test_the_dual_against_brute_force_in_every_case() -> None:
    SEEN.clear()
    check_one()
    assert set(CASES) == SEEN


@pytest.mark.parametrize(
    ("g", "b", "c", "expected"),
    [
        # F = I and ½ |x|² <= ½: a circle of radius one.
        ((2.0, 0.0), (-1.0, 0.0), -1.5, Dual("unconstrained", 2.0, 0.0, -0.5, 0.0)),
        ((2.0, 0.0), (0.0, 0.0), -0.1, Dual("unconstrained", 2.0, 0.0, -0.5, 0.0)),
        ((2.0, 0.0), (0.0, 0.0), 0.1, Dual("unconstrained", 2.0, 0.0, -0.5, 0.0)),  # no step changes it
        ((2.0, 0.0), (1.0, 0.0), 0.5, Dual("slack", 2.0, 0.0, -0.5, 0.0)),  # the way back also lowers the objective
        ((2.0, 0.0), (0.0, 1.0), 0.0, Dual("slack", 2.0, 0.0, -0.5, 0.0)),
        # Back to x₂ <= -0.6, and along it by 0.8: λ = 2 / 0.8 and ν = 0.6 λ.
        ((2.0, 0.0), (0.0, 1.0), 0.6, Dual("binding", 2.5, 1.5, -0.4, -0.6)),
        # The same from within, where the plain step (-3, -4) / 5 would violate it: x₂ >= -0.6, λ = 3 / 0.8.
        ((3.0, 4.0), (0.0, -1.0), -0.6, Dual("binding", 3.75, 1.75, -1 / 3.75, 0.6 - 4 / 3.75)),
        # Straight against the objective: x = -0.5 b, and the divergence does not bind.
        ((-2.0, 0.0), (1.0, 0.0), 0.5, Dual("binding", 0.0, 2.0, 0.0, -0.5)),
        ((-2.0, 0.0), (1.0, 0.0), -0.5, Dual("binding", 0.0, 2.0, 0.0, 0.5)),  # and no further than the limit
        ((0.0, 0.0), (0.0, 2.0), 0.5, Dual("binding", 0.0, 0.0, 0.0, -0.125)),
        ((0.0, 0.0), (0.0, 2.0), -0.5, Dual("slack", 0.0, 0.0, 0.0, 0.0)),
        ((2.0, 0.0), (0.0, 2.0), 2.0, Dual("recovery", 2.0, 1.0, 0.0, -0.5)),
        ((2.0, 0.0), (0.0, 2.0), 9.0, Dual("recovery", 2.0, 1.0, 0.0, -0.5)),
    ],
)
def test_the_dual_by_hand(g: tuple[float, float], b: tuple[float, float], c: float, expected: Dual) -> None:
    one, two = np.array(g), np.array(b)
    found = solve_dual(float(one @ one), float(one @ two), float(two @ two), c, 0.5)
    assert found.case == expected.case and found[1:] == pytest.approx(expected[1:], abs=1e-12)


def test_a_gradient_along_the_plane_that_is_rounding_alone_is_not_followed() -> None:
    """Here g = -b up to the last digits of q; the remainder of g must not be followed to the end of the divergence."""
    assert solve_dual(1 + 1e-15, -1.0, 1.0, 0.5, 0.5) == ("binding", 0.0, 1.0, 0.0, -0.5)


# A step ---------------------------------------------------------------------------------------------------------------


@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    seed=st.integers(0, 1000),
    kl=st.sampled_from([1e-4, 0.01, 0.3]),
    excess=st.sampled_from([-5.0, -0.1, -1e-3, 0.0, 1e-3, 0.1, 5.0, math.nan, math.inf]),
    n=st.integers(2, 40),
)
@example(kinds=("random", "rounding"), seed=64, kl=1e-4, excess=0.0, n=2)
@settings(max_examples=200, deadline=None)
def test_no_step_breaks_its_promises(kinds: tuple[str, str], seed: int, kl: float, excess: float, n: int) -> None:
    policy = a_policy(seed=seed)
    inputs, raw, _ = steps(policy, n, seed)
    advantage, constraint = (random_advantage(kind, n, seed + i) for i, kind in enumerate(kinds))
    before = copy.deepcopy(policy)
    report = ProjectionStep(policy, TrustRegionSettings(kl=kl))(inputs, raw, advantage, constraint, excess, scale=7.0)
    broken = {"nan", "inf"} & set(kinds) or not math.isfinite(excess)
    assert not (report.accepted and broken)
    if not report.accepted:
        assert unchanged(policy, before) and report[:2] == (0, 0)
        return
    with torch.no_grad():
        moved = mean_kl(before.mean_of(inputs), before.log_std, policy.mean_of(inputs), policy.log_std)
        wide, old = policy.double(), before.double()
        inputs, raw = inputs.double(), raw.double()
        old_log = old.log_density(inputs, raw)
        one, two = (each.double() - each.double().mean() for each in (advantage, constraint))
        better = -float(surrogate(wide, inputs, raw, one, old_log)) / max(float(one.square().mean().sqrt()), 1e-9)
        change = 7 * float(surrogate(wide, inputs, raw, two, old_log))
    assert report.kl == pytest.approx(float(moved)) and report.kl <= kl
    slack = 1e-5 * 7 * float(constraint.abs().max())  # differences in the last digits count as zero
    if kinds[0] in ("random", "outlier"):
        assert report.improvement == pytest.approx(better, rel=1e-3, abs=1e-5)
    if report.case == "recovery":
        assert excess > 0 and change < slack
    else:
        assert excess + change <= max(0, excess) + slack
        assert report.improvement > 0 or (excess > 0 and change < slack)


def test_a_constraint_that_is_far_away_changes_nothing() -> None:
    one, other = a_policy(), a_policy()
    inputs, raw, advantage = steps(one)
    constraint = raw[:, 0]
    plain = TrustRegionStep(one, TrustRegionSettings())(inputs, raw, advantage)
    report = ProjectionStep(other, TrustRegionSettings())(inputs, raw, advantage, constraint, -1e3, 1.0)
    assert report[:4] == pytest.approx(plain) and report[4:] == ("unconstrained", 0)
    assert torch.equal(flat(one), flat(other))


def test_recovery_heads_for_the_constraint_alone() -> None:
    one, other = a_policy(), a_policy()
    inputs, raw, advantage = steps(one)
    constraint = raw[:, 0] + inputs[:, 0]
    plain = TrustRegionStep(one, TrustRegionSettings(damping=0.1))(inputs, raw, constraint)
    report = ProjectionStep(other, TrustRegionSettings(damping=0.1))(inputs, raw, advantage, constraint, 1e3, 3.0)
    assert report.case == "recovery" and report.accepted and report.kl == pytest.approx(plain.kl, rel=1e-3)
    assert torch.allclose(flat(one), flat(other), atol=1e-5)


def test_a_violated_constraint_is_met_at_the_objectives_cost() -> None:
    """The two are opposed and the limit is near: the step goes back to it, and no further."""
    policy = a_policy()
    inputs, raw, _ = steps(policy, 500)
    cost = raw[:, 0]
    report = ProjectionStep(policy, TrustRegionSettings())(inputs, raw, -cost, cost, 0.01, 1.0)
    assert report.case == "binding" and report.accepted and report.improvement < 0 and report.nu > 0
    change = -report.improvement * float(cost.std(correction=0))
    assert change == pytest.approx(0.01, rel=0.1)


def bandit(
    start: float, wish: float, scale: float, iterations: int = 60
) -> tuple[GaussianPolicy, list[ProjectionReport]]:
    """Learn to choose actions near `wish` whose sum over `scale` steps stays below 0.3 per step on average."""
    policy = simple_policy(std=0.4)
    with torch.no_grad():
        last_layer(policy).bias.fill_(start)
    update = ProjectionStep(policy, TrustRegionSettings(kl=0.02, damping=0.1))
    generator, seen, reports = seeded(0), torch.zeros(1000, 1), []
    for _ in range(iterations):
        raw = policy.raw(policy(seen, generator))
        action = raw[:, 0]
        excess = scale * (float(action.mean()) - 0.3)
        reports.append(update(seen, raw, (action - wish).square(), action, excess, scale))
    return policy, reports


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize(
    ("start", "wish", "best"),
    [(0.0, 0.8, 0.3), (-0.6, 0.8, 0.3), (0.9, 0.8, 0.3), (1.5, 0.8, 0.3), (0.0, -0.2, -0.2), (1.2, 0.1, 0.1)],
)
def test_a_bandit_ends_at_the_constrained_optimum(start: float, wish: float, best: float, scale: float) -> None:
    policy, reports = bandit(start, wish, scale)
    assert policy.mean_of(torch.zeros(1, 1)).item() == pytest.approx(best, abs=0.05)
    cases = {report.case for report in reports}
    assert ("recovery" in cases) == (start > 0.5)
    assert ("binding" in cases) == (wish > 0.3)
    assert all(report.kl <= 0.02 for report in reports)


def test_a_violated_start_recovers_at_once_and_stays() -> None:
    policy, reports = bandit(1.2, 0.8, 1.0, iterations=40)
    assert reports[0].case == "recovery" and all(report.accepted for report in reports if report.case == "recovery")
    last = max(i for i, report in enumerate(reports) if report.case == "recovery")
    assert last < 30
    assert policy.mean_of(torch.zeros(1, 1)).item() < 0.35


def test_the_floor_of_the_standard_deviation_holds() -> None:
    policy = simple_policy(std=0.4)
    update = ProjectionStep(policy, TrustRegionSettings(kl=0.05))
    assert update.std_floor == policy.settings.std_floor
    update.std_floor, generator, seen = 0.3, seeded(0), torch.zeros(300, 1)
    for _ in range(20):
        raw = policy.raw(policy(seen, generator))
        assert update(seen, raw, raw[:, 0].square(), raw[:, 0], -10.0, 1.0).kl <= 0.05
    assert policy.std.item() == pytest.approx(0.3)


@pytest.mark.parametrize(("excess", "case"), [(-1e3, "unconstrained"), (0.0, "slack"), (1e3, "recovery")])
def test_a_step_that_makes_things_worse_is_not_taken(excess: float, case: Case) -> None:
    """Less noise would be better and safer, but the floor only allows more."""
    policy = simple_policy(std=0.3)
    update = ProjectionStep(policy, TrustRegionSettings(kl=0.5))
    update.std_floor, before, seen = 0.4, copy.deepcopy(policy), torch.zeros(300, 1)
    raw = 0.3 * torch.randn(300, 1, generator=seeded(0))
    cost = raw[:, 0].square()
    report = update(seen, raw, cost, cost, excess, 1.0)
    assert report.case == case and report[:4] == (0, 0, False, 10) and unchanged(policy, before)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_a_scale_that_is_no_number_of_steps_is_refused(scale: float) -> None:
    policy = a_policy()
    inputs, raw, advantage = steps(policy)
    with pytest.raises(UserError, match=f"scale is {scale}; it must be positive"):
        ProjectionStep(policy, TrustRegionSettings())(inputs, raw, standardised(advantage), advantage, 0.0, scale)
