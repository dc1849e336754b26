from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from samba_rl import SafePendulum, Task, UniformPolicy, UserError
from samba_rl.agents.first import FirstTrials, first_policy
from samba_rl.models.gp import GPDynamics, GPSettings
from samba_rl.models.likelihood import FitSettings
from samba_rl.models.world import ModelSource, ZetaName
from samba_rl.models.zeta import entropy, zeta_bootstrap, zeta_loo
from samba_rl.tasks.rollout import RealSource
from tests.traces import seeded

TASK = SafePendulum()
RANDOM = UniformPolicy((-2.0,), (2.0,))
# A pendulum with a second motor, so that columns could be mixed up.
TWO_MOTORS = dataclasses.replace(
    TASK, actions=(TASK.actions[0], dataclasses.replace(TASK.actions[0], name="second", low=0.0, high=5.0))
)


@pytest.fixture(scope="module")
def model() -> GPDynamics:
    model = GPDynamics(TASK, GPSettings(fit=FitSettings(iterations=20)))
    model.fit(RealSource(TASK.world())(RANDOM, 3, seeded(0)).transitions())
    return model


def first_actions(task: Task, how: FirstTrials, episodes: int, hold: int, seed: int = 0) -> Tensor:
    """What the first policy does [episodes, T, nu]."""
    generator = seeded(seed)
    policy = first_policy(task, how, episodes, hold, generator)
    seen = torch.zeros(episodes, 3, dtype=torch.float64)
    return torch.stack([policy(seen, generator) for _ in range(task.horizon)], dim=1)


# The first trials -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["uniform", "held", "sobol"])
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 1000))
def test_first_actions_stay_within_their_bounds_and_reach_all_over_them(
    how: FirstTrials, episodes: int, hold: int, seed: int
) -> None:
    actions = first_actions(TWO_MOTORS, how, episodes, hold, seed)
    assert actions.shape == (episodes, 30, 2) and actions.dtype == torch.float64
    low, high = torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 5.0])
    assert bool((actions >= low).all()) and bool((actions <= high).all())
    many = first_actions(TWO_MOTORS, how, 200, hold, seed).flatten(0, 1)
    assert many.mean(0).tolist() == pytest.approx([0.0, 2.5], abs=0.5)
    assert bool((many.amin(0) < low + 0.1 * (high - low)).all()) and bool(
        (many.amax(0) > high - 0.1 * (high - low)).all()
    )
    # The two motors do not move as one.
    assert abs(float(torch.corrcoef(many.T)[0, 1])) < 0.4


@pytest.mark.parametrize("how", ["uniform", "held", "sobol"])
def test_the_generator_alone_decides_on_the_first_actions(how: FirstTrials) -> None:
    one, same, other = (first_actions(TWO_MOTORS, how, 4, 5, seed) for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)


def runs(actions: Tensor) -> list[int]:
    """How many steps each action of an episode [T, nu] is kept for."""
    changes = (actions[1:] != actions[:-1]).any(-1).nonzero()[:, 0].tolist()
    ends = [-1, *changes, len(actions) - 1]
    return [b - a for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("hold", [1, 4, 5, 30, 50])
def test_held_actions_are_held_from_phases_that_differ_between_episodes(hold: int) -> None:
    actions = first_actions(TWO_MOTORS, "held", 200, hold)
    lengths = [runs(one) for one in actions]
    for each in lengths:
        assert sum(each) == 30 and all(length == hold for length in each[1:-1])
        assert each[0] <= hold and each[-1] <= hold
    if hold < 30:
        assert {each[0] for each in lengths} == set(range(1, hold + 1))
    assert len({tuple(one[0].tolist()) for one in actions}) == 200  # episodes begin differently


@pytest.mark.parametrize(("hold", "expected"), [(1, [1] * 30), (7, [7, 7, 7, 7, 2]), (10, [10] * 3), (40, [30])])
def test_sobol_actions_are_held_in_step(hold: int, expected: list[int]) -> None:
    assert all(runs(one) == expected for one in first_actions(TWO_MOTORS, "sobol", 16, hold))


def test_sobol_sequences_cover_every_block_and_motor_evenly() -> None:
    """Of 2^k points of a Sobol sequence each 2^k-th of every range holds one; where they are random many stay empty."""
    blocks = first_actions(TWO_MOTORS, "sobol", 64, 10)[:, ::10]
    unit = (blocks - torch.tensor([-2.0, 0.0])) / torch.tensor([4.0, 5.0])
    for block in range(3):
        for motor in range(2):
            assert sorted((64 * unit[:, block, motor]).long().tolist()) == list(range(64))
    drawn = first_actions(TWO_MOTORS, "held", 64, 10)[:, 0, 0]
    assert len(set((16 * (drawn + 2)).long().tolist())) < 55


def test_uniform_actions_are_drawn_afresh_at_every_step() -> None:
    assert all(runs(one) == [1] * 30 for one in first_actions(TASK, "uniform", 5, 10))


@pytest.mark.parametrize("how", ["held", "sobol"])
def test_holding_for_less_than_a_step_is_refused(how: FirstTrials) -> None:
    with pytest.raises(UserError, match="actions are held for 0 steps; at least 1 is needed"):
        first_policy(TASK, how, 3, 0, seeded(0))


@pytest.mark.parametrize("how", ["uniform", "held", "sobol"])
def test_the_first_trials_run_on_the_real_system(how: FirstTrials) -> None:
    generator = seeded(0)
    traces = RealSource(TASK.world())(first_policy(TASK, how, 3, 5, generator), 3, generator)
    assert traces.u.shape == (3, 30, 1) and traces.zeta is None and not bool(traces.clipped.any())


# Traces ---------------------------------------------------------------------------------------------------------------


def test_real_traces_hold_what_was_seen_and_wanted() -> None:
    def wild(observation: Tensor, generator: object) -> Tensor:
        return 5 * observation[:, :1]

    traces = RealSource(TASK.world())(wild, 20, seeded(0))
    for t in range(30):
        assert torch.equal(traces.observation[:, t], TASK.observe(traces.x[:, t]))
        assert torch.equal(traces.wanted[:, t], 5 * traces.observation[:, t, :1])
    assert torch.equal(traces.u, traces.wanted.clamp(-2, 2))
    assert torch.equal(traces.clipped, (traces.wanted[..., 0].abs() > 2) & traces.active)


@pytest.mark.parametrize(
    ("name", "zeta"), [("loo", zeta_loo), ("bootstrap", zeta_bootstrap), ("entropy", entropy), (None, None)]
)
def test_imagined_traces_carry_the_zeta_that_was_asked_for(
    model: GPDynamics, name: ZetaName | None, zeta: Callable[[GPDynamics, Tensor], Tensor] | None
) -> None:
    traces = ModelSource(model, name)(RANDOM, 12, seeded(0))
    assert traces.x.shape == (12, 31, 2) and traces.cost.shape == (12, 30)
    if zeta is None:
        assert traces.zeta is None
        return
    assert traces.zeta is not None
    for t in (0, 7, 29):
        expected = zeta(model, TASK.model_inputs(traces.x[:, t], traces.u[:, t])).where(traces.active[:, t], 0.0)
        assert torch.allclose(traces.zeta[:, t], expected.to(traces.zeta), rtol=1e-4, atol=1e-6)


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
    # The speed has bounds at which a state stops; elsewhere a step strays from the mean as the model says.
    inside = after[:, 1].abs() < 7.9
    assert float(errors[inside].square().mean()) == pytest.approx(1.0, abs=0.25)
    assert torch.allclose(traces.cost[on], TASK.cost(x, u)) and torch.allclose(traces.safety[on], TASK.safety(after))


def test_a_drawn_function_answers_the_same_whenever_it_is_asked(model: GPDynamics) -> None:
    """Steps that stray from the mean keep doing so the same way; independent draws do not."""

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
    actions = first_policy(TASK, "held", 3, 5, seeded(0))
    rig = dataclasses.replace(TASK, parallel=False)
    traces = RealSource(rig.world())(actions, 3, seeded(1))
    expected = first_actions(TASK, "held", 3, 5)
    assert traces.u.shape == (3, 30, 1) and torch.allclose(traces.wanted, expected)
    assert len({row[0].item() for row in traces.x[:, 0]}) == 3 and traces.zeta is None
    for i in range(3):
        x = traces.x[i : i + 1, 0]
        for t in range(int(traces.active[i].sum())):
            x = TASK.step(x, traces.u[i : i + 1, t])
            assert torch.allclose(x, traces.x[i : i + 1, t + 1])
