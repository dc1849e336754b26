import math

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from samba_rl import SafePendulum

TASK = SafePendulum()


@given(st.floats(-20, 20), st.floats(-8, 8), st.floats(-3, 3, width=32))
def test_step_and_cost_equal_gymnasiums(angle: float, speed: float, torque: float) -> None:
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    env.state = np.array([angle, speed])  # type: ignore[attr-defined]
    observation, reward, *_ = env.step(np.array([torque], dtype=np.float32))
    x, u = torch.tensor([[angle, speed]], dtype=torch.float64), torch.tensor([[torque]], dtype=torch.float64)
    after = TASK.step(x, u)
    assert after[0].numpy() == pytest.approx(env.state, abs=1e-6)  # type: ignore[attr-defined]
    assert TASK.observe(after)[0].numpy() == pytest.approx(observation, abs=1e-6)
    # At ±π the wrapped angle may come out on either side; its square is the same.
    assert float(TASK.cost(x, u)) == pytest.approx(-float(reward), abs=1e-6)


def test_a_hundred_steps_stay_equal_to_gymnasiums() -> None:
    """Errors do not accumulate: whole trajectories from the same start and actions agree."""
    env = gymnasium.make("Pendulum-v1").unwrapped
    generator = torch.Generator().manual_seed(3)
    x = TASK.start(1, generator)
    env.reset(seed=0)
    env.state = x[0].numpy().copy()  # type: ignore[attr-defined]
    for torque in (4 * torch.rand(100, generator=generator) - 2).numpy():
        env.step(np.array([torque], dtype=np.float32))
        x = TASK.step(x, torch.tensor([[float(torque)]], dtype=torch.float64))
        assert x[0].numpy() == pytest.approx(env.state, abs=1e-5)  # type: ignore[attr-defined]


def test_cost_by_hand() -> None:
    x = torch.tensor([[math.pi, 0.0], [0.5, 2.0], [2 * math.pi - 0.5, 2.0]], dtype=torch.float64)
    u = torch.tensor([[0.0], [1.0], [9.0]], dtype=torch.float64)
    expected = [math.pi**2, 0.25 + 0.4 + 0.001, 0.25 + 0.4 + 0.004]  # the torque of 9 counts as 2
    assert TASK.cost(x, u).tolist() == pytest.approx(expected, abs=1e-12)


def test_upright_costs_half_a_safety_cost() -> None:
    x = torch.tensor([[0.0, 0.0], [math.radians(25), 1.0]], dtype=torch.float64)
    assert TASK.safety(x).tolist() == [[pytest.approx(0.5)], [pytest.approx(1)]]
    assert TASK.violation(x).tolist() == [[False], [True]]


def test_starts_are_uniform() -> None:
    x = TASK.start(200_000, torch.Generator().manual_seed(0))
    assert x.shape == (200_000, 2) and x.dtype == torch.float64
    assert x.abs().amax(0).tolist() == pytest.approx([math.pi, 1.0], rel=1e-3)
    assert x.mean(0).abs().max() < 0.02
    assert x.std(0).tolist() == pytest.approx([math.pi / math.sqrt(3), 1 / math.sqrt(3)], rel=0.01)
    # "Over a quarter of all trajectories begin inside the hazard": 100 of 360 degrees.
    assert float((TASK.safety(x) > 0).double().mean()) == pytest.approx(100 / 360, abs=0.005)


def test_done_after_five_good_costs_in_a_row() -> None:
    x = torch.zeros(4, 2)
    recent = torch.tensor(
        [
            [0.01, 0.01, 0.0, 0.005, 0.01],
            [0.011, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.02],
            [math.inf, 0.0, 0.0, 0.0, 0.0],  # only four steps old
        ]
    )
    assert TASK.done(x, recent).tolist() == [True, False, False, False]


def test_model_inputs_have_no_angle_to_wrap() -> None:
    u = torch.ones(2, 1, dtype=torch.float64)
    x = torch.tensor([[0.3, 1.0], [0.3 + 2 * math.pi, 1.0]], dtype=torch.float64)
    inputs = TASK.model_inputs(x, u)
    assert inputs.shape == (2, 4)
    assert torch.allclose(inputs[0], inputs[1])
