"""A policy on the real system, counted by hand."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from samba_rl.data.plain import from_plain, to_plain
from samba_rl.errors import UserError
from samba_rl.improve.constraints import Chance, CVaR, Expectation
from samba_rl.improve.policies import MeanPolicy, UniformPolicy
from samba_rl.runs.evaluation import Evaluation, evaluate, fresh_seed, real_episodes
from samba_rl.tasks.world import EquationsWorld, World
from tests.line import Line
from tests.traces import simple_policy

TASK = Line(horizon=4)
RANDOM = UniformPolicy((-1.0,), (1.0,))
# Three episodes from 0, 0.25 and 0.5, a quarter further at each of four steps; the safety cost rises from 0.5 on.
RETURNS = [-1.875, -3.375, -5.375]
SAFETY = [1.5, 2.5, 3.5]


def onward(observation: Tensor, generator: Generator) -> Tensor:
    return torch.full_like(observation, 0.25)


def in_turn(self: Line, n: int, generator: Generator | None = None, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Starts at 0, 0.25, 0.5 and 0.75."""
    return 0.25 * torch.arange(n, dtype=dtype)[:, None]


@pytest.fixture
def _in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "start", in_turn)


def worst(amounts: list[float], alpha: float) -> float:
    """CVaR as the mean of the worst share, with NumPy."""
    ordered, left = np.sort(np.array(amounts))[::-1], (1 - alpha) * len(amounts)
    weights = np.clip(left - np.arange(len(amounts)), 0, 1)
    return float((weights * ordered).sum() / left)


# Counts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_in_turn")
def test_a_tiny_evaluation_is_counted_by_hand() -> None:
    result = evaluate(TASK, onward, steps=12, alpha=0.5)
    assert (result.steps, result.episodes, result.TV, result.TC) == pytest.approx((12, 3, 1 + 2 + 3, 7.5))
    assert result.return_mean == pytest.approx(np.mean(RETURNS)) and result.return_std == pytest.approx(np.std(RETURNS))
    assert result.safety_quartiles == pytest.approx(np.percentile(SAFETY, [25, 50, 75]).tolist())
    assert result.safety_quartiles == pytest.approx((2.0, 2.5, 3.0))
    assert result.cvar == pytest.approx((3.5 + 0.5 * 2.5) / 1.5) == worst(SAFETY, 0.5) and result.alpha == 0.5
    assert result.limit is None and result.constraints == () and result.seed == 0 and not result.deterministic


@pytest.mark.usefixtures("_in_turn")
@pytest.mark.parametrize("alpha", [0.0, 0.3, 2 / 3, 0.9])
def test_cvar_is_of_the_share_that_was_asked_for(alpha: float) -> None:
    result = evaluate(TASK, onward, steps=12, alpha=alpha)
    assert result.cvar == pytest.approx(worst(SAFETY, alpha)) and result.alpha == alpha


@pytest.mark.usefixtures("_in_turn")
@pytest.mark.parametrize(("steps", "episodes"), [(1, 1), (4, 1), (5, 2), (9, 3), (12, 3), (13, 4)])
def test_whole_episodes_are_run_until_the_steps_are_done(steps: int, episodes: int) -> None:
    result = evaluate(TASK, onward, steps=steps)
    assert result.episodes == episodes and result.steps == 4 * episodes >= steps


@pytest.mark.parametrize("episodes", [1, 3, 7])
def test_so_many_episodes_are_run(episodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samba_rl.runs.evaluation.BATCH", 3)
    result = evaluate(TASK, RANDOM, episodes=episodes)
    assert (result.episodes, result.steps) == (episodes, 4 * episodes)
    with pytest.raises(UserError, match="cannot evaluate 5 steps and 3 episodes; give one of the two"):
        evaluate(TASK, RANDOM, steps=5, episodes=3)


def test_a_rig_runs_one_episode_at_a_time() -> None:
    rig = dataclasses.replace(TASK, parallel=False)
    with real_episodes(rig, onward, steps=9, seed=0) as batches:
        assert [len(traces.cost) for traces in batches] == [1, 1, 1]


@pytest.mark.usefixtures("_in_turn")
def test_episodes_that_end_early_are_made_up_for_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "done", lambda self, x, recent: x[:, 0] >= 1)
    result = evaluate(TASK, onward, steps=10)
    # 4, 3 and 2 steps, which is one too few; a fourth from 0 follows.
    assert (result.steps, result.episodes) == (4 + 3 + 2 + 4, 4)
    assert (result.episodes, result.TV, result.TC) == pytest.approx((4, 4, 4 * 1.5))  # each ends as it becomes unsafe
    assert result.return_mean == pytest.approx(-(1.875 + 1.8125 + 1.5625 + 1.875) / 4)


@pytest.mark.usefixtures("_in_turn")
def test_several_safety_costs_are_added_up_and_a_step_is_unsafe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Line.safety

    def two(self: Line, x: Tensor, u: Tensor | None = None) -> Tensor:
        return torch.cat([one(self, x), one(self, x), 0.1 * torch.ones_like(x)], dim=-1)

    monkeypatch.setattr(Line, "safety", two)
    task = dataclasses.replace(TASK, constraints=("edge", "wall", "wear"))
    limits = tuple(Expectation(name=name, limit=1.0, column=i) for i, name in enumerate(task.constraints))
    result = evaluate(task, onward, steps=12, alpha=0.0, constraints=limits)
    assert (result.TV, result.TC, result.cvar) == pytest.approx((6, 2 * 7.5 + 12 * 0.1, 2 * 2.5 + 0.4))
    assert [one.value for one in result.constraints] == pytest.approx([2.5, 2.5, 0.4])


# Constraints ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_in_turn")
def test_each_constraint_has_its_value_and_its_limit() -> None:
    constraints = (
        CVaR(name="edge", limit=0.2, alpha=0.5, per_step=True),
        Chance(name="edge", limit=0.1),
        Chance(name="edge", limit=0.1, per_step=True),
        Expectation(name="edge", limit=3.0),
    )
    result = evaluate(TASK, onward, steps=12, constraints=constraints)
    found = result.constraints
    assert [one.kind for one in found] == ["CVaR 0.5", "share", "share", "mean"]
    assert [one.words for one in found] == [constraint.in_words() for constraint in constraints]
    assert [one.value for one in found] == pytest.approx([worst(SAFETY, 0.5) / 4, 1.0, 0.5, 2.5])
    assert [one.limit for one in found] == [0.2, 0.1, 0.1, 3.0]
    assert [one.kept for one in found] == [False, False, False, True]


@pytest.mark.usefixtures("_in_turn")
@pytest.mark.parametrize("steps", [4, 8, 12, 16])
def test_a_constraints_value_is_that_of_all_episodes_together(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a mean over the batches in which they were run."""
    monkeypatch.setattr(Line, "done", lambda self, x, recent: x[:, 0] >= 1)
    constraint = CVaR(name="edge", limit=0.2, alpha=0.6)
    result = evaluate(TASK, onward, steps=steps, alpha=0.6, constraints=(constraint,))
    assert result.constraints[0].value == pytest.approx(result.cvar)


@pytest.mark.parametrize(("per_step", "limit"), [(False, 0.2), (True, 0.8)])
def test_the_limit_is_that_of_an_episode(per_step: bool, limit: float) -> None:
    first, second = CVaR(name="edge", limit=0.2, per_step=per_step), Expectation(name="edge", limit=9.0)
    assert evaluate(TASK, onward, steps=1, constraints=(first, second)).limit == pytest.approx(limit)


# Standard errors ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_in_turn")
def test_standard_errors_by_hand() -> None:
    constraints = (CVaR(name="edge", limit=0.2, alpha=0.5), Expectation(name="edge", limit=1.0, per_step=True))
    result = evaluate(TASK, onward, steps=12, alpha=0.5, constraints=constraints)
    errors = result.errors
    assert errors is not None
    assert errors.return_mean == pytest.approx(np.std(RETURNS, ddof=1) / math.sqrt(3))
    # All episodes have four steps, so the errors of the totals are three times those of the means.
    assert errors.safety_mean == pytest.approx(1 / math.sqrt(3))
    assert errors.TC == pytest.approx(3 / math.sqrt(3)) == errors.TV
    # ν = 2.5, so the contributions are 2.5, 2.5 and 2.5 + 1 / (1 - 0.5) = 4.5.
    tail = np.std([2.5, 2.5, 4.5], ddof=1) / math.sqrt(3)
    assert errors.cvar == pytest.approx(tail) == errors.constraints[0]
    assert errors.constraints[1] == pytest.approx(errors.safety_mean / 4)
    # At α = 0.9 the largest of three is ν, and all contributions are equal.
    assert (result.cvar90, errors.cvar90) == pytest.approx((3.5, 0.0))
    # One error of the rank of the median is √(1/12) = 0.289: half the distance of the quantiles 0.211 and 0.789.
    assert errors.safety_quartiles[1] == pytest.approx(2 * math.sqrt(1 / 12))


@pytest.mark.parametrize("horizon", [4, 10])
def test_standard_errors_are_the_spread_of_repeated_evaluations(horizon: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "done", lambda self, x, recent: x[:, 0] < -3.5)
    task = dataclasses.replace(TASK, horizon=horizon)
    pushed = UniformPolicy((-0.5,), (1.0,))
    limits = (CVaR(name="edge", limit=1.0, alpha=0.8), Chance(name="edge", limit=0.1))
    found = [
        evaluate(task, pushed, episodes=300, seed=seed, alpha=0.75, constraints=limits) for seed in range(150)
    ]  # fmt: skip
    figures: dict[str, Callable[[Evaluation], Any]] = {
        "return_mean": lambda e: e.return_mean,
        "TV": lambda e: 3000 * e.TV / e.steps,
        "TC": lambda e: 3000 * e.TC / e.steps,
        "safety_mean": lambda e: e.safety_mean,
        "median": lambda e: e.safety_quartiles[1],
        "cvar": lambda e: e.cvar,
        "cvar90": lambda e: e.cvar90,
        "first": lambda e: e.constraints[0].value,
        "second": lambda e: e.constraints[1].value,
    }
    for name, figure in figures.items():
        spread = np.std([figure(e) for e in found], ddof=1)
        each = []
        for e in found:
            assert e.errors is not None
            more = {"median": e.errors.safety_quartiles[1], "first": e.errors.constraints[0]}
            more["second"] = e.errors.constraints[1]
            error = more[name] if name in more else getattr(e.errors, name)
            each.append(error * 3000 / e.steps if name in ("TV", "TC") else error)
        # The spread of 150 evaluations is itself uncertain by 6 %.
        assert np.mean(each) == pytest.approx(spread, rel=0.25, abs=1e-12), name


def test_a_single_episode_has_no_standard_error() -> None:
    assert evaluate(TASK, RANDOM, episodes=1).errors is None
    assert evaluate(TASK, RANDOM, episodes=2).errors is not None


def test_evaluations_of_earlier_versions_can_be_read() -> None:
    result = evaluate(TASK, RANDOM, steps=40, constraints=(Expectation(name="edge", limit=1.0),))
    plain = to_plain(result)
    assert from_plain(Evaluation, plain, "it") == result
    for field in ("cvar90", "errors"):
        del plain[field]
    assert from_plain(Evaluation, plain, "it") == dataclasses.replace(result, cvar90=None, errors=None)


# The rest -------------------------------------------------------------------------------------------------------------


def test_the_seed_decides() -> None:
    one, same, other = (evaluate(TASK, RANDOM, steps=40, seed=seed) for seed in (3, 3, 4))
    assert one == same and one.seed == 3
    assert other.seed == 4 and other.return_mean != one.return_mean


@pytest.mark.usefixtures("_in_turn")
def test_a_policy_without_noise_does_the_same_with_every_seed() -> None:
    noisy = simple_policy(hidden=(4,), mean_bound=1.1)
    results = [evaluate(TASK, MeanPolicy(noisy), steps=40, seed=seed, deterministic=True) for seed in (0, 1)]
    assert results[0] == dataclasses.replace(results[1], seed=0) and results[0].deterministic
    with_noise = [evaluate(TASK, noisy, steps=40, seed=seed) for seed in (0, 1)]
    assert with_noise[0].return_mean != with_noise[1].return_mean


def test_it_goes_into_a_line_of_json() -> None:
    result = evaluate(TASK, RANDOM, steps=20, constraints=(Expectation(name="edge", limit=1.0),))
    again = json.loads(json.dumps(result.to_json()))
    assert again.keys() == {field.name for field in dataclasses.fields(result)}
    assert again["TV"] == result.TV and again["constraints"] == [dataclasses.asdict(one) for one in result.constraints]
    assert all(math.isfinite(number) for number in again["safety_quartiles"])


def test_fresh_seeds_differ() -> None:
    seeds = {fresh_seed() for _ in range(20)}
    assert len(seeds) == 20 and all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize("steps", [0, -5])
def test_an_evaluation_of_nothing_is_refused(steps: int) -> None:
    with pytest.raises(UserError, match=f"cannot evaluate {steps} steps; at least 1 is needed"):
        evaluate(TASK, RANDOM, steps=steps)
    with pytest.raises(UserError, match=f"cannot evaluate {steps} episodes; at least 1 is needed"):
        evaluate(TASK, RANDOM, episodes=steps)


class Watched:
    """The line's world, which counts how often it is closed."""

    def __init__(self, task: Line) -> None:
        inner = EquationsWorld(task, task.draw)
        self.task, self.reset, self.step, self.render = task, inner.reset, inner.step, inner.render
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_world_is_closed_also_after_an_error(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds: list[Watched] = []
    asked: list[int | None] = []

    def world(self: Line, workers: int | None = None) -> World:
        asked.append(workers)
        worlds.append(Watched(self))
        return worlds[-1]

    def broken(observation: Tensor, generator: Generator) -> Tensor:
        raise RuntimeError("no current")

    monkeypatch.setattr(Line, "world", world)
    if fails:
        with pytest.raises(RuntimeError, match="no current"):
            evaluate(TASK, broken, steps=20, workers=3)
    else:
        evaluate(TASK, onward, steps=20, workers=3)
    assert [each.closed for each in worlds] == [1] and asked == [3]
