"""The generality suite: its cells, what counts as solved, and its table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samba_rl.benchmark.cells import Cell, CellResult
from samba_rl.benchmark.generality import Suite, is_solved, table, wilson
from samba_rl.benchmark.systems import SYSTEMS
from samba_rl.benchmark.writers import to_markdown
from samba_rl.errors import UserError
from tests.benchmark.results import a_result


def result(task: str, learner: str, seed: int, **found: Any) -> CellResult:
    limit = 0.75 if learner == "samba" else None
    usual = a_result(Cell(task, learner, seed, limit=limit, trials=5))
    return replace(usual, with_noise=replace(usual.with_noise, **found))


def test_the_whole_suite() -> None:
    cells = Suite(seeds=2).cells()
    assert len(cells) == len(set(cells)) == 2 * len(SYSTEMS) * 2 * 2
    assert {cell.limit for cell in cells if cell.learner == "ppilco"} == {None}
    assert {cell.limit for cell in cells if cell.task == "course-noisy" and cell.learner == "samba"} == {0.75}
    assert cells[0].name == "pendulum-samba-default-xi2-5trials-100" and cells[-1].seed == 101


def test_parts_of_the_suite() -> None:
    cells = Suite(systems=("course",), limit="with", noise="without", seeds=1, first_seed=7).cells()
    assert cells == [Cell("course", "samba", 7, limit=0.75, trials=5)]
    assert {cell.task for cell in Suite(systems=("course",), noise="with").cells()} == {"course-noisy"}
    assert {cell.learner for cell in Suite(learners=("sppilco", "ppilco"), limit="without").cells()} == {"ppilco"}
    with pytest.raises(UserError, match="the suite has no system 'penduluum'; did you mean 'pendulum'"):
        Suite(systems=("penduluum",))
    with pytest.raises(UserError, match="--limit with: none of the learners ppilco is so"):
        Suite(learners=("ppilco",), limit="with")
    with pytest.raises(UserError, match="seeds = 0"):
        Suite(seeds=0)


def test_a_cell_has_one_random_trial_and_five_of_the_policy() -> None:
    for cell in Suite(seeds=1).cells():
        settings, horizon = cell.settings(), SYSTEMS[cell.task.removesuffix("-noisy")].horizon
        first = settings.first.samples
        assert first % horizon == 0 and 120 <= first <= 180
        assert settings.real_samples == first + 5 * settings.episodes * horizon


@pytest.mark.parametrize(
    ("learner", "reward", "cvar", "expected"),
    [
        ("samba", 1.7, 0.75, True),
        ("samba", 1.7, 0.76, False),
        ("samba", 1.69, 0.0, False),
        ("ppilco", 1.7, 9.0, True),
        ("ppilco", 1.69, 0.0, False),
    ],
)
def test_what_counts_as_solved(learner: str, reward: float, cvar: float, *, expected: bool) -> None:
    assert is_solved(result("course-noisy", learner, 0, return_mean=reward, cvar=cvar)) == expected


def test_wilsons_interval() -> None:
    """Values from Brown, Cai and DasGupta's formula, worked by hand for 8 of 10 and for the ends."""
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_the_table_counts_seeds_by_system_noise_and_limit() -> None:
    runs = [result("course", "samba", seed, return_mean=1.8, cvar=0.5 if seed else 2.0) for seed in range(4)]
    runs += [result("course-noisy", "ppilco", 0, return_mean=0.1), a_result(Cell("safe-pendulum", "samba", 0))]
    rows = {row.labels: row.entries for row in table(runs).rows}
    title = SYSTEMS["course"].title
    assert set(rows) == {(title, "no", "samba", "0.75"), (title, "yes", "ppilco", "none"), ("all", "", "", "")}
    seeds, share, reward, needed, cvar, samples, minutes = rows[title, "no", "samba", "0.75"]
    assert (seeds.value, share.value, reward.value, needed.value, samples.value) == (4, 75, 1.8, 1.7, 600)
    assert share.interval == pytest.approx((30.06, 95.44), abs=0.01) and minutes.value == pytest.approx(0.2)
    assert cvar.value == pytest.approx(0.5) and rows["all", "", "", ""][1].value == 60
    smoke = replace(runs[0], cell=replace(runs[0].cell, preset="smoke"))
    assert table([*runs, smoke]) == table(runs) and table([*runs, smoke], "smoke").rows[0].entries[0].value == 1
    assert "| 75 [30.1 to 95.4] |" in to_markdown(table(runs))
