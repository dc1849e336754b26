"""Transitions as tables: CSV and Parquet."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samba_rl.data.files import FilePath, check_regular, needed, open_own, reason, replacing
from samba_rl.data.schema import DTYPES, Column, Schema
from samba_rl.errors import UserError
from samba_rl.types import Transitions

_IN_WORDS = {torch.float64: "a number", torch.bool: "True or False", torch.int64: "a whole number"}
AT_ONCE = 10_000
"""Number of lines formatted at a time; as text they take many times their memory."""


def write_csv(path: FilePath, schema: Schema, steps: Transitions) -> None:
    """Write steps as CSV with a header line."""
    with replacing(path) as file:
        file.write(_header(schema))
        file.writelines(_lines(schema, steps))


def append_csv(path: FilePath, schema: Schema, steps: Transitions, *, anew: bool = False) -> None:
    """Append steps to a CSV file, or write it `anew`; the operating system decides when they reach the disk."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if anew else os.O_APPEND)
    with os.fdopen(open_own(path, flags), "wb") as file:
        file.write(_header(schema) if anew else b"")
        file.writelines(_lines(schema, steps))


def _header(schema: Schema) -> bytes:
    text = io.StringIO(newline="")
    # A name may contain commas and quotes.
    csv.writer(text).writerow(schema.columns)
    return text.getvalue().encode()


def _lines(schema: Schema, steps: Transitions) -> Iterator[bytes]:
    """Yield steps as lines of CSV, `AT_ONCE` at a time; numbers need no quotes."""
    for start in range(0, len(steps), AT_ONCE):
        columns = _cells(
            schema, Transitions(**{name: value[start : start + AT_ONCE] for name, value in vars(steps).items()})
        )
        yield ("\r\n".join(map(",".join, zip(*columns, strict=True))) + "\r\n").encode()


def _cells(schema: Schema, steps: Transitions) -> list[list[str]]:
    """Return the text of each column.

    Finding the shortest text of a float takes longer than everything else. Within an episode a step starts in the state
    that the previous one reached, so its text is already known.
    """
    reached = [_texts(values) for values in steps.x_next.T]
    same = (steps.x[1:].view(torch.int64) == steps.x_next[:-1].view(torch.int64)).T.tolist()

    def texts(column: Column) -> list[str]:
        if column.place is None or column.field not in ("x", "x_next"):
            return _texts(column.of(steps))
        there = reached[column.place]
        if column.field == "x_next":
            return there
        first, *rest = column.of(steps).tolist()
        known = zip(same[column.place], there, rest, strict=False)
        return [repr(first), *[text if is_it else repr(value) for is_it, text, value in known]]

    return [texts(column) for column in schema._layout]


def _texts(values: Tensor) -> list[str]:
    """Return values [N] as text; `repr` of a float is the shortest text that reads back as the same float."""
    return list(map(repr, values.tolist()))


def read_csv(path: FilePath) -> tuple[Schema, Transitions]:
    """Read a file that `write_csv` wrote; its columns may be in any order."""
    try:
        check_regular(path)
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            schema = _schema_of(path, header)
            dtypes = {column.name: DTYPES[column.field] for column in schema._layout}
            rows = [_parse_row(f"'{path}', line {reader.line_num}", header, dtypes, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"'{path}' cannot be read as CSV: {reason(error)}; give a file that to_csv wrote") from error
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    tensors = {
        name: torch.tensor(values, dtype=dtypes[name], device="cpu")
        for name, values in zip(header, columns, strict=True)
    }
    return schema, _assemble(schema, tensors)


def write_parquet(path: FilePath, schema: Schema, steps: Transitions) -> None:
    """Write steps as Parquet, as float64, int64 and bool."""
    pa, pq = _pyarrow()
    table = pa.table({column.name: column.of(steps).numpy() for column in schema._layout})
    with replacing(path) as file:
        pq.write_table(table, file, write_page_checksum=True)


def read_parquet(path: FilePath) -> tuple[Schema, Transitions]:
    """Read a file that `write_parquet` wrote; its columns may be in any order."""
    pa, pq = _pyarrow()
    try:
        check_regular(path)
        with open(path, "rb") as file:
            table = pq.ParquetFile(file, page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"'{path}' cannot be read as Parquet: {reason(error)}; give a file that to_parquet wrote"
        ) from error
    schema = _schema_of(path, table.column_names)
    types = {torch.float64: pa.float64(), torch.int64: pa.int64(), torch.bool: pa.bool_()}
    tensors = {}
    for column in schema._layout:
        values, wanted = table.column(column.name), types[DTYPES[column.field]]
        if values.type != wanted or values.null_count:
            found = f"{values.null_count} empty cells" if values.type == wanted else f"the type {values.type}"
            raise UserError(f"'{path}': column '{column.name}' has {found}; it must be {wanted} without empty cells")
        tensors[column.name] = torch.from_numpy(np.array(values.to_numpy()))
    return schema, _assemble(schema, tensors)


def _pyarrow() -> tuple[Any, Any]:
    return needed("pyarrow", "pyarrow", "Parquet"), needed("pyarrow.parquet", "pyarrow", "Parquet")


def _schema_of(path: FilePath, header: Sequence[str]) -> Schema:
    """Return the schema that has these columns, in any order; raise UserError if there is none."""

    def named(*prefixes: str) -> tuple[str, ...]:
        found = [(name, p) for name in header for p in prefixes if name.startswith(p) and name != p]
        # If there is none, a placeholder lets the comparison below name what is missing.
        return tuple(dict.fromkeys(name[len(p) :] for name, p in found)) or ("…",)

    schema = Schema(named("x:", "next:"), named("u:"), named("safety:", "violation:"))
    missing = [name for name in schema.columns if name not in header]
    unknown = [name for name in header if name not in schema.columns]
    twice = sorted({name for name in header if header.count(name) > 1})
    words = [
        f"{word} {', '.join(map(repr, names))}"
        for word, names in (("lacks", missing), ("has the unknown", unknown), ("repeats", twice))
        if names
    ]
    if words:
        raise UserError(f"'{path}' is not a table of transitions: its header {'; it '.join(words)}")
    return schema


def _parse_row(where: str, header: Sequence[str], dtypes: Mapping[str, torch.dtype], row: Sequence[str]) -> list[Any]:
    """Parse a line of a CSV file."""
    if len(row) != len(header):
        raise UserError(f"{where} has {len(row)} fields; the header has {len(header)}. Is the file complete?")
    values = []
    for name, text in zip(header, row, strict=True):
        try:
            if "_" in text:
                raise ValueError("Python reads 1_0 as ten, but in a table it is a typing error")
            values.append(_PARSE[dtypes[name]](text))
        except (ValueError, KeyError) as error:
            raise UserError(f"{where}, column '{name}': {text!r} is not {_IN_WORDS[dtypes[name]]}") from error
    return values


def _whole_number(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


_PARSE: dict[torch.dtype, Callable[[str], Any]] = {
    torch.float64: float,
    torch.int64: _whole_number,
    torch.bool: lambda text: {"true": True, "false": False}[text.lower()],
}


def _assemble(schema: Schema, columns: Mapping[str, Tensor]) -> Transitions:
    """Make transitions from their columns [N] by name."""
    parts: dict[str, list[Tensor]] = {}
    for column in schema._layout:
        parts.setdefault(column.field, []).append(columns[column.name])
    return Transitions(
        **{name: torch.stack(part, 1) if name in schema._widths else part[0] for name, part in parts.items()}
    )
