"""The grid: which cells there are, and that nothing that becomes of one touches the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from samba_rl.benchmark.cells import (
    Cell,
    CellResult,
    Tail,
    curve_of,
    read_result,
    read_results,
    run_cell,
    tail_of,
    write_result,
)
from samba_rl.benchmark.grid import Backend, Failed, Finished, Grid, GridRun, Message, Progressed
from samba_rl.benchmark.local import LocalBackend
from samba_rl.errors import UserError
from samba_rl.learners import LEARNERS, make_settings
from samba_rl.runs.evaluation import Evaluation, evaluate
from samba_rl.tasks import TASKS
from samba_rl.types import Policy
from tests.threads import one_thread

PENDULUM = "safe-pendulum"


@pytest.fixture(autouse=True, scope="module")
def single() -> Iterator[None]:
    """As in a cell's process: with more threads sums are taken in another order."""
    with one_thread():
        yield


def an_evaluation() -> Evaluation:
    return Evaluation(3, 20.0, 300, 10, -120.0, 4.0, (0.0, 1.0, 2.5), 6.0, 0.9, None, (), 0, deterministic=False)


def a_result(cell: Cell) -> CellResult:
    return CellResult(cell, 600, 7.5, 2, 12.0, "cpu", an_evaluation(), replace(an_evaluation(), deterministic=True))


# Cells ----------------------------------------------------------------------------------------------------------------


def test_the_paper_s_grid_has_every_learner_on_every_system() -> None:
    cells = Grid().cells()
    assert len(cells) == 10 * 3 * 3 == len({cell.name for cell in cells})
    assert {(cell.task, cell.learner) for cell in cells} == {(task, learner) for task in TASKS for learner in LEARNERS}
    assert [cell.seed for cell in cells[:30]] == [100] * 30  # every row has its first seed early


def test_limits_are_run_by_those_that_have_one() -> None:
    cells = Grid(("ppo", "sppo", "samba"), (PENDULUM,), 1, limits=(0.25, 0.75)).cells()
    assert [(cell.learner, cell.limit) for cell in cells] == [
        ("ppo", None), ("sppo", 0.25), ("sppo", 0.75), ("samba", 0.25), ("samba", 0.75),
    ]  # fmt: skip
    settings = Cell(PENDULUM, "samba", 0, "paper", limit=0.25).settings()
    assert (settings.constraint.limit, settings.constraint.per) == (0.25, "trajectory")
    assert make_settings(PENDULUM, "samba", "paper").constraint.per == "step"


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("scale", [0.001, 0.1, 0.5, 2.0])
def test_a_budget_is_scaled_and_stays_possible(learner: str, scale: float) -> None:
    usual = make_settings(PENDULUM, learner)
    settings = Cell(PENDULUM, learner, 0, budget_scale=scale).settings()
    assert settings.real_samples == max(round(scale * usual.real_samples), 60)
    assert 0 < settings.first.samples <= min(usual.first.samples, settings.real_samples // 2)
    assert Cell(PENDULUM, learner, 0).settings() == usual


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Grid(learners=("sambo",)), "no learner is called 'sambo'; did you mean 'samba'?"),
        (lambda: Grid(tasks=("pendulum",)), "no system is called 'pendulum'; did you mean 'safe-pendulum'"),
        (lambda: Grid(preset="papper"), "no preset is called 'papper'"),
        (lambda: Grid(seeds=0), "seeds = 0; at least 1 is needed"),
        (lambda: Grid(budget_scale=0.0), "budget_scale = 0.0; it must be positive"),
    ],
)
def test_what_cannot_be_run_is_refused(make: Callable[[], Grid], message: str) -> None:
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value).startswith(message)


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_result_reads_back_as_it_was_written(tmp_path: Path) -> None:
    result = replace(a_result(Cell(PENDULUM, "samba", 100, limit=0.25)), tail=(Tail(0, float("nan"), 1.0, 2.0),))
    path = write_result(tmp_path / "results", result)
    again = read_result(path)
    assert replace(again, tail=()) == replace(result, tail=()) and again.tail[0].predicted != again.tail[0].predicted
    assert read_results(tmp_path / "results")[0].cell == result.cell
    assert path.name == "safe-pendulum-samba-default-xi0.25-100.json"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 9}', '{"format": 1}', '{"format": 1, "cell": 3}'])
def test_a_damaged_result_says_what_to_do(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"x\.json is damaged .*; remove it, and the cell is run again"):
        read_result(path)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder of results"):
        read_results(tmp_path / "nowhere")


def test_a_cell_s_result_is_its_run_s(tmp_path: Path) -> None:
    from samba_rl.runs import load_run

    cell = Cell(PENDULUM, "sppilco", 3, "smoke")
    result = run_cell(cell, tmp_path / "run", steps=200)
    run = load_run(tmp_path / "run")
    assert (run.learner, run.preset, run.seed, run.settings) == ("sppilco", "smoke", 3, cell.settings())
    assert result.with_noise == run.evaluate(200) and result.without_noise == run.evaluate(200, deterministic=True)
    assert result.learning_TC == run.summary["learning_TC"] and result.real_samples == run.summary["real_samples"]
    assert [point.real_samples for point in result.curve] == [trial.real_samples for trial in run.trials]
    # Once more: it is loaded, not run again.
    again = run_cell(cell, tmp_path / "run", steps=200)
    assert (again.curve, again.tail) == (result.curve, result.tail)
    assert curve_of([]) == ()


def test_a_cell_s_policies_are_measured_apart_from_learning(tmp_path: Path) -> None:
    from samba_rl.runs import load_run, train

    cell = Cell(PENDULUM, "sppilco", 3, "smoke")
    result = run_cell(cell, tmp_path / "run", steps=200)
    run, policies = load_run(tmp_path / "run"), dict[int, Policy]()
    same = train(PENDULUM, "sppilco", preset="smoke", seed=3, watch=policies.__setitem__)
    assert all(torch.equal(a, b) for a, b in zip(run.policy.parameters(), same.policy.parameters(), strict=True))
    policies[run.trials[-1].iteration] = same.policy
    assert [tail.iteration for tail in result.tail] == [trial.iteration for trial in run.trials] == list(policies)
    for tail, policy in zip(result.tail, policies.values(), strict=True):
        found = evaluate(run.task, policy, steps=200, constraints=run.constraints)
        ends = [e for e in run.improvements if e.iteration == tail.iteration]
        assert tail == Tail(tail.iteration, ends[-1].values[0], ends[-1].targets[0], found.constraints[0][1])
    assert tail_of(run.improvements, {}) == ()
    # Without a model nothing is promised.
    assert run_cell(Cell(PENDULUM, "sppo", 3, "smoke"), tmp_path / "sppo", steps=200).tail == ()


def test_a_long_curve_is_thinned_to_its_ends() -> None:
    from samba_rl.events import TrialReport

    trials = [
        TrialReport(i, 30 * i, 1, 0.0, 0.0, 0, 0.0, 0, 0.0, 0.0, 0.0, (), (), 0.0) for i in range(1234)
    ]  # fmt: skip
    points = curve_of(trials)
    assert len(points) <= 101 and points[0].real_samples == 0 and points[-1].real_samples == 30 * 1233


# The loop -------------------------------------------------------------------------------------------------------------


class Played:
    """A backend that plays what is written for each attempt at a cell."""

    def __init__(self, slots: int, plays: dict[str, list[str]]) -> None:
        self._slots, self._plays = slots, plays
        self.running: list[Cell] = []
        self.most, self.stopped, self.started = 0, 0, [""][:0]

    @property
    def slots(self) -> int:
        return self._slots

    def start(self, cell: Cell) -> None:
        self.started.append(cell.learner)
        self.running.append(cell)
        self.most = max(self.most, len(self.running))

    def poll(self, timeout: float) -> list[Message]:
        cell = self.running.pop(0)
        play = self._plays.get(cell.learner, ["fine"])
        what = play.pop(0) if play else "fine"
        if what == "interrupt":
            raise KeyboardInterrupt
        if what == "fine":
            return [Progressed(cell, 0.5), Finished(cell, a_result(cell))]
        return [Failed(cell, what)]

    def stop(self) -> None:
        self.stopped += 1


def a_run(results: Path, *learners: str) -> GridRun:
    return GridRun(Grid(learners or ("samba", "ppo", "sppo"), (PENDULUM,), 1).cells(), results)


def test_all_cells_are_run_and_kept(tmp_path: Path) -> None:
    run, backend = a_run(tmp_path), Played(2, {})
    assert run.run(backend) == [] and backend.most == 2 and backend.stopped == 1
    assert {result.cell.learner for result in read_results(tmp_path)} == {"samba", "ppo", "sppo"}
    again, idle = a_run(tmp_path, "samba", "ppo", "sppo", "cpo"), Played(2, {})
    assert again.run(idle) == [] and idle.started == ["cpo"]


def test_a_cell_that_fails_is_tried_once_more_and_stops_nobody(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    backend = Played(1, {"samba": ["it broke", "again"], "ppo": ["it broke"]})
    failed = run.run(backend)
    assert [(state.cell.learner, state.why, state.attempts) for state in failed] == [("samba", "again", 2)]
    assert sorted(backend.started) == ["ppo", "ppo", "samba", "samba", "sppo"]
    assert {result.cell.learner for result in read_results(tmp_path)} == {"ppo", "sppo"}
    once_more = Played(1, {})
    assert a_run(tmp_path).run(once_more) == [] and once_more.started == ["samba"]


def test_an_interrupt_ends_what_runs_and_keeps_what_is_finished(tmp_path: Path) -> None:
    backend = Played(1, {"ppo": ["interrupt"]})
    with pytest.raises(KeyboardInterrupt):
        a_run(tmp_path).run(backend)
    assert backend.stopped == 1 and [result.cell.learner for result in read_results(tmp_path)] == ["samba"]


def test_a_file_of_another_cell_is_not_taken_for_this_one(tmp_path: Path) -> None:
    path = write_result(tmp_path, a_result(Cell(PENDULUM, "ppo", 100)))
    path.rename(tmp_path / f"{Cell(PENDULUM, 'samba', 100).name}.json")
    with pytest.raises(UserError, match="holds another cell, safe-pendulum-ppo-default-100; remove it"):
        a_run(tmp_path)


def test_the_time_left_by_hand(tmp_path: Path) -> None:
    now = 0.0
    run = GridRun(Grid(("samba", "ppo"), (PENDULUM,), 2).cells(), tmp_path, lambda: now)
    assert run.seconds_left() is None
    first, second, third, _ = run.states.values()
    first.status, first.seconds = "finished", 100.0  # samba
    second.status, second.began, second.share = "running", 0.0, 0.25  # ppo
    now = 5.0
    # The rest of ppo: 15 s; then samba as before, 100 s, and ppo as it seems, 20 s; one after the other.
    assert run.seconds_left() == pytest.approx(15 + 100 + 20)
    run._slots = 2
    assert run.seconds_left() == pytest.approx((15 + 100 + 20) / 2)
    third.status, third.seconds = "finished", 50.0
    assert run.seconds_left() == pytest.approx((15 + 20) / 2)


# Processes ------------------------------------------------------------------------------------------------------------


def finish(run: GridRun, backend: Backend) -> list[str]:
    return [state.why for state in run.run(backend)]


def test_cells_in_processes_come_to_what_they_come_to_here(tmp_path: Path) -> None:
    cells = Grid(("ppo", "cpo"), (PENDULUM,), 1, preset="smoke").cells()
    assert finish(GridRun(cells, tmp_path / "results"), LocalBackend(2, tmp_path / "runs", steps=100)) == []
    for cell in cells:
        there = read_result(tmp_path / "results" / f"{cell.name}.json")
        here = run_cell(cell, tmp_path / "here" / cell.name, steps=100)
        assert (there.with_noise, there.curve) == (here.with_noise, here.curve)
        assert (tmp_path / "runs" / cell.name / "summary.json").exists()


def test_a_process_that_is_killed_is_reported_and_its_cell_goes_on(tmp_path: Path) -> None:
    (cell,) = Grid(("samba",), (PENDULUM,), 1, preset="smoke").cells()
    backend = LocalBackend(1, tmp_path / "runs", steps=100)
    run, seen = GridRun([cell], tmp_path / "results"), []

    def tell(run: GridRun) -> None:
        state = run.states[cell]
        if state.why:
            seen.append(state.why)
        journal = tmp_path / "runs" / cell.name / "real.journal"
        if not seen and journal.exists() and backend._running:
            os.kill(backend._running[0].process.pid or 0, signal.SIGKILL)

    assert run.run(backend, tell) == []
    assert seen[0] == "its process ended without a result (SIGKILL)" and run.states[cell].attempts == 2
    whole = run_cell(cell, tmp_path / "whole", steps=100)
    assert read_result(tmp_path / "results" / f"{cell.name}.json").with_noise == whole.with_noise


def test_an_error_in_a_cell_is_told(tmp_path: Path) -> None:
    (cell,) = Grid(("samba",), (PENDULUM,), 1, preset="smoke").cells()
    (tmp_path / "runs").write_text("a file where the folder should be")
    (why,) = finish(GridRun([cell], tmp_path / "results"), LocalBackend(1, tmp_path / "runs", steps=100))
    assert "runs" in why and "Error" in why


def test_no_jobs_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="jobs = 0; at least 1 is needed"):
        LocalBackend(0, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_cells_on_a_real_ray(tmp_path: Path) -> None:
    """In a process of its own: Ray leaves threads and settings behind."""
    pytest.importorskip("ray")
    program = f"""
import ray
from pathlib import Path
from samba_rl.benchmark.cluster import RayBackend
from samba_rl.benchmark.grid import Grid, GridRun, Progressed
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
run = GridRun(Grid(("ppo", "trpo"), ("safe-pendulum",), 1, preset="smoke").cells(), Path({str(tmp_path)!r}))
backend = RayBackend("auto", steps=100)
assert backend.slots == 2
heard, poll = [], backend.poll
def listen(timeout):
    messages = poll(timeout)
    heard.extend(messages)
    return messages
backend.poll = listen
failed = run.run(backend)
assert not failed, failed
# Cells this short may end before anybody listens, but what they said on the way is heard.
for cell in run.states:
    shares = [message.share for message in heard if isinstance(message, Progressed) and message.cell == cell]
    assert len(shares) > 1 and 0 < shares[0] < 1 == shares[-1] and shares == sorted(shares), shares
"""
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{time.monotonic() - begin:.0f} s: {done.stderr[-3000:]}"
    (tmp_path / "here").mkdir()
    for result in read_results(tmp_path):
        assert run_cell(result.cell, tmp_path / "here" / result.cell.name, steps=100).with_noise == result.with_noise
