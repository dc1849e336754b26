"""Modules beside a user's file."""

import sys
from pathlib import Path

import cloudpickle
import pytest

from samba_rl.own import importable, load_function

MINE = """
import helpers
from kit.parts import THREE


def total(x):
    from late import one
    return helpers.twice(x) + THREE + one()


def make():
    from late import one
    return one()


def plain(x):
    return helpers.twice(x) + THREE
"""


def lab(folder: Path, factor: int) -> Path:
    """Write a user's file with a module, a package and a module that is imported late."""
    (folder / "kit").mkdir(parents=True)
    (folder / "kit" / "__init__.py").write_text("")
    (folder / "kit" / "parts.py").write_text("THREE = 3\n")
    (folder / "helpers.py").write_text(f"def twice(x):\n    return {factor} * x\n")
    (folder / "late.py").write_text("def one():\n    return 1\n")
    (folder / "mine.py").write_text(MINE)
    return folder / "mine.py"


def test_siblings_are_found_and_nothing_of_them_stays(tmp_path: Path) -> None:
    modules, path = set(sys.modules), list(sys.path)
    first = load_function(f"{lab(tmp_path / 'a', 2)}:plain")
    second = load_function(f"{lab(tmp_path / 'b', 5)}:plain")
    assert (first(4), second(4)) == (11, 23)
    assert set(sys.modules) == modules and sys.path == path
    # Another process, which cannot find the folder, gets the modules by value.
    sent = cloudpickle.dumps(second)
    (tmp_path / "b" / "helpers.py").unlink()
    assert cloudpickle.loads(sent)(4) == 23


def test_what_is_installed_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise AssertionError('this is not the one')\n")
    (tmp_path / "gpytorch").mkdir()
    for name in [name for name in sys.modules if name == "json.tool"]:
        del sys.modules[name]
    with importable(tmp_path):
        import json.tool

        import gpytorch

        assert hasattr(json.tool, "main") and gpytorch.__file__ is not None
    assert "gpytorch" in sys.modules


def test_a_folder_without_init_is_a_package_where_there_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "part.py").write_text("SEVEN = 7\n")
    (tmp_path / "mine.py").write_text("from loose.part import SEVEN\n\n\ndef get():\n    return SEVEN\n")
    assert load_function(f"{tmp_path / 'mine.py'}:get")() == 7
    assert not any(name.partition(".")[0] == "loose" for name in sys.modules)


def test_a_folder_on_the_path_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "on_the_path_anyway.py").write_text("NINE = 9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with importable(tmp_path):
        __import__("on_the_path_anyway")
    assert sys.modules.pop("on_the_path_anyway").NINE == 9
