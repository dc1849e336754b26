"""Outliers: what is flagged, what is not, and what becomes of the steps around a bad reading."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from samba_rl.agents.agent import schema_of
from samba_rl.agents.outliers import OutlierTest, without
from samba_rl.data import DataSet
from samba_rl.data.journal import Journal
from samba_rl.errors import Stopped
from samba_rl.events import TrialReport
from samba_rl.improve.policies import GaussianPolicy, PolicySettings, UniformPolicy
from samba_rl.models.gp import GPDynamics
from samba_rl.runs import Run, load_run, resume, train
from samba_rl.runs.listing import overview
from samba_rl.tasks import make_task
from samba_rl.tasks.rollout import rollout
from samba_rl.tasks.task import Task
from samba_rl.types import Transitions
from tests.agents.glitches import glitchy, steps_of
from tests.line import Line
from tests.runs.interrupted import same
from tests.threads import one_thread

WILD = {4: 1e60, 24: -1e60, 26: 1e37}
"""Wild readings in the trials 0 and 2 of a smoke run, by step."""


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    with one_thread():
        yield


def fresh(task: Task) -> OutlierTest:
    return OutlierTest(task, schema_of(task))


def walk(n: int, seed: int = 0) -> list[float]:
    """Readings of a random walk on the line."""
    steps = torch.rand(n, generator=Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    return [-2.0, *(-2.0 + steps.cumsum(0)).tolist()]


def flagged(test: OutlierTest, steps: Transitions, model: GPDynamics | None = None) -> list[int]:
    return test.judge(steps, model).aside.nonzero()[:, 0].tolist()


# What is flagged ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1e3, -1e4, 1e12, 1e60, -1e150])
@pytest.mark.parametrize("first", [True, False])
def test_one_bad_reading_spoils_the_step_into_it_and_the_one_out_of_it(value: float, *, first: bool) -> None:
    test = fresh(Line())
    if not first:
        assert flagged(test, steps_of(walk(30, 1), walk(30, 2))) == []
    bad = walk(30)
    bad[12] = value
    judgement = test.judge(steps_of(walk(30, 3), bad), None)
    assert judgement.aside.nonzero()[:, 0].tolist() == [30 + 11, 30 + 12]
    (outlier,) = judgement.outliers
    assert (outlier.name, outlier.value, outlier.episode, outlier.step) == ("x", value, 1, 11)
    assert outlier.low < -2 and outlier.high > -2 and not outlier.low <= value <= outlier.high


def test_a_bad_start_spoils_the_first_step_alone_and_a_bad_end_the_last() -> None:
    start, end = walk(30), walk(30, 1)
    start[0], end[-1] = 1e9, 1e9
    judgement = fresh(Line()).judge(steps_of(start, end), None)
    assert judgement.aside.nonzero()[:, 0].tolist() == [0, 59]
    assert [one.step for one in judgement.outliers] == [-1, 29]


def test_a_sensor_that_is_stuck_far_away_is_not_believed_however_long() -> None:
    test = fresh(Line())
    flagged(test, steps_of(walk(30, 1)))
    stuck = walk(30)
    stuck[10:] = [1e6] * 21
    assert flagged(test, steps_of(stuck)) == list(range(9, 30))


def test_a_measured_cost_that_is_an_outlier_spoils_its_step_alone() -> None:
    steps = steps_of(walk(30))
    steps.cost[7] = 1e30
    judgement = fresh(Line()).judge(steps, None)
    assert judgement.aside.nonzero()[:, 0].tolist() == [7] and judgement.outliers[0].name == "cost"


def line_model(seed: int = 0) -> tuple[OutlierTest, GPDynamics]:
    test, model, known = fresh(Line()), GPDynamics(Line()), steps_of(walk(30, seed + 5), walk(30, seed + 6))
    assert flagged(test, known) == []
    model.fit(known)
    return test, model


def test_the_model_finds_a_reading_inside_the_range_that_does_not_fit() -> None:
    test, model = line_model()
    steps = steps_of(walk(20))
    judged = dict(vars(steps))
    x, x_next = steps.x.clone(), steps.x_next.clone()
    x_next[9], x[10] = x_next[9] + 4, x[10] + 4
    bad = Transitions(**{**judged, "x": x, "x_next": x_next})
    assert flagged(fresh(Line()), bad) == []  # by its range alone it could be true
    judgement = test.judge(bad, model)
    assert judgement.aside.nonzero()[:, 0].tolist() == [9, 10]
    (outlier,) = judgement.outliers
    assert outlier.low < float(steps.x_next[9]) < outlier.high and outlier.step == 9


def test_a_jump_after_which_the_system_goes_on_from_there_is_believed() -> None:
    """Such as an angle that wraps, or a push: the model is surprised once, not twice."""
    test, model = line_model()
    steps = steps_of(walk(20))
    x, x_next = steps.x.clone(), steps.x_next.clone()
    x_next[9:], x[10:] = x_next[9:] + 4, x[10:] + 4
    assert flagged(test, Transitions(**{**vars(steps), "x": x, "x_next": x_next}), model) == []


# What is not ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "seeds"), [("safe-pendulum", 4), ("safe-cart-pole-double-pendulum", 1)])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_no_sound_step_of_the_systems_is_flagged(name: str, seeds: int, noise: float) -> None:
    """See benchmarks/outliers.py for more of them."""
    task = make_task(name)
    low, high = (bound.tolist() for bound in task.action_bounds())
    for seed in range(seeds):
        generator, test = Generator().manual_seed(seed), fresh(task)
        for trial in range(4):
            quiet = 0.05 if trial == 0 else 1.0  # little is seen in the first trial
            policy = UniformPolicy(tuple(quiet * v for v in low), tuple(quiet * v for v in high))
            steps = rollout(task.world(), policy, 1 + seed, generator=generator).transitions()
            readings = steps.x_next + noise * torch.randn(steps.x.shape, generator=generator).double()
            noisy = Transitions(**{**vars(steps), "x_next": readings})
            noisy.x[1:] = torch.where((steps.step[1:] > 0)[:, None], readings[:-1], steps.x[1:])
            assert flagged(test, noisy) == []


@pytest.mark.parametrize(
    "readings",
    [
        [1e-3 * 1.8**t for t in range(31)],  # it diverges
        [0.0] * 25 + [0.1 * t * t for t in range(8)],  # it rests, and then moves
        [1e-5 * (-1) ** t for t in range(20)] + [0.02 * t for t in range(15)],  # it rests with noise
        [5.0] * 31,  # it never moves
        [0.0, 0.0, 0.0, 300.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],  # a force when it touches something
    ],
)
def test_systems_that_do_something_new_are_believed(readings: list[float]) -> None:
    assert flagged(fresh(Line()), steps_of(readings)) == []


def test_a_first_trial_that_is_all_nonsense_is_kept() -> None:
    """Rather than nothing: there is nothing to compare it with."""
    assert flagged(fresh(Line()), steps_of([0.0, 1e200])) == []


# What becomes of them -------------------------------------------------------------------------------------------------


def test_shown_traces_lie_between_the_neighbours_and_cost_no_more_than_others() -> None:
    task, test = glitchy({4: 1e60}), fresh(Line())
    traces = rollout(task.world(), UniformPolicy((-1.0,), (1.0,)), 3, generator=Generator().manual_seed(0))
    judgement = test.judge(traces.transitions(), None)
    shown = test.shown(traces, judgement)
    assert float(traces.x[0, 5, 0]) == 1e60
    assert float(shown.x[0, 5, 0]) == pytest.approx(float(traces.x[0, 4, 0] + traces.x[0, 6, 0]) / 2)
    assert torch.equal(shown.observation[0, 5], shown.x[0, 5])
    rest = [cost for t, cost in enumerate(traces.cost[0].tolist()) if t not in (4, 5)]
    assert float(shown.cost[0, 4]) == max([*rest, *traces.cost[1:].flatten().tolist()])
    same_steps = torch.ones(3, 10, dtype=torch.bool)
    same_steps[0, 4:6] = False
    assert torch.equal(shown.cost[same_steps], traces.cost[same_steps])
    assert torch.equal(shown.x[1:], traces.x[1:]) and float(shown.safety.max()) <= 1


def sound(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all()) and float(tensor.abs().max()) < 1e6


@pytest.mark.parametrize("learner", ["samba", "ppo", "planet"])
def test_a_reading_of_1e60_neither_ends_a_run_nor_spoils_it(learner: str, tmp_path: Path) -> None:
    run = train(glitchy(WILD), learner, preset="smoke", seed=1, out=tmp_path / "run")
    assert run.summary["set_aside"] == 6 and run.trials[0].set_aside == 2 and run.trials[-1].set_aside == 6
    assert overview(tmp_path / "run").set_aside == 6
    told = [notice.text for notice in run.notices if "kept in the data, not learned from" in notice.text]
    assert len(told) == 3 and told[0].startswith("trial 0, episode 0: x is 1e+60 at step 4, expected -")
    assert abs(run.summary["learning_TC"]) < 1e3 and all(abs(trial.return_mean) < 1e3 for trial in run.trials)
    assert all(sound(value.double()) for value in run.policy.state_dict().values() if value.numel())
    # Nothing is lost: the journal and the data have every reading.
    written = DataSet.from_csv(tmp_path / "run" / "real.csv").transitions
    first = next(Journal.read(tmp_path / "run" / "real.journal").trials())
    for x_next in (run.data.transitions.x_next, written.x_next):
        assert sorted(x_next[x_next.abs() > 1e30].tolist()) == [-1e60, 1e37, 1e60]
    assert float(first.x.max()) == 1e60
    again = load_run(tmp_path / "run", Line())
    if learner == "samba":
        assert len(run.model) == len(run.data) - 6
        assert again.model._fingerprint() == run.model._fingerprint()


@pytest.mark.parametrize("learner", ["samba", "ppo", "planet"])
def test_a_trial_with_a_dead_sensor_teaches_nothing(learner: str) -> None:
    run = train(glitchy({-3: 1e9}), learner, preset="smoke", seed=1)
    lost = run.trials[2].real_samples - run.trials[1].real_samples
    assert run.summary["set_aside"] == run.trials[2].set_aside == lost > 0
    assert abs(run.trials[2].return_mean) < 1e3 and math.isnan(run.trials[2].surprise)
    assert all(sound(value.double()) for value in run.policy.state_dict().values() if value.numel())


@pytest.mark.parametrize("learner", ["samba", "ppo", "planet"])
def test_a_run_with_outliers_is_resumed_to_the_same_bits(learner: str, tmp_path: Path) -> None:
    whole = train(glitchy(WILD), learner, preset="smoke", seed=1)
    for name, every in (("checkpoints", 0.0), ("journal", 60.0)):
        heard: list[Any] = []

        def enough(heard: list[Any] = heard) -> bool:
            return sum(isinstance(event, TrialReport) for event in heard) >= 4

        with pytest.raises(Stopped):
            train(
                glitchy(WILD), learner, preset="smoke", seed=1, out=tmp_path / name, log=heard.append, stop=enough,
                checkpoint_every=every,
            )  # fmt: skip
        if every:
            for checkpoint in (tmp_path / name / "checkpoints").iterdir():
                (checkpoint / "manifest.json").unlink()
        assert_same_run(resume(tmp_path / name, Line()), whole)


def assert_same_run(run: Run, whole: Run) -> None:
    assert same(run, whole) and run.summary["set_aside"] == whole.summary["set_aside"] == 6


def test_outliers_are_learned_from_if_that_is_wanted() -> None:
    run = train(glitchy({4: 1e3}), "ppo", preset="smoke", seed=1, real={"outliers": "keep"})
    assert run.summary["set_aside"] == 0 and run.trials[0].return_mean < -1e4
    assert not any("not learned from" in notice.text for notice in run.notices)


def test_earlier_data_are_judged_too(tmp_path: Path) -> None:
    bad = walk(30)
    bad[12] = 1e9
    earlier = DataSet.empty(schema_of(Line())).append(steps_of(walk(30, 3), bad))
    run = train(Line(), preset="smoke", seed=1, data=earlier)
    assert run.summary["set_aside"] == 2 and len(run.model) == len(run.data) - 2
    assert run.notices[0].text.startswith("earlier data, episode 1: x is 1e+09 at step 11, expected")


def test_many_outliers_are_counted_in_one_line() -> None:
    run = train(glitchy(dict.fromkeys(range(1, 10, 2), 1e60)), preset="smoke", seed=1)
    told = [notice.text for notice in run.notices if "not learned from" in notice.text]
    assert len(told) == 4 and told[3].startswith("trial 0: 2 more outliers; 9 steps are set aside")


def test_a_policy_acts_on_any_reading() -> None:
    generator = Generator().manual_seed(0)
    policy = GaussianPolicy((-1.0,), (1.0,), torch.zeros(2), torch.ones(2), PolicySettings(), generator)
    for value in (1e7, 1e60, 1e300):
        observation = torch.tensor([[value, -value], [value, 0.5]], dtype=torch.float64)
        assert bool(policy(observation, generator).isfinite().all())
        assert bool(policy.mean_action(observation).isfinite().all())
    usual = torch.tensor([[0.3, -2.0]], dtype=torch.float64)
    assert torch.equal(policy.normalised(usual), usual.float())


def test_without_leaves_out_rows_and_copies_nothing_if_there_are_none() -> None:
    steps = steps_of(walk(5))
    assert without(steps, torch.empty(0, dtype=torch.long)) is steps and without(steps, None) is steps
    assert without(steps, torch.tensor([1, 4, 9])).step.tolist() == [0, 2, 3]
