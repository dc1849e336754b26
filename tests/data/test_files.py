import os
import sys
from pathlib import Path
from typing import Any

import pytest

from samba_rl import UserError
from samba_rl.data import DataSet
from tests.data.examples import full, needs


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(
    kind: str, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(kind)
    path = tmp_path / f"data.{kind}"
    getattr(full({0: 3}), f"to_{kind}")(path)
    old = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="no space left"):
        getattr(full({0: 9}), f"to_{kind}")(path)
    assert path.read_bytes() == old and os.listdir(tmp_path) == [path.name]
    monkeypatch.undo()
    getattr(full({0: 9}), f"to_{kind}")(path)
    assert len(getattr(DataSet, f"from_{kind}")(path)) == 9 and os.listdir(tmp_path) == [path.name]


def test_an_interrupted_parquet_writer_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    full({0: 3}).to_parquet(tmp_path / "data.parquet")

    def half(table: Any, file: Any, **_: Any) -> None:
        file.write(b"PAR1 and then")
        raise KeyboardInterrupt

    monkeypatch.setattr(parquet, "write_table", half)
    with pytest.raises(KeyboardInterrupt):
        full({0: 9}).to_parquet(tmp_path / "data.parquet")
    assert os.listdir(tmp_path) == ["data.parquet"] and len(DataSet.from_parquet(tmp_path / "data.parquet")) == 3


def test_writing_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near.csv").symlink_to(tmp_path / "far" / "data.csv")
    full({0: 3}).to_csv(tmp_path / "near.csv")
    assert (tmp_path / "near.csv").is_symlink() and len(DataSet.from_csv(tmp_path / "far" / "data.csv")) == 3


@pytest.mark.parametrize(("kind", "package"), [("parquet", "pyarrow"), ("minari", "minari"), ("minari", "h5py")])
def test_missing_packages(kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(kind)
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"needs the package '{package}'; install it with: pip install 'samba-rl\[data\]'"
    with pytest.raises(UserError, match=message):
        getattr(full({0: 1}), f"to_{kind}")(str(tmp_path / "data"))
    with pytest.raises(UserError, match=message):
        getattr(DataSet, f"from_{kind}")(str(tmp_path / "data"))
