"""Logs of other programs."""

from pathlib import Path

import numpy as np
import pytest

from samba_rl import UserError
from samba_rl.data.logs import header_of, read_log


def written(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "form", ["t,x\n0,1.5\n1,\n\n2,nan\n", "\ufefft;x\n0;1.5\n1;\n\n2;nan\n", "t, x\n0, 1.5\n1, \n2,NaN"]
)
def test_cells_are_numbers_and_empty_ones_are_nan(form: str, tmp_path: Path) -> None:
    log = read_log(written(tmp_path, form))
    assert list(log.columns) == ["t", "x"] and log.columns["t"].tolist() == [0, 1, 2]
    assert log.columns["x"][0] == 1.5 and np.isnan(log.columns["x"][1:]).all()
    assert log.lines.tolist() == ([2, 3, 5] if "\n\n" in form else [2, 3, 4])


def test_truth_values_are_one_and_zero(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, "unsafe\nTrue\nfalse\n"))
    assert log.columns["unsafe"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t,x\n0,1\n1,fast\n", r"log\.csv', line 3, column 'x': 'fast' is not a number"),
        ("t,x\n0,1_0\n", r"line 2, column 'x': '1_0' is not a number"),
        ("t,x\n0\n", r"line 2 has 1 fields; the header has 2\. Is the file complete"),
        ("t,x,t\n0,1,2\n", r"has the columns 't' twice"),
        ("", "has no header"),
        ('t\n"0', "cannot be read as CSV"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read_log(written(tmp_path, text))


def test_parquet(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"t": pa.array([0, 1]), "x": pa.array([0.5, None]), "bad": pa.array([True, False])}), path)
    log = read_log(path)
    assert header_of(path) == ["t", "x", "bad"] and log.line == "row" and log.lines.tolist() == [1, 2]
    assert log.columns["t"].tolist() == [0, 1] and log.columns["bad"].tolist() == [1, 0]
    assert log.columns["x"][0] == 0.5 and np.isnan(log.columns["x"][1])
    pq.write_table(pa.table({"t": pa.array(["a"])}), path)
    with pytest.raises(UserError, match="column 't' has the type string; it must be numbers"):
        read_log(path)
    path.write_bytes(b"PAR1")
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        header_of(path)


def test_columns_are_found_by_name_or_as_mapped(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, "t,angle\n0,1\n"))
    assert log.find(["x:angle", "angle"], {}) == "angle" and log.find(["speed"], {}) is None
    assert log.find(["time"], {"time": "t"}) == "t"
    with pytest.raises(UserError, match=r"log\.csv' has no column 'angel' \(for x\); did you mean 'angle'"):
        log.find(["x"], {"x": "angel"})
