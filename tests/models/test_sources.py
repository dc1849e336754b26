"""Where traces come from: the real system and a model of it."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest
import torch
from torch import Tensor

from samba_rl import SafePendulum, UniformPolicy
from samba_rl.improve.policies import OpenLoopPolicy
from samba_rl.models.gp import GPDynamics
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.settings import GPSettings
from samba_rl.models.world import ModelSource
from samba_rl.models.zeta import ZETAS
from samba_rl.tasks.rollout import RealSource
from tests.traces import seeded

TASK = SafePendulum()
RANDOM = UniformPolicy((-2.0,), (2.0,))


@pytest.fixture(scope="module")
def model() -> GPDynamics:
    model = GPDynamics(TASK, GPSettings(fit=FitSettings(iterations=20)))
    model.fit(RealSource(TASK.world())(RANDOM, 3, seeded(0)).transitions())
    return model


def test_real_traces_hold_observations_and_requested_actions() -> None:
    def wild(observation: Tensor, generator: object) -> Tensor:
        return 5 * observation[:, :1]

    traces = RealSource(TASK.world())(wild, 20, seeded(0))
    for t in range(30):
        assert torch.equal(traces.observation[:, t], TASK.observe(traces.x[:, t]))
        assert torch.equal(traces.wanted[:, t], 5 * traces.observation[:, t, :1])
    assert torch.equal(traces.u, traces.wanted.clamp(-2, 2))
    assert torch.equal(traces.clipped, (traces.wanted[..., 0].abs() > 2) & traces.active)


@pytest.mark.parametrize("draw", ["marginals", "functions"])
@pytest.mark.parametrize("name", [name for name in ZETAS if name != "information"])
def test_imagined_traces_carry_the_requested_zeta(
    model: GPDynamics, name: str, draw: Literal["marginals", "functions"]
) -> None:
    zeta = ZETAS[name]
    traces = ModelSource(model, zeta, draw)(RANDOM, 12, seeded(0))
    assert traces.x.shape == (12, 31, 2) and traces.cost.shape == (12, 30) and traces.zeta is not None
    for t in (0, 7, 29):
        _, expected = zeta.predict(model, TASK.model_inputs(traces.x[:, t], traces.u[:, t]))
        expected = expected.where(traces.active[:, t], 0.0)
        assert torch.allclose(traces.zeta[:, t], expected.to(traces.zeta), rtol=1e-4, atol=1e-6)


def test_imagined_traces_have_no_zeta_unless_it_is_requested(model: GPDynamics) -> None:
    traces = ModelSource(model)(RANDOM, 12, seeded(0))
    assert traces.x.shape == (12, 31, 2) and traces.cost.shape == (12, 30) and traces.zeta is None


@pytest.mark.parametrize("draw", ["marginals", "functions"])
def test_imagined_traces_follow_the_model_and_the_tasks_costs(
    model: GPDynamics, draw: Literal["marginals", "functions"]
) -> None:
    traces, same, other = (ModelSource(model, draw=draw)(RANDOM, 200, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(traces.x, same.x) and not torch.equal(traces.x, other.x)
    on = traces.active
    x, u, after = traces.x[:, :-1][on], traces.u[on], traces.x[:, 1:][on]
    predicted = model.predict(TASK.model_inputs(x, u))
    errors = (after - x - predicted.mean) / (predicted.variance + model.noise).sqrt()
    # The speed is clamped at its bounds; elsewhere steps deviate from the mean as the model predicts.
    inside = after[:, 1].abs() < 7.9
    assert float(errors[inside].square().mean()) == pytest.approx(1.0, abs=0.25)
    assert torch.allclose(traces.cost[on], TASK.cost(x, u)) and torch.allclose(traces.safety[on], TASK.safety(after))


def test_the_deviations_of_a_drawn_function_persist(model: GPDynamics) -> None:
    """Steps along a function deviate from the mean in the same direction; independent draws do not."""

    def persistence(draw: Literal["marginals", "functions"]) -> float:
        traces = ModelSource(model, draw=draw)(lambda o, g: torch.zeros_like(o[:, :1]), 300, seeded(0))
        x, after = traces.x[:, :-1], traces.x[:, 1:]
        answer = model.predict(TASK.model_inputs(x.flatten(0, 1), traces.u.flatten(0, 1)))
        z = ((after - x).flatten(0, 1) - answer.mean) / (answer.variance + model.noise).sqrt()
        free = traces.active & (after[..., 1].abs() < 7.9)
        z = z.reshape(300, 30, 2)[..., 1]
        return float((z[:, 1:] * z[:, :-1])[free[:, 1:] & free[:, :-1]].mean())

    assert abs(persistence("marginals")) < 0.05 and persistence("functions") > 0.1


def test_a_rig_runs_its_episodes_one_after_the_other_as_the_batch_would() -> None:
    actions = 4 * torch.rand(3, 30, 1, generator=seeded(0), dtype=torch.float64) - 2
    rig = dataclasses.replace(TASK, parallel=False)
    traces = RealSource(rig.world())(OpenLoopPolicy(actions), 3, seeded(1))
    assert traces.u.shape == (3, 30, 1) and torch.allclose(traces.wanted, actions)
    assert len({row[0].item() for row in traces.x[:, 0]}) == 3 and traces.zeta is None
    for i in range(3):
        x = traces.x[i : i + 1, 0]
        for t in range(int(traces.active[i].sum())):
            x = TASK.step(x, traces.u[i : i + 1, t])
            assert torch.allclose(x, traces.x[i : i + 1, t + 1])
