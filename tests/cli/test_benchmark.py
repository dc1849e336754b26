"""The command benchmark, end to end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from samba_rl.benchmark import exploration
from samba_rl.benchmark.cells import write_result
from samba_rl.cli import main
from tests.benchmark.results import a_result


def test_a_small_grid_from_the_command_to_its_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["benchmark", "smoke", "--learners", "ppo, sppo", "--steps", "60", "--jobs", "2"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "2 cells, 0 already finished" in told and "safe-pendulum-sppo-smoke-100: finished in" in told
    assert "| Safe Pendulum | SPPO | 0.75 | 1 | " in told
    names = {path.name for path in Path("results/tables").iterdir()}
    assert {"table-1-smoke.md", "table-1-smoke.csv", "table-1-smoke.tex", "table-2-smoke.md"} <= names
    # Once more: nothing is run again.
    before = {path: path.stat().st_mtime_ns for path in Path("results").glob("*.json")}
    assert main(command) == 0
    assert "2 cells, 2 already finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in Path("results").glob("*.json")} == before


def test_the_smoke_grid_has_as_many_seeds_as_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["benchmark", "smoke", "--learners", "ppo", "--seeds", "2", "--first-seed", "7", "--jobs", "1"]
    assert main([*command, "--steps", "60"]) == 0
    told = capsys.readouterr().out
    assert "2 cells, 0 already finished" in told and re.search(r"\| Safe Pendulum \| PPO \| [^|]+ \| 2 \| ", told)
    assert {path.stem[-1] for path in Path("results").glob("*.json")} == {"7", "8"}


def test_the_study_of_exploration_keeps_its_cells_and_writes_its_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = exploration.parts_of(["safe-pendulum"])
    monkeypatch.setattr(exploration, "PARTS", (replace(part, correlated_at=(20,)),))
    for cell in exploration.cells([part], ["none", "information"], [7, 8]):
        write_result(tmp_path, a_result(cell))
    command = ["benchmark", "exploration", "--signals", "none,information", "--seeds", "2", "--first-seed", "7"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "4 cells, 4 already finished" in told
    text = (tmp_path / "exploration.md").read_text(encoding="utf-8")
    assert text in told and "| information | 2 | 0 of 2 | -120.00 | +0.00 [+0.00, +0.00] |" in text
    assert "rank correlation of ζ" in text and "| loo-observed |" in text


def test_a_part_of_the_generality_suite_from_the_command_to_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    part = ["--systems", "mountain-car", "--noise", "with", "--limit", "without", "--seeds", "1"]
    command = ["benchmark", "generality", *part, "--preset", "smoke", "--steps", "80", "--jobs", "1"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "mountain-car-noisy-ppilco-smoke-5trials-100: finished in" in told
    assert re.search(r"\| MountainCarContinuous-v0 \| yes \| ppilco \| none \| 1 \| (0|100) \[", told)
    assert {path.suffix for path in Path("results/generality/tables").glob("generality-smoke.*")} >= {
        ".md",
        ".csv",
        ".tex",
    }
    assert main(command) == 0
    assert "1 cells, 1 already finished" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes as Linux lists them")
def test_a_benchmark_that_is_terminated_ends_its_cells(tmp_path: Path) -> None:
    command = ["-m", "samba_rl", "benchmark", "paper", "--learners", "samba", "--tasks", "safe-pendulum", "--jobs", "1"]
    grid = subprocess.Popen([sys.executable, *command], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    journal = tmp_path / "runs/benchmark/safe-pendulum-samba-default-100/real.journal"
    deadline = time.monotonic() + 60
    while not journal.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    children = Path(f"/proc/{grid.pid}/task/{grid.pid}/children").read_text().split()
    cells = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert cells
    grid.send_signal(signal.SIGTERM)
    told, _ = grid.communicate(timeout=60)
    assert grid.returncode == 130 and "run the same command again to continue" in told
    assert not [pid for pid in cells if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["paper", "--learners", "sambo"], "no learner is called 'sambo'; did you mean 'samba'?"),
        (["paper", "--tasks", "pendulum"], "no system is called 'pendulum'"),
        (["paper", "--limits", "0.25,lots"], "--limits 0.25,lots: give numbers separated by commas"),
        (["paper", "--signals", "none"], "--signals is not for paper, but for exploration"),
        (["exploration", "--seeds", "0"], "seeds = 0: must be at least 1 and at most 10000"),
        (["exploration", "--signals", "lou"], "no ζ is called 'lou'; did you mean 'loo'"),
        (["exploration", "--tasks", "safe-fetch-reach"], "the study of exploration has no system 'safe-fetch-reach'"),
        (["exploration", "--learners", "ppo"], "--learners is not for exploration, but for paper, smoke, generality"),
        (["paper", "--seeds", "0"], "seeds = 0: must be at least 1 and at most 10000"),
        (["generality", "--systems", "coarse"], "the suite has no system 'coarse'; did you mean 'course'?"),
        (
            ["generality", "--tasks", "safe-pendulum"],
            "--tasks is not for generality, but for paper, smoke",
        ),
        (["paper", "--noise", "with"], "--noise is not for paper, but for generality"),
        (["generality", "--learners", "ppo", "--limit", "with"], "--limit with: none of the learners ppo is so"),
        (["smoke", "--steps", "0"], "steps = 0: must be at least 1 and at most 1e9"),
        (["smoke", "--jobs", "0"], "jobs = 0: must be at least 1 and at most 1000"),
        (["smoke", "--ray", "127.0.0.1:1"], "no Ray cluster answers at '127.0.0.1:1'"),
    ],
)
def test_wrong_arguments_are_answered(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("results/*.json"))
