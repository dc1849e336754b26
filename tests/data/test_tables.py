import contextlib
import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from samba_rl import UserError
from samba_rl.data import DataSet, tables
from samba_rl.types import Transitions
from tests.data.examples import NASTY, SCHEMA, alter, data_sets, full, same, steps

Cells = tuple[Path, list[list[str]]]


@pytest.fixture
def table(tmp_path: Path) -> Cells:
    """Write a CSV file; return its path and cells."""
    full({0: 2, 1: 2}, ends=(0,)).to_csv(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as file:
        return tmp_path / "t.csv", list(csv.reader(file))


def rewrite(path: Path, cells: list[list[str]]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(cells)


# Writing --------------------------------------------------------------------------------------------------------------


def by_the_csv_module(data: DataSet) -> bytes:
    """Write the columns with Python's own writer, which writes floats by `repr`."""
    text = io.StringIO(newline="")
    columns = [column.of(data.transitions).tolist() for column in data.schema._layout]
    csv.writer(text).writerows([data.schema.columns, *zip(*columns, strict=True)])
    return text.getvalue().encode()


@settings(max_examples=60, deadline=None)
@given(data_sets(), st.integers(1, 4))
def test_lines_match_the_csv_module_for_any_number_formatted_at_once(data: DataSet, at_once: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "AT_ONCE", at_once)
        path = Path(folder) / "t.csv"
        data.to_csv(path)
        assert path.read_bytes() == by_the_csv_module(data)


def test_steps_that_do_not_follow_each_other_are_written_correctly(tmp_path: Path) -> None:
    # The text of a state is reused only if every bit is the same: 0 is not -0.
    torn = alter("x", (1, 0), -0.0)(alter("x_next", (0, 0), 0.0)(steps({0: 3, 1: 2})))
    torn = alter("x", (2, 1), NASTY[1])(torn)
    tables.append_csv(tmp_path / "t.csv", SCHEMA, torn, anew=True)
    _, back = tables.read_csv(tmp_path / "t.csv")
    assert same(back, torn)


def test_a_table_can_be_written_in_parts(tmp_path: Path) -> None:
    data = full({0: 3, 1: 4})
    data.to_csv(tmp_path / "whole.csv")
    parts = [slice(0, 2), slice(2, 2), slice(2, 7)]
    (tmp_path / "parts.csv").write_text("previous content")
    for i, rows in enumerate(parts):
        part = Transitions(**{name: value[rows] for name, value in vars(data.transitions).items()})
        tables.append_csv(tmp_path / "parts.csv", SCHEMA, part, anew=i == 0)
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


# Reading --------------------------------------------------------------------------------------------------------------


def test_unusable_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written; give the name of a file in a folder that exists"):
        full({0: 1}).to_csv(tmp_path / "no" / "data.csv")
    with pytest.raises(UserError, match="cannot be written"):
        full({0: 1}).to_csv(tmp_path)
    with pytest.raises(UserError, match=r"none\.csv' cannot be read as CSV: .*No such file"):
        DataSet.from_csv(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(b"episode,step,x:\xe9\n")
    with pytest.raises(UserError, match=r"latin\.csv' cannot be read as CSV: .*utf-8"):
        DataSet.from_csv(tmp_path / "latin.csv")


def test_columns_may_be_in_any_order(table: Cells) -> None:
    path, cells = table
    data = DataSet.from_csv(path)
    rewrite(path, [row[::-1] for row in cells])
    back = DataSet.from_csv(path)
    assert back.schema.states == ("θ̇", "θ") and torch.equal(back.transitions.x, data.transitions.x.flip(1))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert same(DataSet.from_csv(path).transitions, back.transitions)


@pytest.mark.parametrize(
    ("column", "name", "message"),
    [
        (0, "episodes", "header lacks 'episode'; it has the unknown 'episodes'"),
        (3, "x:θ̇", "header lacks 'x:θ'; it repeats 'x:θ̇'"),
        (5, "torque", "header lacks 'u:…'; it has the unknown 'torque'"),
        (6, "next:ω", "header lacks 'x:ω', 'next:θ'"),
        (11, "violation:", "header lacks 'violation:hazard'; it has the unknown 'violation:'"),
    ],
)
def test_wrong_headers(table: Cells, column: int, name: str, message: str) -> None:
    path, cells = table
    cells[0][column] = name
    rewrite(path, cells)
    with pytest.raises(UserError, match=rf"t\.csv' is not a table of transitions: its {message}"):
        DataSet.from_csv(path)


@pytest.mark.parametrize(
    ("row", "column", "text", "message"),
    [
        (1, 3, "0.1.2", r"t\.csv', line 2, column 'x:θ': '0\.1\.2' is not a number"),
        (2, 8, "", r"line 3, column 'cost': '' is not a number"),
        (2, 8, "1_0", r"line 3, column 'cost': '1_0' is not a number"),
        (3, 0, "1.0", r"line 4, column 'episode': '1\.0' is not a whole number"),
        (3, 0, str(2**63), r"line 4, column 'episode': '9223372036854775808' is not a whole number"),
        (4, 2, "yes", r"line 5, column 'terminated': 'yes' is not True or False"),
        (4, 8, "nan", r"t\.csv': episode 1, step 1: 'cost' is nan"),
        (4, 8, "1e999", r"t\.csv': episode 1, step 1: 'cost' is inf"),
        (2, 3, "0.5", r"t\.csv': episode 0, step 1 starts at 'θ' = 0\.5"),
    ],
)
def test_wrong_cells(table: Cells, row: int, column: int, text: str, message: str) -> None:
    path, cells = table
    cells[row][column] = text
    rewrite(path, cells)
    with pytest.raises(UserError, match=message):
        DataSet.from_csv(path)


def test_a_truncated_file_is_an_error_or_gives_whole_lines(table: Cells) -> None:
    path, _ = table
    data, whole = DataSet.from_csv(path), path.read_bytes()
    read = {}
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with contextlib.suppress(UserError):
            read[cut] = DataSet.from_csv(path).transitions
    # Each line ends with complete text, then \r, then \n.
    ends = [i for i in range(len(whole)) if whole[i : i + 2] == b"\r\n"]
    assert sorted(read) == [i + k for i in ends for k in range(3) if i + k < len(whole)]
    for cut, part in read.items():
        n = sum(end <= cut for end in ends) - 1
        assert len(part) == n and torch.equal(part.x, data.transitions.x[:n])
        assert torch.equal(part.violation, data.transitions.violation[:n])
    path.write_bytes(whole + b'0,1,"')
    with pytest.raises(UserError, match="cannot be read as CSV: unexpected end of data"):
        DataSet.from_csv(path)
    path.write_bytes(whole + b"0,2\r\n")
    with pytest.raises(UserError, match="line 6 has 2 fields; the header has 13"):
        DataSet.from_csv(path)


def test_wrong_parquet_files(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    full({0: 3}).to_parquet(path)
    good, content = pq.read_table(path), path.read_bytes()
    assert [str(good.schema.field(name).type) for name in ("episode", "terminated", "cost")] == [
        "int64",
        "bool",
        "double",
    ]

    def written(name: str, column: Any) -> Path:
        pq.write_table(good.set_column(good.column_names.index(name), name, column), path)
        return path

    with pytest.raises(UserError, match=r"t\.parquet': column 'cost' has the type float; it must be double"):
        DataSet.from_parquet(written("cost", good["cost"].cast(pa.float32())))
    with pytest.raises(UserError, match="column 'u:torque' has 1 empty cells"):
        DataSet.from_parquet(written("u:torque", pa.array([1.0, None, 2.0])))
    pq.write_table(good.drop_columns(["step"]), path)
    with pytest.raises(UserError, match="its header lacks 'step'"):
        DataSet.from_parquet(path)
    path.write_bytes(content[:-9])
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        DataSet.from_parquet(path)
    with pytest.raises(UserError, match=r"cannot be read as Parquet: .*No such file"):
        DataSet.from_parquet(tmp_path / "none.parquet")


def test_a_damaged_parquet_file_never_gives_wrong_values(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path, data = tmp_path / "t.parquet", full({0: 3})
    data.to_parquet(path)
    content = path.read_bytes()
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for i in range(4, pages, 3):
        path.write_bytes(content[:i] + bytes([content[i] ^ 16]) + content[i + 1 :])
        try:
            assert same(DataSet.from_parquet(path).transitions, data.transitions)
        except UserError:
            refused += 1
    assert refused > 100
