"""Whole runs of the learners without a model, with every kind of limit."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samba_rl.agents.settings import ModelFreeSettings
from samba_rl.cli import main
from samba_rl.cli.display import MISSED
from samba_rl.errors import Stopped, UserError
from samba_rl.events import Event, ImprovementReport, TrialReport
from samba_rl.improve.constraints import KINDS, Expectation
from samba_rl.improve.multipliers import Multiplier
from samba_rl.learners import LEARNERS, Learner, RealTrials
from samba_rl.runs import Run, load_run, resume, train
from tests.line import Line, quick_settings
from tests.runs.systems import same_bits

LIMITED = [name for name, row in LEARNERS.items() if isinstance(row.source, RealTrials) and row.constraint is not None]
IN_WORDS = {
    "expectation": "mean of the edge cost of a trajectory",
    "cvar": "CVaR 0.75 of the edge cost of a trajectory",
    "chance": "share of trajectories that are unsafe (edge)",
}
EDGE = Line(goal=1.0)
"""The goal lies where it is unsafe."""
LIMIT, TRIALS, EPISODES = 0.2, 4, 40


def row_of(learner: str, kind: str | None) -> Learner:
    """The learner with another kind of limit, or with none."""
    return replace(LEARNERS[learner], constraint=None if kind is None else KINDS[kind])


def short(learner: str, kind: str, **how: Any) -> Run:
    """A run of two random episodes, and of four trials that it learns from."""
    constraint, row = {"limit": LIMIT, "alpha": 0.75}, row_of(learner, kind)
    samples = 2 * EDGE.horizon + TRIALS * EPISODES * EDGE.horizon
    return train(EDGE, row, settings=quick_settings(row), seed=1, real_samples=samples, constraint=constraint, **how)


def by_hand(kind: str, table: Path) -> list[float]:
    """The constrained value in each trial but the random one, computed from real.csv."""
    costs: dict[int, float] = defaultdict(float)
    unsafe: dict[int, bool] = defaultdict(bool)
    with open(table, newline="") as file:
        for row in csv.DictReader(file):
            costs[int(row["episode"])] += float(row["safety:edge"])
            unsafe[int(row["episode"])] |= row["violation:edge"] == "True"
    values = []
    for trial in range(TRIALS):
        episodes = range(2 + trial * EPISODES, 2 + (trial + 1) * EPISODES)
        each = [float(unsafe[i]) if kind == "chance" else costs[i] for i in episodes]
        # Of the worst quarter, which is a whole number of episodes.
        values.append(statistics.fmean(sorted(each)[-EPISODES // 4 :] if kind == "cvar" else each))
    return values


def stripped(reports: tuple[ImprovementReport, ...]) -> list[str]:
    return [str(report).split("seconds")[0] for report in reports]


def test_there_are_learners_to_test() -> None:
    assert LIMITED == ["sppo", "strpo", "cpo"]
    assert all(LEARNERS[name].constraint is Expectation for name in LIMITED)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learner", LIMITED)
def test_every_kind_of_limit_can_be_put_in_place_of_the_usual_one(learner: str, kind: str, tmp_path: Path) -> None:
    run = short(learner, kind, out=tmp_path / "run")
    # What was measured in trial k stands in the report of the update after it; of the random trial there is none.
    assert [report.iteration for report in run.improvements] == [1, 2, 3, 4]
    values = [value for report in run.improvements for value in report.values]
    assert values == pytest.approx(by_hand(kind, tmp_path / "run" / "real.csv"))
    assert max(values) > 0 and len(set(values)) > 2
    assert {report.targets for report in run.improvements} == {(LIMIT,)}
    (told,) = run.summary["constraints"]
    assert (told["constraint"], told["limit"], told["target"]) == (IN_WORDS[kind], LIMIT, LIMIT)
    (evaluated,) = run.evaluate(steps=100, seed=0).constraints
    assert evaluated.words == IN_WORDS[kind] and evaluated.limit == LIMIT
    again = load_run(tmp_path / "run", EDGE)
    assert again.settings == run.settings and again.row == run.row == row_of(learner, kind)
    assert again.improvements == run.improvements and again.constraints == run.constraints
    assert again.evaluate(steps=100, seed=0) == run.evaluate(steps=100, seed=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learner", ["sppo", "strpo"])
def test_the_multiplier_follows_that_limit(learner: str, kind: str) -> None:
    run = short(learner, kind)
    assert isinstance(run.settings, ModelFreeSettings)
    multiplier, due = Multiplier(run.settings.multiplier, LIMIT), []
    for report in run.improvements:
        multiplier.update(*report.values)
        due.append(multiplier.value)
    assert len(set(due)) > 1
    assert [report.multipliers[0] for report in run.improvements] == pytest.approx(due)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learner", LIMITED)
def test_such_a_run_goes_on_exactly(learner: str, kind: str, tmp_path: Path) -> None:
    whole = short(learner, kind)
    # Once where a trial is to be learned from, once where it has been.
    for number, last in enumerate((TrialReport, ImprovementReport)):
        heard: list[Event] = []

        def half(heard: list[Event] = heard, last: type[Event] = last) -> bool:
            return sum(isinstance(event, TrialReport) for event in heard) == 3 and isinstance(heard[-1], last)

        with pytest.raises(Stopped):
            short(learner, kind, out=tmp_path / str(number), log=heard.append, stop=half)
        assert 0 < sum(isinstance(event, ImprovementReport) for event in heard) < TRIALS
        run = resume(tmp_path / str(number), EDGE)
        mine, due = run.policy.state_dict(), whole.policy.state_dict()
        assert all(same_bits(mine[name], due[name]) for name in due)
        assert stripped(run.improvements) == stripped(whole.improvements)
        assert by_hand(kind, tmp_path / str(number) / "real.csv") == pytest.approx(
            [report.values[0] for report in whole.improvements]
        )


@pytest.mark.parametrize("learner", LIMITED)
def test_a_limit_on_cvar_lowers_it(learner: str) -> None:
    def learned(kind: str | None, limit: float) -> Run:
        row = row_of(learner, kind)
        limits = replace(quick_settings(row).constraint, alpha=0.75, limit=limit)  # type: ignore[attr-defined]
        return train(EDGE, row, settings=replace(quick_settings(row), constraint=limits), seed=1)  # type: ignore[call-arg]

    # CPO cannot be without a limit, but with one that nothing reaches.
    free = learned("cvar" if learner == "cpo" else None, 1000.0)
    careful = learned("cvar", 1.0)
    before, after = free.evaluate(seed=0), careful.evaluate(seed=0)
    assert before.alpha == after.alpha == 0.75
    # Of ten steps at most; the goal is within reach of every start in four.
    assert before.cvar > 6 and after.cvar < 2
    # It still comes as close as it may: an episode at the start costs over 60, one at the edge of the hazard about 9.
    assert after.return_mean > -15 and before.return_mean > after.return_mean


def test_cpo_needs_a_limit() -> None:
    with pytest.raises(UserError, match="'projection' keeps to a limit; give a constraint"):
        row_of("cpo", None)


def test_the_command_line_takes_another_kind_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    asked = ["--learner", "cpo", "--constraint.kind", "cvar", "--preset", "smoke", "--out", str(out)]
    assert main(["train", "safe-pendulum", *asked]) in (0, MISSED)
    text = capsys.readouterr().out
    assert "limit on CVaR 0.9 of the hazard cost" in text and "CVaR" in text and "mean of the hazard" not in text
    run = load_run(out)
    assert run.learner == "cpo" and run.row == row_of("cpo", "cvar")
    assert [constraint.in_words() for constraint in run.constraints] == ["CVaR 0.9 of the hazard cost of a trajectory"]
    # Of two episodes the worst tenth is the worse one.
    costs = run.data.transitions.safety[:, 0]
    episode = run.data.transitions.episode
    for report in run.improvements:
        worse = max(float(costs[episode == 2 * report.iteration + i].sum()) for i in (0, 1))
        assert list(report.values) == pytest.approx([worse])
    assert (out / "safety.png").exists() and main(["eval", str(out), "--steps", "60"]) == 0
