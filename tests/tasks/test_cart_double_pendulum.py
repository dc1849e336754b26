import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from samba_rl import SafeCartPoleDoublePendulum

TASK = SafeCartPoleDoublePendulum()
FREE = SafeCartPoleDoublePendulum(friction=0.0)


def point_mass_accelerations(x: NDArray[np.float64], force: float, friction: float) -> NDArray[np.float64]:
    """(ẍ, θ̈₁, θ̈₂) from first principles: each rod cut into many point masses, d'Alembert's principle on each.

    An oracle that shares no algebra with the code: M = Σ mᵢ Jᵢᵀ Jᵢ and the forces Jᵢᵀ (gravity - J̇ᵢ q̇), with the
    Jacobian of every point mass.
    """
    _, velocity, w1, w2, a1, a2 = x
    n, mass, length, g = 400, 0.5, 0.6, 9.82
    along = (np.arange(n) + 0.5) / n * length
    matrix = np.zeros((3, 3))
    right = np.array([force - friction * velocity, 0.0, 0.0])
    matrix[0, 0] = mass  # the cart
    for inner, outer in ((along, None), (np.full(n, length), along)):
        for r1, r2 in zip(inner, np.zeros(n) if outer is None else outer, strict=True):
            jacobian = np.array(
                [[1.0, -r1 * math.cos(a1), -r2 * math.cos(a2)], [0.0, -r1 * math.sin(a1), -r2 * math.sin(a2)]]
            )
            drift = np.array(
                [
                    r1 * math.sin(a1) * w1**2 + r2 * math.sin(a2) * w2**2,
                    -r1 * math.cos(a1) * w1**2 - r2 * math.cos(a2) * w2**2,
                ]
            )
            matrix += mass / n * jacobian.T @ jacobian
            right += mass / n * jacobian.T @ (np.array([0.0, -g]) - drift)
    return np.linalg.solve(matrix, right)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-6, 6), min_size=6, max_size=6), st.floats(-20, 20))
def test_equations_of_motion_from_first_principles(state: list[float], force: float) -> None:
    x = torch.tensor([state], dtype=torch.float64)
    rates = TASK.derivative(x.T, torch.tensor([force], dtype=torch.float64))[:, 0].numpy()
    assert rates[0] == state[1]
    assert rates[4:].tolist() == state[2:4]
    expected = point_mass_accelerations(np.array(state), force, friction=0.1)
    assert rates[1:4] == pytest.approx(expected, rel=1e-4, abs=1e-4 * np.abs(expected).max())


def test_rod_moments_of_inertia() -> None:
    """The energy of single motions by hand: a rod turning about its end has ml²/6 ω²."""
    still = torch.zeros(4, 6, dtype=torch.float64)
    still[0, 1] = 2.0  # the cart at 2 m/s, links riding along upright: ½ · 1.5 kg · 4
    still[1, 3] = 3.0  # the outer link turning about the joint: ½ · ml²/3 · 9
    still[2, 2] = 3.0  # the inner link turning, the outer one shifted by its end: ½ · (ml²/3 + ml²) · 9
    upright = 9.82 * (0.5 * 0.3 + 0.5 * 0.9)
    expected = [3.0, 0.5 * 0.5 * 0.36 / 3 * 9, 0.5 * (0.5 * 0.36 / 3 + 0.5 * 0.36) * 9, 0.0]
    assert (TASK.energy(still) - upright).tolist() == pytest.approx(expected, abs=1e-12)


def visited_states(n: int) -> torch.Tensor:
    """States [n, 6] that random and bang-bang forces lead to within an episode."""
    generator = torch.Generator().manual_seed(11)
    visited = []
    for hold in (1, 5):
        x = TASK.start(n, generator)
        force = torch.zeros(n, 1, dtype=torch.float64)
        for t in range(TASK.horizon):
            if t % hold == 0:
                force = 40 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 20
                force = force if hold == 1 else 20 * force.sign()
            x = TASK.step(x, force)
            visited.append(x)
    states = torch.cat(visited)
    return states[torch.randperm(len(states), generator=generator)[:n]]


def largest_drift(x: torch.Tensor) -> float:
    """The largest relative change of energy over 30 steps from states [B, 6] without friction and force."""
    nothing = torch.zeros(len(x), 1, dtype=torch.float64)
    initial = FREE.energy(x)
    # Relative to the energy, or where that is near zero to the depth of the potential well.
    scale = initial.abs().clamp(min=9.82 * 0.6)
    drift = torch.zeros(len(x), dtype=torch.float64)
    for _ in range(30):
        x = FREE.step(x, nothing)
        drift = torch.maximum(drift, (FREE.energy(x) - initial).abs() / scale)
    return float(drift.max())


def test_energy_is_conserved_without_friction_and_force() -> None:
    assert largest_drift(FREE.start(200, torch.Generator().manual_seed(0))) < 1e-11
    assert largest_drift(visited_states(1000)) < 1e-4


@pytest.mark.slow
def test_energy_is_conserved_from_many_states() -> None:
    assert largest_drift(visited_states(20_000)) < 1e-4


def test_friction_takes_energy() -> None:
    x = TASK.start(100, torch.Generator().manual_seed(0))
    after = x
    for _ in range(30):
        after = TASK.step(after, torch.zeros(100, 1, dtype=torch.float64))
    assert bool((TASK.energy(after) < TASK.energy(x)).all())


def test_against_a_high_accuracy_integration() -> None:
    x = visited_states(20)
    force = torch.linspace(-20, 20, 20, dtype=torch.float64)[:, None]

    def rates(_: float, state: NDArray[np.float64], u: float) -> NDArray[np.float64]:
        column = torch.from_numpy(state)[:, None]
        return TASK.derivative(column, torch.tensor([u], dtype=torch.float64))[:, 0].numpy()

    after = TASK.step(x, force)
    for i in range(len(x)):
        exact = solve_ivp(
            rates, (0, 0.05), x[i].numpy(), method="DOP853", rtol=1e-12, atol=1e-12, args=(float(force[i, 0]),)
        ).y[:, -1]
        assert after[i].numpy() == pytest.approx(exact, rel=1e-5, abs=1e-5)


def test_cost_and_tip_by_hand() -> None:
    x = torch.zeros(4, 6, dtype=torch.float64)
    x[1, 0] = 0.5
    x[2, 4:] = math.pi  # hanging: 2.4 m below
    x[3, 4] = math.pi / 2  # inner link horizontal to the left, outer one upright
    assert TASK.tip(x).flatten().tolist() == pytest.approx([0, 1.2, 0.5, 1.2, 0, -1.2, -0.6, 0.6], abs=1e-12)
    expected = [0, 1 - math.exp(-0.5), 1 - math.exp(-(2.4**2) * 2), 1 - math.exp(-0.72 * 2)]
    assert TASK.cost(x, torch.zeros(4, 1)).tolist() == pytest.approx(expected, abs=1e-12)


def test_hazard_is_on_the_inner_link() -> None:
    x = torch.zeros(2, 6, dtype=torch.float64)
    x[0, 4], x[1, 5] = math.radians(25), math.radians(25)
    assert TASK.safety(x).tolist() == [[pytest.approx(1)], [pytest.approx(0.5)]]
    assert TASK.violation(x).tolist() == [[True], [False]]


def test_starts_hanging() -> None:
    x = TASK.start(100_000, torch.Generator().manual_seed(0))
    assert x.mean(0).tolist() == pytest.approx([0, 0, 0, 0, math.pi, math.pi], abs=2e-3)
    assert x.std(0).tolist() == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.01, 0.01], rel=0.02)


def test_observation() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0, 0.5, -0.7]], dtype=torch.float64)
    expected = [1, 2, 3, 4, math.sin(0.5), math.cos(0.5), math.sin(-0.7), math.cos(-0.7)]
    assert TASK.observe(x)[0].tolist() == pytest.approx(expected)
