"""Advice on a point on a line: a goal inside the hazard, so that return and safety are at odds."""

from __future__ import annotations

import pytest

from samba_rl import UniformPolicy, UserError, rollout
from samba_rl.agents.advice import Advice
from samba_rl.agents.advising import AdviceSettings, Adviser, _thinned
from samba_rl.agents.settings import ModelBasedSettings
from samba_rl.improve.constraints import Chance, Constraint, CVaR
from samba_rl.types import Transitions
from tests.line import Line, quick_settings
from tests.threads import one_thread
from tests.traces import seeded

TASK = Line(goal=1.0)
QUICK = AdviceSettings(iterations=5, limits=1, trajectories=50, judged=100)


def data(episodes: int = 6) -> Transitions:
    traces = rollout(TASK.world(), UniformPolicy((-0.4,), (1.0,)), episodes, generator=seeded(0))
    return traces.transitions()


def numbers() -> ModelBasedSettings:
    settings = quick_settings()
    assert isinstance(settings, ModelBasedSettings)
    return settings


def advise(
    constraint: Constraint, settings: AdviceSettings = QUICK, *, asked: tuple[float, ...] = (), episodes: int = 6
) -> tuple[Advice, list[float]]:
    told: list[float] = []
    adviser = Adviser(
        TASK,
        data(episodes),
        numbers(),
        (constraint,),
        settings,
        tell=lambda what, share: told.append(share),
    )
    with one_thread():
        return adviser.advise(asked=asked), told


def test_it_finds_the_trade_off() -> None:
    constraint = CVaR(name=TASK.constraints[0], limit=1.0)
    found, told = advise(constraint)
    by_name = {one.name: one for one in found.points}
    free = by_name["without a limit"]
    assert found.frontier[0].bound < free.bound and found.frontier[0].mean_return < free.mean_return
    assert found.least == min(one.value for one in found.points)
    assert all(one.bound >= one.value >= 0 and one.return_error > 0 for one in found.points)
    # CVaR grows with its level, and each policy's own level is among those that are compared.
    assert all(list(one.tails) == sorted(one.tails, reverse=True) for one in found.points)
    assert all(one.tails[1] == pytest.approx(one.value) for one in found.points)
    assert told == sorted(told) and told[0] == 0 and 0.8 < told[-1] <= 1


def test_the_support_is_measured_on_episodes_that_are_left_out_and_repeats_itself() -> None:
    few = AdviceSettings(iterations=1, limits=0, trajectories=20, judged=20)
    constraint = Chance(name=TASK.constraints[0], limit=0.1)
    found, _ = advise(constraint, few, asked=(0.2,), episodes=6)
    assert found.support.samples == len(data()) and found.support.episodes == 6
    assert found.support.explained == pytest.approx((1.0,), abs=0.01)  # its motion is linear
    assert found.alpha is None and found.points[0].tails == () and found.answers[0].limit == 0.2
    assert advise(constraint, few, asked=(0.2,), episodes=6)[0] == found
    alone, _ = advise(constraint, few, episodes=3)
    assert alone.support.explained == ()


def test_a_policy_that_is_known_is_judged_too() -> None:
    few = AdviceSettings(iterations=1, limits=0, trajectories=20, judged=20)
    constraint = CVaR(name=TASK.constraints[0], limit=1.0)
    adviser = Adviser(TASK, data(), numbers(), (constraint,), few)
    with one_thread():
        policy = adviser._fresh()
        assert adviser.advise(policy).points[0].name == "the policy of the run"


def test_unsound_settings_are_refused() -> None:
    with pytest.raises(UserError, match="judged = 5; give at least 20"):
        AdviceSettings(judged=5)


def test_limits_are_spaced_in_equal_ratios_and_those_asked_take_their_place() -> None:
    constraint = CVaR(name=TASK.constraints[0], limit=1.0)
    adviser = Adviser(TASK, data(), numbers(), (constraint,), AdviceSettings(limits=3))
    assert adviser._limits(1, 16, ()) == pytest.approx([2, 4, 8])
    assert adviser._limits(1, 27, (5.0, 30.0)) == pytest.approx([3, 5, 9])
    assert adviser._limits(0, 100, ()) == pytest.approx([2 * 50**0.25, 2 * 50**0.5, 2 * 50**0.75])
    assert adviser._limits(5, 5, ()) == []


def test_of_many_data_evenly_spread_episodes_are_used() -> None:
    many = data(400)
    few = _thinned(many)
    assert 1400 <= len(few) <= 1500 and len(many) == 4000
    episodes = sorted(set(few.episode.tolist()))
    assert episodes[0] == 0 and episodes[-1] == 399 and len(episodes) == 150
    assert _thinned(data(6)).x.shape == data(6).x.shape
