"""The README and the docs: their Python blocks run, and their tables, pictures and links match the repository."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import samba_rl
from samba_rl.benchmark.writers import WRITERS
from samba_rl.cli import COMMANDS, main
from samba_rl.improve.constraints import KINDS
from tests.threads import one_thread

ROOT = Path(__file__).parent.parent
BUILT = ROOT / "docs" / "_build"
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if BUILT not in path.parents
)
TUTORIALS = [page for page in PAGES if page.startswith("docs/tutorials/")]
"""Pages whose cells run when the documentation is built; see `test_the_documentation_builds`."""
NEEDS = {
    "README.md": ("mujoco",),
    "docs/advise.md": ("matplotlib",),
    "docs/data.md": ("minari", "pyarrow"),
    "docs/export.md": ("onnx", "onnxruntime"),
    "docs/own-system.md": ("mujoco",),
}
"""Optional packages that a page's blocks import."""
BESIDE = {"docs/rig.md": ("examples/rig/cart.py",)}
"""Files that a page's blocks find beside them."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text_of(name), flags=re.S)


def script(name: str) -> ModuleType:
    """Import a script of the docs."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "docs" / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_blocks(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the blocks of a page one after the other in an empty folder, each as a script of its own.

    A later one finds the files that an earlier one has written, and nothing else. Returns the names of the last one.
    """
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
    monkeypatch.setattr("samba_rl.improve.own_constraint.KINDS", dict(KINDS))
    for file in BESIDE.get(name, ()):
        shutil.copy(ROOT / file, folder)
    monkeypatch.syspath_prepend(folder)
    names: dict[str, Any] = {}
    with one_thread():
        for number, block in enumerate(blocks(name), 1):
            names = {"__name__": "__main__"}
            exec(compile(block, f"{name}, block {number}", "exec"), names)
    for file in BESIDE.get(name, ()):
        sys.modules.pop(Path(file).stem, None)
    return names


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page != "docs/command-line.md"])
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks(page, tmp_path, monkeypatch)


def test_a_system_of_ones_own_takes_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = blocks("docs/own-system.md")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(first)
    assert main(["check-env", "mine.py:task"]) == 0 and main(["tasks", "mine.py:task"]) == 0
    assert main(["rollout", "mine.py:task", "--episodes", "2", "--workers", "0"]) == 0
    short = [
        "--preset",
        "smoke",
        "--learner",
        "ppilco",
        "--workers",
        "0",
        "--real-samples",
        "120",
        "--first.samples",
        "60",
    ]
    with one_thread():
        assert main(["train", "mine.py:task", *short, "--no-evaluation", "--no-pictures", "--out", "run"]) == 0


def test_the_page_about_the_command_line_trains_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_blocks("docs/command-line.md", tmp_path, monkeypatch)
    assert names["again"].settings == names["run"].settings and names["run"].settings.constraint.limit == 1.5


def test_the_pages_with_examples_have_some() -> None:
    shown = {page for page in PAGES if blocks(page)}
    pages = ("command-line", "data", "durability", "learning", "model", "own-system", "systems")
    assert shown >= {"README.md", *(f"docs/{page}.md" for page in pages)}


def test_the_tables_are_those_of_the_results() -> None:
    made = script("tables.py")
    found, again = made.tables(), "run python docs/tables.py to write them again"
    for (file, name), text in made.blocks(found).items():
        assert made.block(name).findall(text_of(file)) == [text], again
    for table in found:
        for suffix, form in WRITERS.items():
            path = ROOT / "results" / "tables" / f"{table.name}{suffix}"
            assert path.read_text(encoding="utf-8") == form(table), again


def test_the_picture_of_the_rooms_shows_the_code_as_it_is() -> None:
    for package in ("grimp", "importlinter", "matplotlib"):
        pytest.importorskip(package)
    made = script("rooms.py")
    found, (names, imports) = made.rooms(), made.drawn()
    assert names == found.names == list(made.CONTENTS), "run python docs/rooms.py to draw it again"
    assert imports == set(found.imports), "run python docs/rooms.py to draw it again"
    order = {name: place for place, name in enumerate(names)}
    assert all(order[importing] < order[imported] for importing, imported in imports)


def test_the_way_through_samba_names_files_that_exist() -> None:
    section = text_of("docs/architecture.md").split("## Following SAMBA")[1].split("## ")[0]
    files = re.findall(r"^\| `(samba_rl/[\w/]+\.py)`", section, flags=re.M)
    assert len(files) == 14 and files[:2] == ["samba_rl/learners.py", "samba_rl/algorithm.py"]
    assert all((ROOT / file).is_file() for file in files)


def test_every_page_is_in_one_table_of_contents() -> None:
    listed = []
    for page in PAGES:
        trees = re.findall(r"```\{toctree\}\n(.*?)```", text_of(page), flags=re.S)
        lines = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
        listed += [((ROOT / page).parent / f"{line}.md").resolve().relative_to(ROOT).as_posix() for line in lines]
    assert sorted(listed) == [page for page in PAGES if page.startswith("docs/") and page != "docs/index.md"]


def test_the_reference_has_every_public_name_once() -> None:
    pages = "\n".join(text_of(page) for page in PAGES if page.startswith("docs/api/"))
    described = re.findall(r"^\.\. (?:autofunction|autoclass|py:data):: samba_rl\.(\w+)$", pages, flags=re.M)
    assert sorted(described) == samba_rl.__all__
    summary = text_of("docs/api.md")
    listed = re.findall(r"^   ([A-Za-z]\w+)$|`samba_rl\.(\w+)` holds", summary, flags=re.M)
    assert sorted(a or b for a, b in listed) == samba_rl.__all__


def test_the_page_about_the_command_line_has_every_command() -> None:
    described = set(re.findall(r"^`samba-rl ([\w-]+)", text_of("docs/command-line.md"), flags=re.M))
    assert described == set(COMMANDS)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_of_each_command_can_be_put_on_a_page(command: str) -> None:
    pytest.importorskip("sphinx")
    assert "usage: samba-rl" in script("extensions/pages.py").help_of(command)


@pytest.mark.parametrize("page", TUTORIALS)
def test_the_cells_of_a_tutorial_are_code(page: str) -> None:
    cells = re.findall(r"```\{code-cell\}\n(?::tags:[^\n]*\n)?(.*?)```", text_of(page), flags=re.S)
    assert len(cells) >= 3
    for cell in cells:
        if cell.startswith("%%bash\n"):
            commands = re.findall(r"^samba-rl ([\w-]+)", cell, flags=re.M)
            assert set(commands) <= set(COMMANDS)
        else:
            compile(cell, page, "exec")


def test_dead_links_are_found(tmp_path: Path) -> None:
    links = script("links.py")
    good = (
        '<p id="here"><a href="#here">here</a> <a href="b.html#there">b</a> <a href="https://example.org">away</a></p>'
    )
    (tmp_path / "a.html").write_text(good + '<img src="c.svg"><link rel="canonical" href="https://example.org/a">')
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    (tmp_path / "c.svg").write_text("<svg/>")
    assert links.problems(tmp_path) == []
    bad = '<a href="d.html">d</a><a href="b.html#nowhere">b</a><script src="https://example.org/x.js"></script>'
    (tmp_path / "a.html").write_text(bad)
    assert links.problems(tmp_path) == [
        "a.html: d.html leads to no file",
        "a.html: b.html#nowhere leads to a page without that place",
        "a.html: loads https://example.org/x.js from a network",
    ]


@pytest.mark.slow
def test_the_documentation_builds(tmp_path: Path) -> None:
    pytest.importorskip("myst_nb")
    site = tmp_path / "html"
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "-d", str(tmp_path / "doctrees")]
    subprocess.run([*build, str(ROOT / "docs"), str(site)], check=True)
    assert script("links.py").problems(site) == []
    assert "<svg" in (site / "systems.html").read_text() and "$$" not in (site / "systems.html").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_pictures_and_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"```.*?```|`[^`\n]*`", "", text_of(page), flags=re.S)):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target
