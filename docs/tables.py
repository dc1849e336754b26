"""Makes the tables of results/tables and of the README from results/: python docs/tables.py"""

from __future__ import annotations

import re
from pathlib import Path

from samba_rl.benchmark.cells import read_results
from samba_rl.benchmark.tables import all_tables
from samba_rl.benchmark.writers import Table, to_markdown, without_empty_rows, write_tables

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
SHOWN = ("table-1-default", "ratios-default", "ratios-paper")
"""In the README; the others lie beside the results."""
BLOCK = re.compile(r"(?<=<!-- tables: begin -->\n).*(?=<!-- tables: end -->)", flags=re.S)


def tables() -> list[Table]:
    """All of them, from the results."""
    return all_tables(read_results(RESULTS))


def shown(found: list[Table]) -> str:
    """The README's, without the rows that hold nothing but the paper's figures."""
    by_name = {table.name: table for table in found}
    return "\n".join(to_markdown(without_empty_rows(by_name[name])) for name in SHOWN)


def main() -> None:
    """Write them."""
    found = tables()
    write_tables(found, RESULTS / "tables")
    readme = ROOT / "README.md"
    text, count = BLOCK.subn(lambda _: shown(found), readme.read_text(encoding="utf-8"))
    assert count == 1
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
