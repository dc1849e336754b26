"""Tables as data, and their writers: Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from samba_rl.data.files import disk_error, replacing

DASH = "–"

Value = float | bool | None

# Tables as data -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """The heading of a column, and the kind of its entries."""

    name: str
    kind: Literal["count", "number", "verdict"] = "number"
    """count: a number of ours. number: our number and the paper's. verdict: our number with whether it keeps the limit,
    and the paper's verdict."""


@dataclass(frozen=True)
class Entry:
    """One value of ours, and the paper's beside it."""

    value: float | None = None
    """Our value; None: there is none."""
    interval: tuple[float, float] | None = None
    """Bootstrap interval of our value."""
    paper: Value = None
    """The paper's value or verdict."""
    bold: bool = False
    """Whether our value is printed in bold."""
    verdict: bool | None = None
    """Whether our value keeps the limit, where there is one."""


@dataclass(frozen=True)
class Row:
    """The labels of a row, and its entries."""

    labels: tuple[str, ...]
    """One for each label column; empty where a label does not apply."""
    entries: tuple[Entry, ...]
    """One for each column of values."""


@dataclass(frozen=True)
class Table:
    """A table, independent of the form in which it is written."""

    name: str
    """Name of its files, without suffix."""
    title: str
    caption: str
    facts: tuple[tuple[str, str], ...]
    """Names and values that hold for all rows; CSV repeats them in each row, the caption says them in words."""
    labels: tuple[str, ...]
    """Headings of the label columns."""
    columns: tuple[Column, ...]
    """Columns of values, to the right of the labels."""
    rows: tuple[Row, ...]
    brief: str = ""
    """Caption of one line."""

    @property
    def has_paper(self) -> bool:
        """Return whether there is a value of the paper's in it."""
        return any(entry.paper is not None for row in self.rows for entry in row.entries)


def shown(value: Value) -> str:
    """Return a value with three digits, or with all digits before the point; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _written(column: Column, entry: Entry, escape: Callable[[str], str], bold: Callable[[str], str]) -> str:
    """Return our value, its interval, its verdict and the paper's value as text."""
    ours = escape(shown(entry.value))
    parts = [bold(ours) if entry.bold else ours]
    if entry.interval is not None:
        parts.append(escape(f"[{shown(entry.interval[0])} to {shown(entry.interval[1])}]"))
    if entry.verdict is not None:
        parts.append(shown(entry.verdict))
    if column.kind != "count" and not (entry.value is None and entry.paper is None):
        parts.append(escape(f"({shown(entry.paper)})"))
    return " ".join(parts)


# HTML entities, because Markdown readers disagree about backslashes before a pipe.
_MARKDOWN = str.maketrans({c: f"&#{ord(c)};" for c in "&<>|\\`*_[]#~$"})


def _markdown_text(text: str) -> str:
    return _one_line(text).translate(_MARKDOWN)


def to_markdown(table: Table) -> str:
    """Return a table as Markdown: a heading, the caption and a pipe table."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    head = [*map(_markdown_text, table.labels), *(_markdown_text(column.name) for column in table.columns)]
    lines = [line(head), line([*[":--"] * len(table.labels), *["--:"] * len(table.columns)])]
    for row in table.rows:
        labels = [_markdown_text(label) or DASH for label in row.labels]
        # Values contain nothing to escape, and their brackets are meant literally.
        figures = (_written(c, e, str, "**{}**".format) for c, e in zip(table.columns, row.entries, strict=True))
        lines.append(line([*labels, *figures]))
    return "\n".join([f"### {_markdown_text(table.title)}", "", _markdown_text(table.caption), "", *lines, ""])


def to_csv(table: Table) -> str:
    """Return a table as CSV: plain numbers, each in a column of its own, which is empty where there is none."""

    def cells(column: Column, entry: Entry) -> list[str]:
        low, high = entry.interval or (None, None)
        ours = [number(entry.value)]
        if column.kind != "count":
            ours += [number(low), number(high)]
            ours += [number(entry.verdict)] if column.kind == "verdict" else []
            ours.append(number(entry.paper))
        return ours

    def number(value: Value) -> str:
        return "" if value is None else shown(value) if isinstance(value, bool) else repr(value)

    parts = {
        "count": [""],
        "number": ["", " low", " high", " paper"],
        "verdict": ["", " low", " high", " kept", " paper"],
    }
    head = [c.name + part for c in table.columns for part in parts[c.kind]]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(_one_line, [*(name for name, _ in table.facts), *table.labels, *head]))
    for row in table.rows:
        figures = [text for c, e in zip(table.columns, row.entries, strict=True) for text in cells(c, e)]
        writer.writerow(map(_one_line, [*(fact for _, fact in table.facts), *row.labels, *figures]))
    return file.getvalue()


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", DASH: "--", "ξ": r"$\xi$", "α": r"$\alpha$", "≤": r"$\leq$",
    "∞": r"$\infty$", **{c: f"\\{c}" for c in "{}$&#%_"},
})  # fmt: skip


def _latex_text(text: str) -> str:
    return _one_line(text).translate(_LATEX)


def to_latex(table: Table) -> str:
    """Return a table as a LaTeX float as wide as the text; it needs the packages booktabs and graphicx."""

    def line(cells: Iterable[str]) -> str:
        # The braces: a bracket or a star at the start of a line would be taken for an argument of the previous \\.
        return "{}" + f"{' & '.join(cells)} \\\\"

    def figure(text: str) -> str:
        return text.replace("-", "$-$").replace(DASH, "--").replace("∞", r"$\infty$")

    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex_text(table.title)}. {_latex_text(table.caption)}}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{{'l' * len(table.labels)}{'r' * len(table.columns)}}}",
        r"\toprule",
        line([*map(_latex_text, table.labels), *(_latex_text(column.name) for column in table.columns)]),
        r"\midrule",
    ]
    for last, row in zip([None, *table.rows], table.rows, strict=False):
        if last is not None and last.labels[:1] != row.labels[:1]:
            lines.append(r"\midrule")
        labels = [_latex_text(label) or "--" for label in row.labels]
        figures = (
            _written(c, e, figure, r"\textbf{{{}}}".format) for c, e in zip(table.columns, row.entries, strict=True)
        )
        lines.append(line([*labels, *figures]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}", ""])


def to_html(table: Table) -> str:
    """Return a table as HTML, without title and caption."""

    def figure(column: Column, entry: Entry) -> str:
        parts = [f"<b>{shown(entry.value)}</b>" if entry.bold else shown(entry.value)]
        if entry.verdict is not None:
            standing = "kept" if entry.verdict else "broken"
            parts.append(f'<span class="{standing}">{standing}</span>')
        if entry.interval is not None:
            parts.append(f'<span class="interval">[{shown(entry.interval[0])} to {shown(entry.interval[1])}]</span>')
        if column.kind != "count" and entry.paper is not None:
            parts.append(f'<span class="paper">({shown(entry.paper)})</span>')
        return f"<td>{' '.join(parts)}</td>"

    def labels(row: Row) -> str:
        return "".join(f'<th scope="row">{html.escape(_one_line(label)) or DASH}</th>' for label in row.labels)

    head = "".join(f'<th scope="col">{html.escape(label)}</th>' for label in table.labels)
    head += "".join(f'<th scope="col" class="number">{html.escape(column.name)}</th>' for column in table.columns)
    lines = ["<table>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for last, row in zip([None, *table.rows], table.rows, strict=False):
        new = last is not None and last.labels[:1] != row.labels[:1]
        figures = "".join(figure(c, e) for c, e in zip(table.columns, row.entries, strict=True))
        lines.append(f"<tr{' class=new' * new}>{labels(row)}{figures}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>"])


def without_empty_rows(table: Table) -> Table:
    """Return a table without the rows that hold only the paper's values."""
    return replace(table, rows=tuple(row for row in table.rows if any(e.value is not None for e in row.entries)))


WRITERS: dict[str, Callable[[Table], str]] = {".md": to_markdown, ".csv": to_csv, ".tex": to_latex}


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write each table in every form and return the paths of the files."""
    written = []
    for table in tables:
        for suffix, form in WRITERS.items():
            path = folder / f"{table.name}{suffix}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file:
                    file.write(form(table).encode())
            except OSError as error:
                raise disk_error(path, error) from error
            written.append(path)
    return written
