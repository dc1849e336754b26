"""`samba-rl watch`: the curves of a run, while another process writes it and afterwards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from samba_rl.cli import main
from samba_rl.cli.plots import plot
from samba_rl.data.plain import to_plain
from samba_rl.events import Event, ImprovementReport, LatentReport, TrialReport
from samba_rl.runs.folder import CONFIG, METRICS
from samba_rl.runs.following import Follower, seconds_left
from samba_rl.runs.lock import Lock
from tests.cli.commands import LINE, error_of
from tests.report.runs import made

RUN = made(trials=4, controls=3)
MADE: list[TrialReport | ImprovementReport] = [*RUN.trials, *RUN.improvements]
EVENTS: list[Event] = [*sorted(MADE, key=lambda event: event.iteration)]


def row(event: Event) -> str:
    kind = {"TrialReport": "trial", "ImprovementReport": "improvement", "LatentReport": "latent"}[type(event).__name__]
    return json.dumps({"kind": kind, **to_plain(event)}) + "\n"


@pytest.fixture
def unfinished(smoke_run: Path, tmp_path: Path) -> Path:
    """A run without results, and with the events of another one."""
    folder = Path(shutil.copytree(smoke_run, tmp_path / "run", ignore=shutil.ignore_patterns("summary.json", "man*")))
    (folder / METRICS).write_text("".join(map(row, EVENTS)))
    return folder


def shown(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["watch", str(folder), *more]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_it_shows_return_safety_limits_multipliers_and_samples(
    unfinished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    before = {path: path.stat().st_mtime_ns for path in unfinished.rglob("*")}
    out = shown(unfinished, capsys, "--once")
    for words in (
        "safe-pendulum: samba, seed 2 interrupted",
        "120 of 120",
        "cost (TC) 3, unsafe steps (TV) 6",
        "return of each trial",
        "-170, predicted -163.00",
        "CVaR 0.9 of the safety cost",
        "0.3333, target 0.675, limit 0.75",
        "λ of CVaR 0.9",
        "╌╌╌",
        f"Next: samba-rl resume {unfinished}",
    ):
        assert words in out, words
    assert before == {path: path.stat().st_mtime_ns for path in unfinished.rglob("*")}


def test_a_finished_run_says_what_comes_next(smoke_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(smoke_run, capsys)
    assert "safe-pendulum: samba, seed 2 finished" in out and f"Next: samba-rl eval {smoke_run}" in out


def test_learners_without_a_limit_and_latent_models(unfinished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latent: list[Event] = [LatentReport(3, i, 9, 20.0 / i, 1.0, 1.0, 1.0, 1.0, 4.0 + i) for i in (1, 2)]
    (unfinished / METRICS).write_text("".join(map(row, [*RUN.trials, *latent])))
    held = Lock(unfinished)
    try:
        out = shown(unfinished, capsys)
    finally:
        held.release()
    assert "training the model after trial 3: 2 of 9" in out and "loss of the model [nats per step]" in out
    assert "running" in out and "λ" not in out and "limit" not in out


def test_a_run_that_waits_for_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "rig"
    assert main(["new", str(folder), "--task", LINE, "--preset", "smoke"]) == 0
    capsys.readouterr()
    out = shown(folder, capsys)
    assert "line: samba, seed 0 waiting" in out and f"Next: samba-rl status {folder}" in out


def test_it_follows_a_run_until_it_ends(
    unfinished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    (unfinished / METRICS).write_text("".join(map(row, EVENTS[:4])))
    held, looks = Lock(unfinished), 0

    def wait(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            with (unfinished / METRICS).open("a") as file:
                file.writelines(map(row, EVENTS[4:]))
        elif looks == 2:
            held.release()
        assert looks < 5

    monkeypatch.setattr("samba_rl.cli.watch.time.sleep", wait)
    assert main(["watch", str(unfinished)]) == 0
    out = capsys.readouterr().out
    assert out.index("30 of 120") < out.index("120 of 120") < out.rindex("It is interrupted")


def test_ctrl_c_ends_the_watching_quietly(
    unfinished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("samba_rl.cli.watch.time.sleep", interrupted)
    held = Lock(unfinished)
    try:
        assert main(["watch", str(unfinished)]) == 130
    finally:
        held.release()
    assert capsys.readouterr().err == ""


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no run: it has no config.json" in error_of(["watch", str(tmp_path)], capsys)


# Following and plotting -----------------------------------------------------------------------------------------------


def test_the_follower_reads_whole_lines_and_notices_rewritten_ones(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text("{}")
    follower, metrics = Follower(tmp_path), tmp_path / METRICS
    assert not follower.refresh()
    lines = [row(event) for event in EVENTS]
    metrics.write_text(lines[0] + lines[1][:40])
    assert follower.refresh() and follower.events == EVENTS[:1]
    metrics.write_text("".join(lines[:3]))
    assert follower.refresh() and follower.events == EVENTS[:3] and not follower.refresh()
    # A resumed run has cut its metrics, and its next rows are others.
    metrics.write_text(lines[0] + "".join(lines[5:]))
    assert follower.refresh() and follower.events == [EVENTS[0], *EVENTS[5:]]
    metrics.write_text(lines[0])
    assert follower.refresh() and follower.events == EVENTS[:1]


def test_the_time_left_follows_from_the_latest_trials() -> None:
    # A second and 30 samples a trial; the last control iteration ended before the last trial.
    assert seconds_left(list(RUN.trials), 300) == 6
    assert str(seconds_left([RUN.trials[0]], 300)) == "nan" == str(seconds_left(list(RUN.trials), None))


def drawn(*arguments: Any, **settings: Any) -> list[str]:
    return plot(*arguments, **settings).plain.split("\n")


def test_a_plot_rises_with_its_values_and_shows_their_range_and_the_limit() -> None:
    lines = drawn([0.0, 1.0, 2.0, 3.0], 30)
    assert len(lines) == 4 and {len(line) for line in lines} == {30}
    assert lines[0].startswith("       3 ┤") and lines[3].startswith("       0 ┤")
    first = [line[10:].replace("\u2800", " ") for line in lines]
    # The curve goes from the lower left to the upper right.
    assert first[3][0] != " " and first[0][-1] != " " and first[0][0] == " " and first[3][-1] == " "
    assert "╌" in drawn([0.0, 3.0], 30, mark=1.5)[2] + drawn([0.0, 3.0], 30, mark=1.5)[1]
    # A first value far above the others is cut off.
    assert drawn([100.0, *[1.0] * 30], 30)[0].startswith("    ≥1.5 ┤")
    assert drawn([float("nan")], 30) == ["no values yet"] and len(drawn([5.0], 30)) == 4
