"""The paper's tables made from results."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from samba_rl.benchmark.cells import CellResult
from samba_rl.benchmark.tables import all_tables, ratios, table_1, table_2
from samba_rl.benchmark.writers import Entry, Row, Table, to_csv, to_latex, to_markdown
from samba_rl.runs.evaluation import StandardErrors
from tests.benchmark.results import DOUBLE, FETCH, PENDULUM, SYSTEM, result


def rows_of(table: Table, **wanted: str) -> list[Row]:
    """Return the rows with these labels: system, learner, xi or alpha."""
    places = {"system": "System", "learner": "Learner", "xi": "ξ", "alpha": "α"}
    at = [(table.labels.index(places[what]), text) for what, text in wanted.items()]
    return [row for row in table.rows if all(row.labels[i] == text for i, text in at)]


def one(table: Table, **wanted: str) -> Row:
    (row,) = rows_of(table, **wanted)
    return row


# Grouping -------------------------------------------------------------------------------------------------------------


def test_presets_and_budgets_have_tables_of_their_own() -> None:
    cells: list[dict[str, Any]] = [{}, {"preset": "paper"}, {"budget_scale": 0.5}]
    tables = table_1([result(samples=100 * (i + 1), cell=cell) for i, cell in enumerate(cells)])
    assert [table.name for table in tables] == ["table-1-default-budget0.5", "table-1-default", "table-1-paper"]
    assert [one(table, learner="SAMBA").entries[1].value for table in tables] == [300, 100, 200]
    assert tables[0].caption.startswith("Preset default, 0.5 times the budget of real samples. ")
    assert tables[1].caption.startswith("Preset default, full budget of real samples. ")
    assert tables[2].facts == (("preset", "paper"), ("budget_scale", "1"))


def test_limits_are_not_mixed() -> None:
    (table,) = table_1([result(tc=1.0, cell={"limit": 0.25}), result(tc=3.0, seed=1)])
    rows = rows_of(table, learner="SAMBA")
    assert [(row.labels[2], row.entries[0].value, row.entries[2].value) for row in rows] == [
        ("0.25", 1, 1.0),
        ("0.75", 1, 3.0),
    ]


def test_the_same_run_counts_once() -> None:
    # PPO ignores a limit, so the same seed with and without one is the same run.
    results = [result(learner="ppo", tc=5.0), result(learner="ppo", tc=7.0, cell={"limit": 0.25})]
    for order in (results, results[::-1]):
        row = one(table_1(order)[0], learner="PPO")
        assert (row.entries[0].value, row.entries[2].value) == (1, 5.0)


# Table 1 --------------------------------------------------------------------------------------------------------------


def test_table_1_by_hand() -> None:
    samba = [result(seed=s, tc=tc, TV=tv, TC=4.0 * tv) for s, tc, tv in ((0, 6.0, 1), (1, 0.0, 2), (2, 12.0, 3))]
    # Twice the steps, so half the values.
    ppo = result(learner="ppo", samples=100_000, tc=8e3, TV=3, TC=16.0, steps=20_000)
    (table,) = table_1([*samba, ppo])
    assert one(table, learner="SAMBA") == Row(
        (SYSTEM[DOUBLE], "SAMBA", "0.75"),
        (
            Entry(3),
            Entry(1500, (1500, 1500), 5000, bold=True),
            Entry(6, (0, 12), 54, bold=True),
            Entry(2, (1, 3), 850),
            Entry(8, (4, 12), 1400, bold=True),
        ),
    )
    assert one(table, learner="PPO") == Row(
        (SYSTEM[DOUBLE], "PPO", ""),
        (
            Entry(1),
            Entry(100_000, None, 1_000_000),
            Entry(8000, None, 140_000),
            Entry(1.5, None, 5500, bold=True),
            Entry(8, None, 35_000, bold=True),
        ),
    )
    assert "per 10,000 evaluation steps of the learned policy with its noise" in table.caption


def test_rows_stand_in_the_papers_order_and_missing_ones_are_dashes() -> None:
    (table,) = table_1([result(FETCH), result(PENDULUM, "mine"), result("crane", "samba"), result(PENDULUM)])
    assert [row.labels[1] for row in rows_of(table, system="Safe Pendulum")] == [
        "TRPO", "PPO", "PlaNet", "PPILCO", "PlaNet w RS", "CPO", "STRPO", "SPPO", "SPPILCO", "SAMBA", "mine",
    ]  # fmt: skip
    systems = [system for system, _ in itertools.groupby(row.labels[0] for row in table.rows)]
    assert systems == ["Safe Pendulum", "Safe Fetch Reach", "crane"]
    assert [row.labels[1] for row in rows_of(table, system="crane")] == ["SAMBA"]
    assert one(table, system="Safe Fetch Reach", learner="PlaNet w RS").entries == (Entry(),) * 5
    trpo = one(table, system="Safe Fetch Reach", learner="TRPO")
    assert trpo.entries[0] == Entry() and trpo.entries[1] == Entry(paper=1_000_000)


def test_the_best_of_each_system_and_values_printed_the_same_are_bold() -> None:
    costs = {"samba": 1.2341, "sppo": 1.2342, "ppo": 1.3, "trpo": math.nan}
    results = [result(learner=learner, tc=tc) for learner, tc in costs.items()]
    (table,) = table_1([*results, result(FETCH, tc=1000.0)])
    bold = [row.labels[:2] for row in table.rows if row.entries[2].bold]
    assert bold == [(SYSTEM[DOUBLE], "SPPO"), (SYSTEM[DOUBLE], "SAMBA"), (SYSTEM[FETCH], "SAMBA")]


def test_the_best_is_among_learners_with_the_same_limit_or_none() -> None:
    strict = {"limit": 0.25}
    found = [result(tc=10.0), result(learner="sppo", tc=20.0), result(learner="sppo", tc=5.0, cell=strict)]

    def bold(*more: CellResult) -> list[tuple[str, ...]]:
        (table,) = table_1([*found, *more])
        return [row.labels[1:] for row in table.rows if row.entries[2].bold]

    assert bold() == [("SPPO", "0.25"), ("SAMBA", "0.75")]
    assert bold(result(learner="ppo", tc=7.0)) == [("SPPO", "0.25")]
    assert bold(result(learner="ppo", tc=4.0)) == [("PPO", "")]


# Table 2 --------------------------------------------------------------------------------------------------------------


def test_table_2_by_hand() -> None:
    seeds = [
        result(seed=i, cell={"limit": 0.25}, TC=tc, cvar=cvar, return_mean=back)
        for i, (tc, cvar, back) in enumerate([(40.0, 0.2, -26.0), (80.0, 0.3, -20.0), (120.0, 0.4, -23.0)])
    ]
    (table,) = table_2(seeds)
    row = one(table, learner="SAMBA", xi="0.25")
    assert row.labels == (SYSTEM[DOUBLE], "0.25", "SAMBA", "0.9")
    count, low, median, high, expectation, cvar, back = row.entries
    assert count == Entry(3)
    assert (low.value, low.paper, median.value, median.paper, high.value, high.paper) == (
        0.1, 0.15, 0.2, 0.21, 0.3, 0.24,
    )  # fmt: skip
    assert expectation.value == pytest.approx(0.2) and expectation.interval == (0.1, 0.3)
    assert cvar.value == pytest.approx(0.3) and cvar.interval == (0.2, 0.4)
    assert [entry.verdict for entry in (expectation, cvar)] == [True, False]
    assert [entry.paper for entry in (expectation, cvar, back)] == [True, True, -27]
    assert back.value == pytest.approx(-23) and back.interval == pytest.approx((-26, -20))
    # There are no results for the other limit, neither ours nor the paper's.
    assert one(table, learner="SAMBA", xi="0.75").entries == (Entry(),) * 7


def test_a_cost_at_the_limit_keeps_to_it() -> None:
    (table,) = table_2([result(cell={"limit": 0.25}, TC=100.0, cvar=0.25)])
    assert [entry.verdict for entry in one(table, learner="SAMBA", xi="0.25").entries[4:6]] == [True, True]


def test_a_learner_without_a_limit_counts_for_both() -> None:
    (table,) = table_2([result(learner="ppo", cvar=0.5), result(learner="sppo")])
    verdicts = {row.labels[1]: row.entries[5] for row in rows_of(table, learner="PPO")}
    assert verdicts["0.25"] == Entry(0.5, paper=False, verdict=False)
    # The paper's verdict is about the other limit; its quartiles and return do not depend on the limit.
    assert verdicts["0.75"] == Entry(0.5, paper=None, verdict=True)
    assert one(table, learner="PPO", xi="0.75").entries[1].paper == 5.0
    assert one(table, learner="PPO", xi="0.75").entries[6].paper == -19
    # The default preset's limit is 0.75.
    assert [row.entries[0].value for row in rows_of(table, learner="SPPO")] == [None, 1]


def test_other_limits_are_named_and_not_shown() -> None:
    (table,) = table_2(
        [result(FETCH, cell={"preset": "paper"}), result(FETCH, cell={"preset": "paper", "limit": 0.75})]
    )
    assert "Results with other limits are left out: ξ = 0.5." in table.caption
    assert [row.entries[0].value for row in rows_of(table, learner="SAMBA")] == [None, 1]
    (other,) = table_2([result(FETCH, cell={"preset": "paper"})], limits=(0.5,))
    assert one(other, learner="SAMBA").entries[0] == Entry(1) and "left out" not in other.caption


def test_different_levels_of_cvar_are_named() -> None:
    (table,) = table_2([result(PENDULUM, alpha=0.75), result(PENDULUM, seed=1), result(PENDULUM, "ppo")])
    assert one(table, learner="SAMBA", xi="0.75").labels[3] == "0.75, 0.9"
    assert one(table, learner="PPO", xi="0.75").labels[3] == "0.9"


def test_one_level_of_cvar_serves_all_where_the_results_have_it() -> None:
    errors = StandardErrors(0.1, 1.0, 2.0, 0.1, (0.1, 0.1, 0.1), 0.2, 0.3, ())
    results = [
        result(PENDULUM, alpha=0.75, cvar=0.4, cvar90=0.6, errors=errors),
        result(PENDULUM, seed=1, alpha=0.75, cvar=0.4, cvar90=0.6, errors=errors),
        result(PENDULUM, "ppo", cvar=7.0),  # an old file, whose own level is 0.9
    ]
    (table,) = table_2(results)
    samba, ppo = (one(table, learner=name, xi="0.75") for name in ("SAMBA", "PPO"))
    assert (samba.labels[3], ppo.labels[3]) == ("0.9, own 0.75", "0.9")
    # Both are given: at the common level, and at the learner's own.
    assert [column.name for column in table.columns[5:]] == ["CVaR ≤ ξ", "CVaR at own α ≤ ξ", "Return"]
    assert [entry.value for entry in samba.entries[5:]] == [0.6, 0.4, -20.0]
    assert [entry.value for entry in ppo.entries[5:]] == [7.0, 7.0, -20.0]
    assert [entry.verdict for entry in samba.entries[5:7]] == [True, True]
    assert "α differs" not in table.caption and "have CVaR at that level too" in table.caption
    # All of them at 0.75: that level is common too.
    (table,) = table_2(results[:2])
    assert one(table, learner="SAMBA", xi="0.75").labels[3] == "0.75"
    assert one(table, learner="SAMBA", xi="0.75").entries[5].value == 0.4 and len(table.columns) == 7
    # Old files of different levels have none in common.
    (table,) = table_2([result(PENDULUM, alpha=0.75), result(PENDULUM, "ppo")])
    assert "α differs between learners" in table.caption


def test_intervals_contain_the_noise_of_the_evaluations() -> None:
    errors = StandardErrors(5.0, 3.0, 20.0, 0.1, (0.05, 0.05, 0.05), 0.2, 0.2, ())
    known = [result(seed=seed, errors=errors) for seed in range(4)]
    for table, exact in ((table_1(known)[0], 2), (table_2(known)[0], 1)):
        assert "contain the noise of the evaluations" in table.caption
        entries = one(table, learner="SAMBA", **({"xi": "0.75"} if exact == 1 else {})).entries
        for i, entry in enumerate(entries[1:], 1):
            assert entry.value is not None and entry.interval is not None
            low, high = entry.interval
            # Samples and cost of learning are counted, not estimated.
            assert (low == entry.value == high) == (exact == 2 and i <= 2)
    unknown = [result(seed=seed) for seed in range(4)]
    (table,) = table_1(unknown)
    assert "noise of the evaluations" not in table.caption
    assert one(table, learner="SAMBA").entries[3].interval == (10, 10)


# Ratios ---------------------------------------------------------------------------------------------------------------


def test_ratios_by_hand() -> None:
    results = [
        result(samples=1500, tc=50.0),
        result(samples=1000, tc=0.0, cell={"limit": 0.25}),
        result(learner="ppo", samples=100_000, tc=5000.0),
        result(learner="ppo", seed=1, samples=100_000, tc=7000.0),
        result(learner="sppilco", samples=3000, tc=100.0),
    ]
    (table,) = ratios(results)
    assert not rows_of(table, learner="SAMBA")
    ppo = one(table, learner="PPO", xi="0.75").entries
    assert ppo[0] == Entry(2)
    assert ppo[1] == Entry(100_000 / 1500, None, 200)
    assert ppo[2].value == 120 and ppo[2].paper == pytest.approx(140 / 0.054)
    assert one(table, learner="SPPILCO", xi="0.75").entries[1:] == (
        Entry(2, None, 1.2),
        Entry(2, None, 62 / 54),
    )
    # A ratio with a divisor of zero.
    assert one(table, learner="PPO", xi="0.25").entries[2].value == math.inf
    assert one(table, learner="SPPILCO", xi="0.25").entries[1] == Entry(paper=1.2)


def test_the_default_preset_provides_samba_where_another_preset_has_none() -> None:
    samba, sppo = result(learner="samba"), result(learner="sppo")
    long = replace(sppo, cell=replace(sppo.cell, preset="paper"), real_samples=1_000_000, learning_TC=2000.0)
    by_name = {table.name: table for table in ratios([replace(samba, real_samples=500, learning_TC=4.0), sppo, long])}
    assert set(by_name) == {"ratios-default", "ratios-paper"}
    assert "SAMBA's values are those of the preset default" in by_name["ratios-paper"].caption
    assert "of the preset default" not in by_name["ratios-default"].caption
    (row,) = [row for row in by_name["ratios-paper"].rows if row.labels[2] == "SPPO"]
    assert [entry.value for entry in row.entries] == [1, 2000, 500]


def test_ratios_have_an_interval_where_both_have_seeds() -> None:
    both = [result(learner=name, seed=s, tc=tc) for name in ("samba", "sppo") for s, tc in ((0, 10.0), (1, 10.0))]
    (table,) = ratios(both)
    assert one(table, learner="SPPO").entries[2].interval == (1, 1)


def test_without_samba_there_are_dashes() -> None:
    (table,) = ratios([result(learner="ppo")])
    assert one(table, learner="PPO").entries == (Entry(1), Entry(paper=200), Entry(paper=140_000 / 54))


def test_nothing_makes_no_tables() -> None:
    assert all_tables([]) == []


@pytest.mark.parametrize("write", [to_markdown, to_csv, to_latex])
def test_all_tables_of_a_small_grid_can_be_written(write: Any) -> None:
    grid = itertools.product((PENDULUM, DOUBLE, FETCH), ("ppo", "samba"), range(3))
    tables = all_tables([result(task, learner, seed, tc=seed) for task, learner, seed in grid])
    assert [table.name for table in tables] == ["table-1-default", "table-2-default", "ratios-default"]
    assert all("SAMBA" in write(table) for table in tables[:2])
