"""What the README and the docs show is run as it stands."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from samba_rl.benchmark.writers import WRITERS
from tests.threads import one_thread

ROOT = Path(__file__).parent.parent


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.S)


@pytest.mark.parametrize("later", ["docs/model.md", "docs/data.md", "docs/own-system.md"])
def test_examples_run(later: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's blocks one after the other, then those of a page that builds on them."""
    for package in ("mujoco", "minari", "pyarrow"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks("README.md") + blocks(later)):
        exec(compile(block, f"block {number}", "exec"), names)
    assert float(names["traces"].returns.mean()) < 0


def test_the_page_about_the_command_line_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with one_thread():
        for block in blocks("docs/command-line.md"):
            exec(compile(block, "block", "exec"), names)
    assert names["again"].settings == names["run"].settings and names["run"].settings.constraint.limit == 1.5


def test_the_tables_are_those_of_the_results() -> None:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    found, again = made.tables(), "python docs/tables.py makes them anew"
    assert made.BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")) == [made.shown(found)], again
    for table in found:
        for suffix, form in WRITERS.items():
            path = ROOT / "results" / "tables" / f"{table.name}{suffix}"
            assert path.read_text(encoding="utf-8") == form(table), again


def test_there_is_something_to_run() -> None:
    assert len(blocks("README.md")) >= 4 and blocks("docs/model.md") and blocks("docs/data.md")


def test_the_pictures_that_are_shown_exist() -> None:
    for name in ("README.md", "docs/index.md"):
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (ROOT / name).read_text()):
            assert ((ROOT / name).parent / target).is_file()
