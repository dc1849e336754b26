"""Makes the tables of results/tables, docs/results.md and README.md from results/: python docs/tables.py"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from samba_rl.benchmark.cells import read_results
from samba_rl.benchmark.tables import STEPS, all_tables
from samba_rl.benchmark.writers import Column, Entry, Table, to_markdown, without_empty_rows, write_tables

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
SHOWN = ("table-1-default", "ratios-default", "table-1-paper", "ratios-paper")
"""Tables in docs/results.md, as far as there are results; all tables are in results/tables."""
HEADLINE = ("PPO", "SPPO", "SAMBA")
"""Learners in the README's table."""


def tables() -> list[Table]:
    """Return all tables of the results."""
    return all_tables(read_results(RESULTS))


def blocks(found: list[Table]) -> dict[tuple[str, str], str]:
    """Return the generated text by file and name of the block."""
    by_name = {table.name: table for table in found}
    shown = "\n".join(to_markdown(without_empty_rows(by_name[name])) for name in SHOWN if name in by_name)
    return {("README.md", "headline"): headline(by_name[SHOWN[0]]), ("docs/results.md", "tables"): shown}


def headline(table: Table) -> str:
    """Return a few rows and columns of Table 1, without intervals and the paper's values."""
    columns = [i for i, column in enumerate(table.columns) if column.name != "Evaluation TV"]
    rows = [row for row in table.rows if row.labels[1] in HEADLINE and row.labels[2] in ("", "0.75")]
    small = replace(
        table,
        columns=tuple(Column(table.columns[i].name, "count") for i in columns),
        rows=tuple(replace(row, entries=tuple(Entry(row.entries[i].value) for i in columns)) for row in rows),
    )
    caption = (
        "Learning TC is the total safety cost during learning, evaluation TC the safety cost of the learned policy per "
        f"{STEPS:,} steps; interquartile means over the seeds. ξ is the limit on the safety cost of an episode."
    )
    # The README has its own heading above the block.
    _, _, _, _, *lines = to_markdown(small).splitlines()
    return "\n".join([*lines, "", caption, ""])


def block(name: str) -> re.Pattern[str]:
    """Return the pattern of a generated block's content."""
    return re.compile(rf"(?<=<!-- {name}: begin -->\n).*(?=<!-- {name}: end -->)", flags=re.S)


def main() -> None:
    """Write all tables."""
    found = tables()
    write_tables(found, RESULTS / "tables")
    for (file, name), text in blocks(found).items():
        path = ROOT / file
        page, count = block(name).subn(lambda _, text=text: text, path.read_text(encoding="utf-8"))
        assert count == 1, f"{path} needs one block '{name}'"
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
