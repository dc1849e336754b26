"""The study of exploration: its cells, its measures by hand, and its tables."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from samba_rl.benchmark.cells import CellResult, Tail, read_results
from samba_rl.benchmark.exploration import PARTS, cells, correlation, paired, parts_of, report, samples_to
from samba_rl.benchmark.wide import held_episodes, rank_correlation, squared_errors, wide_error, wide_set
from samba_rl.errors import UserError
from samba_rl.learners import LEARNERS
from samba_rl.models.gp import GPDynamics
from samba_rl.models.zeta import ZETAS, LeaveOneOut
from samba_rl.tasks import make_task
from tests.benchmark.results import PENDULUM, a_result
from tests.line import Line

DOUBLE_PART, PENDULUM_PART = PARTS


def run_of(signal: str, seed: int, returns: tuple[float, ...], values: tuple[float, ...]) -> CellResult:
    """Return the result of a run whose policies had these returns and values of the constraint."""
    (cell,) = cells([DOUBLE_PART], [signal], [seed])
    points = enumerate(zip(returns, values, strict=True))
    tail = tuple(Tail(i, 0.5, 0.75, value, mean, 150 * (i + 1)) for i, (mean, value) in points)
    plain = a_result(cell)
    return replace(plain, tail=tail, with_noise=replace(plain.with_noise, return_mean=returns[-1]), model_error=0.25)


def test_the_cells_are_paired_and_differ_in_the_signal_alone() -> None:
    found = cells(PARTS, ("none", "information", "loo"), range(200, 202))
    assert len({cell.name for cell in found}) == len(found) == 12
    assert [cell.seed for cell in found] == [200] * 6 + [201] * 6
    first, second, third = found[:3]
    assert first.settings() == second.settings() == third.settings() and first.settings().real_samples == 600
    assert first.row() == LEARNERS["sppilco"] and second.row() == LEARNERS["samba"]
    assert third.row() == LEARNERS["samba"].with_zeta(LeaveOneOut())
    assert found[3].task == PENDULUM and found[3].settings().real_samples == 150


def test_samples_until_the_target_is_reached_within_the_limit() -> None:
    run = run_of("none", 0, (-29.0, -24.0, -24.6, -24.5), (0.0, 0.9, 0.1, 0.75))
    assert samples_to(run, -24.5, 0.75) == 600  # the second is good, but not within the limit
    assert samples_to(run, -24.5, 1.0) == 300
    assert samples_to(run, -20.0, 1.0) == math.inf


def test_paired_differences_by_hand() -> None:
    found = paired([3.0, 5.0, 1.0], [1.0, 1.0, 2.0])
    assert found.value == 2.0 and found.pairs == 3  # of 2, 4 and -1
    assert found.low == -1.0 and found.high == 4.0  # a draw of the same pair three times is among 2,000
    same = paired([1.0] * 5, [0.0] * 5)
    assert (same.value, same.low, same.high) == (1, 1, 1)


def test_the_table_has_a_row_for_each_signal_and_pairs_the_seeds() -> None:
    runs = [
        run_of("none", 0, (-29.0, -27.0), (0.0, 0.0)),
        run_of("none", 1, (-29.0, -28.0), (2.0, 0.0)),
        run_of("information", 0, (-28.0, -24.0), (0.0, 0.5)),
        run_of("information", 1, (-28.0, -26.0), (0.0, 2.0)),
        run_of("loo", 5, (-28.0, -26.0), (0.0, 0.0)),
    ]
    text = report(runs)
    assert "Safe Pendulum" not in text
    rows = {line.split(" | ")[0][2:]: line for line in text.splitlines() if line.startswith("| ")}
    assert list(rows) == ["ζ", ":--", "none", "loo", "information"]
    assert rows["none"].startswith("| none | 2 | 0 of 2 | -27.50 | – | 7.50 | 2 | 1 of 2 | 0 of 2 | 0.250 |")
    assert rows["information"].startswith("| information | 2 | 1 of 2, 300 samples | -25.00 | +2.50 [+2.00, +3.00] |")
    assert rows["loo"].startswith("| loo | 1 | 0 of 1 | -26.00 | – |")  # no pair


def test_unknown_systems_and_signals_are_refused() -> None:
    assert parts_of([]) == PARTS and parts_of([PENDULUM]) == (PENDULUM_PART,)
    with pytest.raises(UserError, match="has no system 'safe-fetch-reach'"):
        parts_of(["safe-fetch-reach"])
    with pytest.raises(UserError, match="no ζ is called 'informatoin'; did you mean 'information'"):
        cells(PARTS, ["informatoin"], [0])


# The wide set ---------------------------------------------------------------------------------------------------------


def test_the_wide_set_is_the_same_every_time_and_wider_than_trials() -> None:
    task = make_task(PENDULUM)
    one, other = wide_set(task), wide_set(task)
    assert torch.equal(one.x, other.x) and one.steps > 1000
    blocks = (one.u[:, 1:] == one.u[:, :-1]).all(-1)
    assert 0.5 < float(blocks.double().mean()) < 0.95  # most actions are held


def test_errors_are_in_the_spread_of_the_changes() -> None:
    """A model of one step predicts that step's change everywhere."""
    task = Line()
    traces = held_episodes(task, (3,), 5, 0)
    model = GPDynamics(task)
    model.fit(traces.transitions())
    errors = squared_errors(model, traces)
    assert len(errors) == traces.steps and float(errors.max()) < 1e-3 and wide_error(model) < 0.05
    change = (traces.x[:, 1:] - traces.x[:, :-1])[traces.active]
    shifted = traces.transitions()
    ignorant = GPDynamics(task)
    ignorant.fit(type(shifted)(**{name: value[:1] for name, value in vars(shifted).items()}))
    mean = ignorant.predict(task.model_inputs(shifted.x, shifted.u)).mean
    expected = ((mean - change) / change.std(0)).square().sum(1)
    assert torch.allclose(squared_errors(ignorant, traces), expected)


def test_a_signal_is_ranked_against_the_error() -> None:
    """Joint information follows the model's error; ζ_LOO of the function is high on the data instead."""
    found = correlation(PENDULUM_PART, 60, 0)
    assert found["information"] > 0.6 > 0.3 > found["loo"]
    task = make_task(PENDULUM)
    model = GPDynamics(task)
    data = held_episodes(task, (1,), 2, 0)
    model.fit(data.transitions())
    assert -1 <= rank_correlation(ZETAS["entropy"], model, data) <= 1


def test_the_published_study_is_what_its_cells_say() -> None:
    folder = Path(__file__).parents[2] / "results" / "exploration"
    text = (folder / "exploration.md").read_text(encoding="utf-8")
    assert text.startswith(report(read_results(folder)))
