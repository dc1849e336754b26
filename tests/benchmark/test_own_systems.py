"""Systems of the user's own in a grid."""

from dataclasses import replace
from pathlib import Path

import pytest

from samba_rl import UserError
from samba_rl.benchmark.cells import Cell
from samba_rl.benchmark.grid import Grid
from samba_rl.benchmark.groups import limit_of
from samba_rl.benchmark.running import run_cell
from samba_rl.benchmark.tables import all_tables
from tests.benchmark.results import a_result
from tests.cli.commands import LINE
from tests.threads import one_thread


def test_cells_are_on_the_system_that_the_function_returns() -> None:
    (one,) = Grid(learners=("ppilco",), tasks=(LINE,), seeds=1, preset="smoke").cells()
    assert one == Cell("line", "ppilco", 100, "smoke", where=LINE) and one.name == "line-ppilco-smoke-100"
    assert one.settings(one.system()).real_samples == 120 and one.shown == "ppilco"


def test_a_rig_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from samba_rl import GymTask\nfrom tests.tasks.own_envs import Drift\n\n\ndef rig():\n"
        "    return GymTask(Drift(), horizon=5)\n"
    )
    with pytest.raises(UserError, match="is a rig; a grid of runs would use it for days"):
        Grid(tasks=(f"{tmp_path / 'mine.py'}:rig",)).cells()


def test_a_cell_runs_and_its_result_gets_into_the_tables(tmp_path: Path) -> None:
    cell = Cell(
        "line", "sppilco", 3, "smoke", where=LINE, changes=(("real_samples", "70"), ("constraint.limit", "1.5"))
    )
    with one_thread():
        result = run_cell(cell, tmp_path / cell.name, steps=50, workers=0)
    assert result.real_samples == 70 and result.cell == cell
    assert limit_of(result) == 1.5
    tables = all_tables([result])
    assert any("real_samples 70" in str(table) for table in tables)
    with pytest.raises(UserError, match="returned the system 'line'; the cell is on 'other'"):
        run_cell(replace(cell, task="other"), tmp_path / "other", steps=50, workers=0)


def test_reading_a_result_runs_no_code(tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    cell = Cell("line", "samba", 1, "smoke", limit=0.5, budget_scale=0.5, where=f"{trap}:task")
    result = replace(a_result(cell), cell=cell)
    limit_of(result)
    all_tables([result])
    assert not (tmp_path / "sprung").exists()
