"""Cells: their settings, their result files, and running them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from samba_rl.benchmark.cells import (
    Cell,
    Tail,
    curve_of,
    read_result,
    read_results,
    tail_of,
    write_result,
)
from samba_rl.benchmark.running import run_cell
from samba_rl.errors import UserError
from samba_rl.events import TrialReport
from samba_rl.learners import LEARNERS
from samba_rl.presets import make_settings
from samba_rl.runs import load_run, train
from samba_rl.runs.evaluation import evaluate
from samba_rl.runs.run import EVALUATION_SEED
from samba_rl.types import Policy
from tests.benchmark.results import PENDULUM, a_result
from tests.threads import one_thread


@pytest.fixture(autouse=True, scope="module")
def single() -> Iterator[None]:
    """Use one thread, as a cell's process does; with more, sums are taken in another order."""
    with one_thread():
        yield


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("scale", [0.001, 0.1, 0.5, 2.0])
def test_a_budget_is_scaled_and_stays_possible(learner: str, scale: float) -> None:
    usual = make_settings(PENDULUM, learner)
    settings = Cell(PENDULUM, learner, 0, budget_scale=scale).settings()
    assert settings.real_samples == max(round(scale * usual.real_samples), 60)
    assert 0 < settings.first.samples <= min(usual.first.samples, settings.real_samples // 2)
    assert Cell(PENDULUM, learner, 0).settings() == usual


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_result_reads_back_as_it_was_written(tmp_path: Path) -> None:
    result = replace(a_result(Cell(PENDULUM, "samba", 100, limit=0.25)), tail=(Tail(0, float("nan"), 1.0, 2.0),))
    path = write_result(tmp_path / "results", result)
    again = read_result(path)
    assert replace(again, tail=()) == replace(result, tail=()) and again.tail[0].predicted != again.tail[0].predicted
    assert read_results(tmp_path / "results")[0].cell == result.cell
    assert path.name == "safe-pendulum-samba-default-xi0.25-100.json"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 9}', '{"format": 1}', '{"format": 1, "cell": 3}'])
def test_the_error_about_a_damaged_result_names_the_way_out(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"x\.json is damaged .*; remove it, and the cell will be run again"):
        read_result(path)


def test_a_missing_results_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder; give the results folder"):
        read_results(tmp_path / "nowhere")


# Running --------------------------------------------------------------------------------------------------------------


def test_the_result_of_a_cell_is_that_of_its_run(tmp_path: Path) -> None:
    cell = Cell(PENDULUM, "sppilco", 3, "smoke")
    result = run_cell(cell, tmp_path / "run", steps=200)
    run = load_run(tmp_path / "run")
    assert (run.learner, run.preset, run.seed, run.settings) == ("sppilco", "smoke", 3, cell.settings())
    assert result.with_noise == run.evaluate(200, EVALUATION_SEED + 3)
    assert result.without_noise == run.evaluate(200, EVALUATION_SEED + 3, deterministic=True)
    assert result.learning_TC == run.summary["learning_TC"] and result.real_samples == run.summary["real_samples"]
    assert [point.real_samples for point in result.curve] == [trial.real_samples for trial in run.trials]
    # The second time the run is loaded, not repeated.
    again = run_cell(cell, tmp_path / "run", steps=200)
    assert (again.curve, again.tail) == (result.curve, result.tail)
    assert curve_of([]) == ()


def test_the_policies_of_a_cell_are_audited_outside_learning(tmp_path: Path) -> None:
    cell = Cell(PENDULUM, "sppilco", 3, "smoke")
    result = run_cell(cell, tmp_path / "run", steps=200)
    run, policies = load_run(tmp_path / "run"), dict[int, Policy]()
    same = train(PENDULUM, "sppilco", preset="smoke", seed=3, watch=policies.__setitem__)
    assert all(torch.equal(a, b) for a, b in zip(run.policy.parameters(), same.policy.parameters(), strict=True))
    policies[run.trials[-1].iteration] = same.policy
    assert [tail.iteration for tail in result.tail] == [trial.iteration for trial in run.trials] == list(policies)
    for tail, policy in zip(result.tail, policies.values(), strict=True):
        last = tail is result.tail[-1]
        # The last policy's audit is the run's evaluation; the others have fresh starts.
        seed = EVALUATION_SEED + 3 if last else 2_030_000 + tail.iteration
        found = evaluate(run.task, policy, steps=200, seed=seed, constraints=run.constraints)
        # The last trial confirmed the policy that was improved before it.
        ends = [e for e in run.improvements if e.iteration <= tail.iteration]
        assert tail == Tail(
            iteration=tail.iteration,
            predicted=ends[-1].values[0],
            target=ends[-1].targets[0],
            realised=found.constraints[0].value,
            return_mean=found.return_mean,
            real_samples=run.trials[tail.iteration].real_samples,
        )
    assert tail_of(run.improvements, {}) == ()
    # Without a model there is no prediction.
    assert run_cell(Cell(PENDULUM, "sppo", 3, "smoke"), tmp_path / "sppo", steps=200).tail == ()


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    trials = [
        TrialReport(i, 30 * i, 1, 0.0, 0.0, 0, 0.0, 0, 0.0, 0.0, 0.0, (), (), 0.0) for i in range(1234)
    ]  # fmt: skip
    points = curve_of(trials)
    assert len(points) <= 101 and points[0].real_samples == 0 and points[-1].real_samples == 30 * 1233
