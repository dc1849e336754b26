"""The actions of the first real trials."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Literal

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from samba_rl import SafePendulum, Task, UserError
from samba_rl.agents.first import Controller, FirstSettings, first_policy
from samba_rl.agents.settings import ModelFreeSettings
from samba_rl.tasks.rollout import RealSource
from tests.traces import seeded

How = Literal["uniform", "held", "sobol"]
TASK = SafePendulum()
# A pendulum with a second motor, so that columns could be mixed up.
TWO_MOTORS = dataclasses.replace(
    TASK, actions=(TASK.actions[0], dataclasses.replace(TASK.actions[0], name="second", low=0.0, high=5.0))
)


def first_actions(task: Task, how: How, episodes: int, hold: int, seed: int = 0) -> Tensor:
    """Return the actions of the first policy [episodes, T, nu]."""
    generator = seeded(seed)
    policy = first_policy(task, FirstSettings(how=how, hold=hold), episodes, generator)
    seen = torch.zeros(episodes, 3, dtype=torch.float64)
    return torch.stack([policy(seen, generator) for _ in range(task.horizon)], dim=1)


@pytest.mark.parametrize("how", ["uniform", "held", "sobol"])
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 1000))
def test_actions_stay_within_their_bounds_and_cover_them(how: How, episodes: int, hold: int, seed: int) -> None:
    actions = first_actions(TWO_MOTORS, how, episodes, hold, seed)
    assert actions.shape == (episodes, 30, 2) and actions.dtype == torch.float64
    low, high = torch.tensor([-2.0, 0.0]), torch.tensor([2.0, 5.0])
    assert bool((actions >= low).all()) and bool((actions <= high).all())
    many = first_actions(TWO_MOTORS, how, 200, hold, seed).flatten(0, 1)
    assert many.mean(0).tolist() == pytest.approx([0.0, 2.5], abs=0.5)
    assert bool((many.amin(0) < low + 0.1 * (high - low)).all()) and bool(
        (many.amax(0) > high - 0.1 * (high - low)).all()
    )
    # The two motors move independently.
    assert abs(float(torch.corrcoef(many.T)[0, 1])) < 0.4


@pytest.mark.parametrize("how", ["uniform", "held", "sobol"])
def test_only_the_generator_determines_the_actions(how: How) -> None:
    one, same, other = (first_actions(TWO_MOTORS, how, 4, 5, seed) for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)


def runs(actions: Tensor) -> list[int]:
    """Return the number of steps for which each action of an episode [T, nu] is held."""
    changes = (actions[1:] != actions[:-1]).any(-1).nonzero()[:, 0].tolist()
    ends = [-1, *changes, len(actions) - 1]
    return [b - a for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("hold", [1, 4, 5, 30, 50])
def test_held_actions_have_phases_that_differ_between_episodes(hold: int) -> None:
    actions = first_actions(TWO_MOTORS, "held", 200, hold)
    lengths = [runs(one) for one in actions]
    for each in lengths:
        assert sum(each) == 30 and all(length == hold for length in each[1:-1])
        assert each[0] <= hold and each[-1] <= hold
    if hold < 30:
        assert {each[0] for each in lengths} == set(range(1, hold + 1))
    assert len({tuple(one[0].tolist()) for one in actions}) == 200  # all episodes start differently


@pytest.mark.parametrize(("hold", "expected"), [(1, [1] * 30), (7, [7, 7, 7, 7, 2]), (10, [10] * 3), (40, [30])])
def test_sobol_actions_change_at_the_same_steps_in_all_episodes(hold: int, expected: list[int]) -> None:
    assert all(runs(one) == expected for one in first_actions(TWO_MOTORS, "sobol", 16, hold))


def test_sobol_sequences_cover_every_block_and_motor_evenly() -> None:
    """Each of 2^k equal parts of every range holds one of 2^k Sobol points; random points leave many parts empty."""
    blocks = first_actions(TWO_MOTORS, "sobol", 64, 10)[:, ::10]
    unit = (blocks - torch.tensor([-2.0, 0.0])) / torch.tensor([4.0, 5.0])
    for block in range(3):
        for motor in range(2):
            assert sorted((64 * unit[:, block, motor]).long().tolist()) == list(range(64))
    drawn = first_actions(TWO_MOTORS, "held", 64, 10)[:, 0, 0]
    assert len(set((16 * (drawn + 2)).long().tolist())) < 55


def test_uniform_actions_are_drawn_at_every_step() -> None:
    assert all(runs(one) == [1] * 30 for one in first_actions(TASK, "uniform", 5, 10))


@pytest.mark.parametrize("how", ["uniform", "held", "sobol"])
def test_the_first_trials_run_on_the_real_system(how: How) -> None:
    generator = seeded(0)
    traces = RealSource(TASK.world())(first_policy(TASK, FirstSettings(how=how, hold=5), 3, generator), 3, generator)
    assert traces.u.shape == (3, 30, 1) and traces.zeta is None and not bool(traces.clipped.any())


def actions_of(task: Task, **settings: object) -> Tensor:
    generator = seeded(3)
    policy = first_policy(task, FirstSettings(**settings), 4, generator)  # type: ignore[arg-type]
    return torch.stack([policy(torch.zeros(4, 3, dtype=torch.float64), generator) for _ in range(task.horizon)], dim=1)


@pytest.mark.parametrize("how", ["uniform", "held", "sobol"])
def test_an_amplitude_and_a_ramp_keep_the_first_actions_near_rest(how: How) -> None:
    full = actions_of(TWO_MOTORS, how=how)
    half = actions_of(TWO_MOTORS, how=how, amplitude=0.5)
    if how != "uniform":  # which draws step by step unless it is scaled
        assert torch.allclose(half, 0.5 * full)  # rest is 0 for both motors, though the second cannot turn back
    assert float(half.abs().amax()) <= 2.5 and float(half[..., 1].amin()) >= 0
    slow = actions_of(TWO_MOTORS, how=how, amplitude=0.5, ramp=10)
    growth = (torch.arange(1, 31, dtype=torch.float64) / 10).clamp(max=1)
    assert torch.allclose(slow, growth[:, None] * half)
    lifted = dataclasses.replace(TASK, actions=(dataclasses.replace(TASK.actions[0], low=1.0, high=3.0),))
    gentle = actions_of(lifted, how=how, amplitude=0.1)
    assert float(gentle.amin()) >= 1.0 and float(gentle.amax()) <= 1.2  # rest is the bound nearest to 0


@pytest.mark.parametrize("wrong", [{"amplitude": 0.0}, {"amplitude": 1.1}, {"ramp": -1}, {"stop": -0.1}])
def test_impossible_care_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"first.{next(iter(wrong))}"):
        ModelFreeSettings(first=FirstSettings(**wrong))  # type: ignore[arg-type]


def test_a_controller_of_ones_own_is_a_policy() -> None:
    policy = Controller(lambda o: -2 * o[:, :1])
    assert policy(torch.tensor([[0.5, 1.0]], dtype=torch.float64), seeded(0)).tolist() == [[-1.0]]
    with pytest.raises(UserError, match="the controller returned a float"):
        Controller(lambda o: 1.0)(torch.zeros(1, 2), seeded(0))  # type: ignore[arg-type, return-value]
