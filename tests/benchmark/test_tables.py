from __future__ import annotations

import csv
import io
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samba_rl.benchmark.cells import Cell, CellResult
from samba_rl.benchmark.tables import all_tables, limit_of, ratios, table_1, table_2
from samba_rl.benchmark.writers import Column, Entry, Row, Table, shown, to_csv, to_latex, to_markdown, write_tables
from samba_rl.runs.evaluation import Evaluation

PENDULUM, DOUBLE, FETCH = "safe-pendulum", "safe-cart-pole-double-pendulum", "safe-fetch-reach"
SYSTEM = {PENDULUM: "Safe Pendulum", DOUBLE: "Safe Cart-Pole Double Pendulum", FETCH: "Safe Fetch Reach"}


def result(
    task: str = DOUBLE, learner: str = "samba", seed: int = 0, *, samples: int = 1500, tc: float = 50.0,
    cell: dict[str, Any] | None = None, **evaluation: Any,
) -> CellResult:  # fmt: skip
    noisy = Evaluation(
        TV=10, TC=100.0, steps=10_000, episodes=400, return_mean=-20.0, return_std=1.0,
        safety_quartiles=(0.1, 0.2, 0.3), cvar=0.5, alpha=0.9, limit=None, constraints=(), seed=0, deterministic=False,
    )  # fmt: skip
    still = replace(noisy, TV=9999, TC=9999.0, return_mean=9999.0, deterministic=True)
    return CellResult(
        Cell(task, learner, seed, **(cell or {})), samples, tc, 5, 1.0, "cpu", replace(noisy, **evaluation), still
    )


def rows_of(table: Table, **wanted: str) -> list[Row]:
    """By the labels: system, learner or xi."""
    places = {"system": "System", "learner": "Learner", "xi": "ξ", "alpha": "α"}
    at = [(table.labels.index(places[what]), text) for what, text in wanted.items()]
    return [row for row in table.rows if all(row.labels[i] == text for i, text in at)]


def one(table: Table, **wanted: str) -> Row:
    (row,) = rows_of(table, **wanted)
    return row


# Which results belong together ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "learner", "cell", "limit"),
    [
        (DOUBLE, "samba", {}, 0.75),
        (DOUBLE, "samba", {"limit": 0.25}, 0.25),
        (DOUBLE, "samba", {"preset": "paper"}, 0.75),  # 30 steps of 0.025
        (FETCH, "samba", {"preset": "paper"}, 0.5),  # 30 steps of 0.0166...
        (DOUBLE, "ppo", {}, None),
        (DOUBLE, "planet-rs", {"limit": 0.25}, None),
        (DOUBLE, "sppo", {"budget_scale": 0.1}, 0.75),
    ],
)
def test_limit_is_of_a_trajectory(task: str, learner: str, cell: dict[str, Any], limit: float | None) -> None:
    assert limit_of(result(task, learner, cell=cell)) == limit


def test_an_unknown_system_has_the_limit_that_was_written_down() -> None:
    assert limit_of(result("crane", limit=0.3)) == 0.3
    assert limit_of(result("crane", "mine", limit=None)) is None


def test_presets_and_budgets_have_tables_of_their_own() -> None:
    cells: list[dict[str, Any]] = [{}, {"preset": "paper"}, {"budget_scale": 0.5}]
    tables = table_1([result(samples=100 * (i + 1), cell=cell) for i, cell in enumerate(cells)])
    assert [table.name for table in tables] == ["table-1-default-budget0.5", "table-1-default", "table-1-paper"]
    assert [one(table, learner="SAMBA").entries[1].value for table in tables] == [300, 100, 200]
    assert tables[0].caption.startswith("Preset default, 0.5 times the budget of real samples. ")
    assert tables[1].caption.startswith("Preset default, the whole budget of real samples. ")
    assert tables[2].facts == (("preset", "paper"), ("budget_scale", "1"))


def test_limits_are_not_mixed() -> None:
    (table,) = table_1([result(tc=1.0, cell={"limit": 0.25}), result(tc=3.0, seed=1)])
    rows = rows_of(table, learner="SAMBA")
    assert [(row.labels[2], row.entries[0].value, row.entries[2].value) for row in rows] == [
        ("0.25", 1, 1.0),
        ("0.75", 1, 3.0),
    ]


def test_the_same_run_counts_once() -> None:
    # PPO has no limit to keep: asked for one or not, a seed is the same run.
    results = [result(learner="ppo", tc=5.0), result(learner="ppo", tc=7.0, cell={"limit": 0.25})]
    for order in (results, results[::-1]):
        row = one(table_1(order)[0], learner="PPO")
        assert (row.entries[0].value, row.entries[2].value) == (1, 5.0)


# Table 1 --------------------------------------------------------------------------------------------------------------


def test_table_1_by_hand() -> None:
    samba = [result(seed=s, tc=tc, TV=tv, TC=4.0 * tv) for s, tc, tv in ((0, 6.0, 1), (1, 0.0, 2), (2, 12.0, 3))]
    # Twice the steps: half the figures.
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
    assert "with its noise per 10,000 steps" in table.caption


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


def test_best_is_of_a_system_and_what_reads_the_same_is_bold_too() -> None:
    costs = {"samba": 1.2341, "sppo": 1.2342, "ppo": 1.3, "trpo": math.nan}
    results = [result(learner=learner, tc=tc) for learner, tc in costs.items()]
    (table,) = table_1([*results, result(FETCH, tc=1000.0)])
    bold = [row.labels[:2] for row in table.rows if row.entries[2].bold]
    assert bold == [(SYSTEM[DOUBLE], "SPPO"), (SYSTEM[DOUBLE], "SAMBA"), (SYSTEM[FETCH], "SAMBA")]


def test_best_is_among_learners_with_the_same_limit_or_none() -> None:
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
    # Of the other limit there are no results, and the paper has none.
    assert one(table, learner="SAMBA", xi="0.75").entries == (Entry(),) * 7


def test_a_cost_at_the_limit_keeps_to_it() -> None:
    (table,) = table_2([result(cell={"limit": 0.25}, TC=100.0, cvar=0.25)])
    assert [entry.verdict for entry in one(table, learner="SAMBA", xi="0.25").entries[4:6]] == [True, True]


def test_a_learner_without_a_limit_counts_for_both() -> None:
    (table,) = table_2([result(learner="ppo", cvar=0.5), result(learner="sppo")])
    verdicts = {row.labels[1]: row.entries[5] for row in rows_of(table, learner="PPO")}
    assert verdicts["0.25"] == Entry(0.5, paper=False, verdict=False)
    # What the paper says of the verdict is about another limit; its quartiles and return are about any.
    assert verdicts["0.75"] == Entry(0.5, paper=None, verdict=True)
    assert one(table, learner="PPO", xi="0.75").entries[1].paper == 5.0
    assert one(table, learner="PPO", xi="0.75").entries[6].paper == -19
    # The default's limit is 0.75.
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
    # Over nothing at all.
    assert one(table, learner="PPO", xi="0.25").entries[2].value == math.inf
    assert one(table, learner="SPPILCO", xi="0.25").entries[1] == Entry(paper=1.2)


def test_the_default_preset_s_samba_stands_in_for_one_that_is_missing() -> None:
    samba, sppo = result(learner="samba"), result(learner="sppo")
    long = replace(sppo, cell=replace(sppo.cell, preset="paper"), real_samples=1_000_000, learning_TC=2000.0)
    by_name = {table.name: table for table in ratios([replace(samba, real_samples=500, learning_TC=4.0), sppo, long])}
    assert set(by_name) == {"ratios-default", "ratios-paper"}
    assert "SAMBA is that of the preset default" in by_name["ratios-paper"].caption
    assert "is that of the preset" not in by_name["ratios-default"].caption
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


# The writers ----------------------------------------------------------------------------------------------------------

SMALL = Table(
    name="small",
    title="A small one",
    caption="Of 50 % & more, ξ ≤ 1.",
    facts=(("preset", "smoke"),),
    labels=("System", "ξ"),
    columns=(Column("Seeds", "count"), Column("TC"), Column("CVaR ≤ ξ", "verdict")),
    rows=(
        Row(
            ("a_b|c", "0.25"),
            (Entry(3), Entry(-1234.5, (-2000.0, 0.5), 54.0, bold=True), Entry(0.2, None, False, verdict=True)),
        ),
        Row(("d", ""), (Entry(), Entry(paper=1e6), Entry(math.inf, verdict=False))),
        Row(("d", "1"), (Entry(1), Entry(), Entry())),
    ),
)


def test_markdown_to_the_letter() -> None:
    assert to_markdown(SMALL) == (
        "### A small one\n\nOf 50 % &#38; more, ξ ≤ 1.\n\n"
        "| System | ξ | Seeds | TC | CVaR ≤ ξ |\n"
        "| :-- | :-- | --: | --: | --: |\n"
        "| a&#95;b&#124;c | 0.25 | 3 | **-1,234** [-2,000 to 0.5] (54) | 0.2 yes (no) |\n"
        "| d | – | – | – (1,000,000) | ∞ no (–) |\n"
        "| d | 1 | 1 | – | – |\n"
    )


def test_csv_to_the_letter() -> None:
    assert to_csv(SMALL) == (
        "preset,System,ξ,Seeds,TC,TC low,TC high,TC paper,CVaR ≤ ξ,CVaR ≤ ξ low,CVaR ≤ ξ high,CVaR ≤ ξ kept,"
        "CVaR ≤ ξ paper\n"
        "smoke,a_b|c,0.25,3,-1234.5,-2000.0,0.5,54.0,0.2,,,yes,no\n"
        "smoke,d,,,,,,1000000.0,inf,,,no,\n"
        "smoke,d,1,1,,,,,,,,,\n"
    )


def test_latex_to_the_letter() -> None:
    assert to_latex(SMALL) == (
        "\\begin{table}\n\\centering\n"
        "\\caption{A small one. Of 50 \\% \\& more, $\\xi$ $\\leq$ 1.}\n"
        "\\resizebox{\\linewidth}{!}{%\n"
        "\\begin{tabular}{llrrr}\n\\toprule\n"
        "{}System & $\\xi$ & Seeds & TC & CVaR $\\leq$ $\\xi$ \\\\\n\\midrule\n"
        "{}a\\_b\\textbar{}c & 0.25 & 3 & \\textbf{$-$1,234} [$-$2,000 to 0.5] (54) & 0.2 yes (no) \\\\\n\\midrule\n"
        "{}d & -- & -- & -- (1,000,000) & $\\infty$ no (--) \\\\\n"
        "{}d & 1 & 1 & -- & -- \\\\\n"
        "\\bottomrule\n\\end{tabular}}\n\\end{table}\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (math.nan, "–"), (math.inf, "∞"), (-math.inf, "-∞"), (True, "yes"), (False, "no"), (0.0, "0"),
        (3, "3"), (0.123456, "0.123"), (12.34, "12.3"), (99.94, "99.9"), (99.96, "100"), (999.9, "1,000"),
        (-27.0, "-27"), (1_002_000.0, "1,002,000"),
    ],
)  # fmt: skip
def test_figures_for_a_reader(value: float | None, text: str) -> None:
    assert shown(value) == text


TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from('|\\\n\r\t,";&%$#_{}~^*[]<>`\u2028'))
NUMBERS = st.none() | st.floats() | st.integers(0, 10**7)
ENTRIES = st.builds(
    Entry,
    value=NUMBERS,
    interval=st.none() | st.tuples(st.floats(), st.floats()),
    paper=NUMBERS | st.booleans(),
    bold=st.booleans(),
    verdict=st.none() | st.booleans(),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    labels, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    name = st.builds(Column, TEXTS, st.sampled_from(["count", "number", "verdict"]))
    row = st.builds(Row, st.tuples(*[TEXTS] * labels), st.tuples(*[ENTRIES] * columns))
    return Table(
        "name", draw(TEXTS), draw(TEXTS), (("preset", draw(TEXTS)),), draw(st.tuples(*[TEXTS] * labels)),
        draw(st.tuples(*[name] * columns)), tuple(draw(st.lists(row, max_size=3))),
    )  # fmt: skip


@settings(max_examples=60)
@given(tables())
def test_markdown_has_as_many_pipes_in_every_line(table: Table) -> None:
    lines = to_markdown(table).splitlines()
    assert lines[0].startswith("### ") and lines[1] == "" and lines[3] == ""
    assert len(lines) == 6 + len(table.rows)
    assert {line.count("|") for line in lines[4:]} == {len(table.labels) + len(table.columns) + 1}
    assert all(line.startswith("| ") and line.endswith(" |") and "\\" not in line for line in lines[4:])


@settings(max_examples=60)
@given(tables())
def test_csv_reads_back(table: Table) -> None:
    head, *rows = csv.reader(io.StringIO(to_csv(table), newline=""))
    assert len(rows) == len(table.rows)
    width = {"count": 1, "number": 4, "verdict": 5}
    for read, row in zip(rows, table.rows, strict=True):
        assert len(read) == len(head) == 1 + len(table.labels) + sum(width[c.kind] for c in table.columns)
        assert read[1 : 1 + len(row.labels)] == [" ".join(label.split()) for label in row.labels]
        at = 1 + len(row.labels)
        for column, entry in zip(table.columns, row.entries, strict=True):
            if entry.value is None:
                assert read[at] == ""
            else:
                assert float(read[at]) == pytest.approx(entry.value, rel=0, abs=0, nan_ok=True)
            at += width[column.kind]
            if column.kind != "count" and isinstance(entry.paper, bool):
                assert read[at - 1] == ("yes" if entry.paper else "no")


@settings(max_examples=60)
@given(tables())
def test_latex_is_balanced_and_has_as_many_columns_in_every_line(table: Table) -> None:
    text = to_latex(table)
    lines = [line for line in text.splitlines() if line.endswith(" \\\\")]
    assert len(lines) == 1 + len(table.rows)
    for line in lines:
        assert line.replace("\\&", "").count("&") == len(table.labels) + len(table.columns) - 1
    bare = text
    for escaped in ("\\{", "\\}", "\\$", "\\%", "\\&", "\\#", "\\_"):
        bare = bare.replace(escaped, "")
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
    # What is left of these is ours alone: the sign at the end of the line before the tabular.
    assert bare.count("%") == 1 and not set("#_^~") & set(bare)


def test_latex_escapes() -> None:
    table = replace(SMALL, title="\\input{x} 5% $a_b^c$ #1 ~ <|>", caption="")
    assert (
        "\\caption{\\textbackslash{}input\\{x\\} 5\\% \\$a\\_b\\textasciicircum{}c\\$ \\#1 \\textasciitilde{} "
        "\\textless{}\\textbar{}\\textgreater{}. }"
    ) in to_latex(table)


@pytest.mark.parametrize("write", [to_markdown, to_csv, to_latex])
def test_all_tables_of_a_small_grid_can_be_written(write: Any) -> None:
    grid = itertools.product((PENDULUM, DOUBLE, FETCH), ("ppo", "samba"), range(3))
    tables = all_tables([result(task, learner, seed, tc=seed) for task, learner, seed in grid])
    assert [table.name for table in tables] == ["table-1-default", "table-2-default", "ratios-default"]
    assert all("SAMBA" in write(table) for table in tables[:2])


def test_every_table_is_written_in_every_form(tmp_path: Path) -> None:
    tables = all_tables([result(learner=name, seed=seed) for name in ("samba", "ppo") for seed in range(2)])
    written = write_tables(tables, tmp_path / "tables")
    assert {path.name for path in written} == {f"{t.name}{s}" for t in tables for s in (".md", ".csv", ".tex")}
    assert (tmp_path / "tables" / "table-1-default.md").read_text() == to_markdown(tables[0])
    assert write_tables([], tmp_path / "nothing") == [] and not (tmp_path / "nothing").exists()
