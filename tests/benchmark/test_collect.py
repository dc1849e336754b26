"""Runs as cells: which runs belong together in a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samba_rl.benchmark.audit import FILE, Audited, read_audit
from samba_rl.benchmark.cells import Cell, write_result
from samba_rl.benchmark.collect import cell_of, collect, flat
from samba_rl.benchmark.running import run_cell
from samba_rl.data.plain import to_plain
from samba_rl.errors import UserError
from samba_rl.runs import load_run, train
from samba_rl.runs.checkpoints import signed
from samba_rl.runs.folder import EVALUATION, SUMMARY
from tests.threads import one_thread

PENDULUM = "safe-pendulum"


@pytest.fixture(autouse=True, scope="module")
def _threads() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize(
    ("changes", "cell"),
    [
        ({}, Cell(PENDULUM, "sppo", 3, "smoke")),
        ({"constraint": {"limit": 0.5, "per": "trajectory"}}, Cell(PENDULUM, "sppo", 3, "smoke", limit=0.5)),
        ({"real_samples": 120}, Cell(PENDULUM, "sppo", 3, "smoke", budget_scale=0.5)),
        ({"policy": {"hidden": (8,)}}, Cell(PENDULUM, "sppo", 3, "smoke with policy.hidden [8]")),
    ],
)
def test_a_run_belongs_to_the_cell_of_its_settings(changes: dict[str, Any], cell: Cell) -> None:
    usual = cell.settings().real_samples if cell.preset == "smoke" else 0
    assert changes.get("real_samples", usual) == usual
    run = train(PENDULUM, "sppo", preset="smoke", seed=3, **changes)
    assert cell_of(run) == cell


def test_a_run_and_its_result_are_one(tmp_path: Path) -> None:
    cell = Cell(PENDULUM, "ppo", 3, "smoke")
    result = run_cell(cell, tmp_path / "runs" / "deep" / "one", steps=100)
    write_result(tmp_path / "results", result)
    told: list[str] = []
    # The run alone is evaluated; together with its result it is not.
    (alone,) = collect([tmp_path / "runs"], steps=100, tell=told.append)
    assert told == ["Evaluating one: 100 steps"] and alone.result is not None
    assert alone.result.with_noise == result.with_noise and alone.result.curve == result.curve
    (both,) = collect([tmp_path / "runs", tmp_path / "results"], tell=told.append)
    assert both.result == result and both.run is not None and len(told) == 1
    (only,) = collect([tmp_path / "results"])
    assert (only.result, only.run, only.state) == (result, None, "finished")
    assert only.settings == alone.settings and only.changed == ()
    assert dict(flat(to_plain(cell.settings()))).items() <= dict(only.settings or {}).items()
    # The result of another run of the same cell is kept apart.
    write_result(tmp_path / "others", replace(result, learning_TC=result.learning_TC + 1))
    mine, other = collect([tmp_path / "runs", tmp_path / "others"], steps=100)
    assert mine.result == alone.result and other.run is None and other.result != mine.result
    # A run that is given twice is still one.
    assert len(collect([tmp_path / "runs", tmp_path / "runs" / "deep"], steps=30)) == 1


def test_an_existing_evaluation_is_used(tmp_path: Path) -> None:
    run = train(PENDULUM, "ppo", preset="smoke", seed=3, out=tmp_path / "run")
    kept = run.evaluate(60)
    (tmp_path / "run" / EVALUATION).write_text(
        json.dumps(signed({"with_noise": to_plain(kept.to_json()), "without_noise": to_plain(kept.to_json())}))
    )
    told: list[str] = []
    (found,) = collect([tmp_path / "run"], tell=told.append)
    assert told == [] and found.result is not None and found.result.with_noise == kept


def test_an_unfinished_run_comes_with_the_way_out(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(PENDULUM, "ppo", preset="smoke", seed=3, out=run)
    (run / SUMMARY).unlink()
    (found,) = collect([run])
    assert (found.state, found.result, found.folder) == ("interrupted", None, run)
    assert found.seen is not None and found.seen.real_samples == found.curve[-1].real_samples > 0
    (run / "config.json").write_text("{")
    (found,) = collect([run])
    assert found.state == "damaged" and "config.json" in found.problem


def test_a_damaged_audit_is_named(tmp_path: Path) -> None:
    assert read_audit(tmp_path) == {}
    for text in ("{", "[]", '{"a": 1}', '{"1": null}', '{"1": [1]}'):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(UserError, match=r"audit\.json is damaged .*; remove it"):
            read_audit(tmp_path)
    (tmp_path / FILE).write_text('{"2": [0.5, -7]}')
    assert read_audit(tmp_path) == {2: Audited(0.5, -7)}
    (tmp_path / FILE).write_text('{"2": 0.5}')  # as version 0.1 wrote it
    (earlier,) = read_audit(tmp_path).values()
    assert earlier.value == 0.5 and math.isnan(earlier.return_mean)


def test_a_killed_cell_keeps_its_audit(tmp_path: Path) -> None:
    cell = Cell(PENDULUM, "samba", 3, "smoke")
    whole = run_cell(cell, tmp_path / "whole", steps=60)

    class Killed(BaseException):
        pass

    seen = 0

    def die(event: object) -> None:
        nonlocal seen
        seen += type(event).__name__ == "TrialReport"
        if seen == 3:
            raise Killed

    with pytest.raises(Killed):
        run_cell(cell, tmp_path / "cut", steps=60, log=die)
    assert len(read_audit(tmp_path / "cut")) >= 1
    assert run_cell(cell, tmp_path / "cut", steps=60).tail == whole.tail
    assert load_run(tmp_path / "cut").seed == 3
