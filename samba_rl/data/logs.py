"""Logs of other programs: tables of numbers with a line for each sample, as they were recorded on a rig."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from samba_rl.data.files import FilePath, check_regular, needed, reason
from samba_rl.errors import UserError, did_you_mean

Floats = NDArray[np.float64]
_TRUTH = {"true": 1.0, "false": 0.0, "": np.nan}


@final
@dataclass(frozen=True)
class Log:
    """A table of numbers; empty cells are NaN."""

    where: str
    """Name of the file."""
    columns: Mapping[str, Floats]
    """Values [N] of each column, by name."""
    lines: NDArray[np.int64]
    """Line of the file, or number of the row, of each sample [N]."""
    line: str = "line"
    """What a line is called in messages."""

    def __len__(self) -> int:
        return len(self.lines)

    def find(self, names: Sequence[str], mapping: Mapping[str, str]) -> str | None:
        """Return the column for a quantity of any of these names, as the user mapped it or as it is called."""
        for name in names:
            if name in mapping:
                column = mapping[name]
                if column not in self.columns:
                    raise UserError(
                        f"'{self.where}' has no column '{column}' (for {name}); {did_you_mean(column, self.columns)}"
                    )
                return column
        return next((name for name in names if name in self.columns), None)


def read_log(path: FilePath) -> Log:
    """Read a CSV or Parquet file as a log."""
    return _read_parquet(path) if Path(path).suffix.lower() == ".parquet" else _read_csv(path)


def header_of(path: FilePath) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file."""
    if Path(path).suffix.lower() != ".parquet":
        try:
            check_regular(path)
            with open(path, encoding="utf-8-sig", newline="") as file:
                first = file.readline()
                return next(csv.reader([first], delimiter=delimiter_of(first)), [])
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise _unreadable(path, "CSV", error) from error
    pa = needed("pyarrow", "pyarrow", "Parquet")
    pq = needed("pyarrow.parquet", "pyarrow", "Parquet")
    try:
        check_regular(path)
        names: list[str] = pq.ParquetFile(str(path)).schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, "Parquet", error) from error
    return names


def _read_csv(path: FilePath) -> Log:
    try:
        check_regular(path)
        with open(path, encoding="utf-8-sig", newline="") as file:
            delimiter = delimiter_of(file.readline())
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = [name.strip() for name in next(reader, [])]
            _check_header(path, header)
            rows, lines = [], []
            for row in reader:
                if row:
                    rows.append(_numbers(f"'{path}', line {reader.line_num}", header, with_points(row, delimiter)))
                    lines.append(reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, "CSV", error) from error
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(header))
    return Log(str(path), {name: table[:, i] for i, name in enumerate(header)}, np.array(lines, dtype=np.int64))


def delimiter_of(header: str) -> str:
    """Return what separates the cells: a semicolon where decimal commas are common, and in numbers stand for points."""
    return ";" if ";" in header and "," not in header else ","


def with_points(cells: Sequence[str], delimiter: str) -> list[str]:
    """Return the cells of a row with decimal points; decimal commas can only be in files that a semicolon separates."""
    return [cell.replace(",", ".") for cell in cells] if delimiter == ";" else list(cells)


def _check_header(path: FilePath, header: Sequence[str]) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if not header or twice:
        raise UserError(
            f"'{path}' has " + (f"the columns {', '.join(map(repr, twice))} twice" if twice else "no header")
        )


def _numbers(where: str, header: Sequence[str], row: Sequence[str]) -> list[float]:
    if len(row) != len(header):
        raise UserError(f"{where} has {len(row)} fields; the header has {len(header)}. Is the file complete?")
    values = []
    for name, cell in zip(header, row, strict=True):
        text = cell.strip().lower()
        try:
            if "_" in text:
                raise ValueError
            values.append(_TRUTH[text] if text in _TRUTH else float(text))
        except ValueError as error:
            raise UserError(f"{where}, column '{name}': {cell!r} is not a number") from error
    return values


def _read_parquet(path: FilePath) -> Log:
    pa = needed("pyarrow", "pyarrow", "Parquet")
    pq = needed("pyarrow.parquet", "pyarrow", "Parquet")
    try:
        check_regular(path)
        table = pq.ParquetFile(str(path)).read()
        _check_header(path, table.column_names)
        columns = {}
        for name in table.column_names:
            values = table.column(name)
            try:
                columns[name] = np.array(values.cast(pa.float64()).to_numpy(), dtype=np.float64)
            except (pa.ArrowException, ValueError) as error:
                raise UserError(f"'{path}': column '{name}' has the type {values.type}; it must be numbers") from error
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, "Parquet", error) from error
    return Log(str(path), columns, np.arange(1, len(table) + 1), line="row")


def _unreadable(path: FilePath, form: str, error: Exception) -> UserError:
    return UserError(f"'{path}' cannot be read as {form}: {reason(error)}")
