"""The writers of tables: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from samba_rl.benchmark.writers import Column, Entry, Row, Table, shown, to_csv, to_latex, to_markdown, write_tables

SMALL = Table(
    name="small",
    title="A small one",
    caption="At 50 % & more, ξ ≤ 1.",
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
        "### A small one\n\nAt 50 % &#38; more, ξ ≤ 1.\n\n"
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
        "\\caption{A small one. At 50 \\% \\& more, $\\xi$ $\\leq$ 1.}\n"
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
def test_numbers_are_rounded_for_readers(value: float | None, text: str) -> None:
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
    # The only sign left is the writer's own, at the end of the line before the tabular.
    assert bare.count("%") == 1 and not set("#_^~") & set(bare)


def test_latex_escapes() -> None:
    table = replace(SMALL, title="\\input{x} 5% $a_b^c$ #1 ~ <|>", caption="")
    assert (
        "\\caption{\\textbackslash{}input\\{x\\} 5\\% \\$a\\_b\\textasciicircum{}c\\$ \\#1 \\textasciitilde{} "
        "\\textless{}\\textbar{}\\textgreater{}. }"
    ) in to_latex(table)


def test_every_table_is_written_in_every_form(tmp_path: Path) -> None:
    tables = [SMALL, replace(SMALL, name="other")]
    written = write_tables(tables, tmp_path / "tables")
    assert {path.name for path in written} == {f"{t.name}{s}" for t in tables for s in (".md", ".csv", ".tex")}
    assert (tmp_path / "tables" / "small.md").read_text() == to_markdown(SMALL)
    assert write_tables([], tmp_path / "nothing") == [] and not (tmp_path / "nothing").exists()
